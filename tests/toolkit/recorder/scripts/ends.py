"""Compiles a little, then ends in the way its first argument says."""

import os
import signal
import sys

import torch


@torch.compile
def f(x):
    return x.sin() + 1


way = sys.argv[1]
if way != "nothing":
    print(f(torch.ones(3)).sum().item(), flush=True)
if way == "exit":
    sys.exit(3)
if way == "raise":
    raise ValueError("the user's own")
if way == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if way == "segv":
    os.kill(os.getpid(), signal.SIGSEGV)
if way == "fork":
    child = os.fork()
    if child == 0:
        print(f(torch.ones(3, dtype=torch.float64)).sum().item(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
if way == "broken_backend":

    def backend(gm, inputs):
        raise RuntimeError("this backend never works")

    torch.compile(lambda x: x.cos(), backend=backend)(torch.ones(3))
if way == "broken_run":
    torch.compile(lambda x: x.cos(), backend=lambda gm, inputs: lambda *args: 1 / 0)(torch.ones(3))
if way == "planted":
    import torch._inductor.config as config

    config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    torch.compile(lambda x: x.relu())(torch.ones(3))
