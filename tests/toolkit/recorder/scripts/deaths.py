"""Compiles a little and meets a bad end. Run: deaths.py WAY; `all` forks a child for each way that ends a process."""

import os
import resource
import shutil
import signal
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Dynamo reads a GPU's random state, and no process with CUDA may fork

import torch


def compiled(number, backend="aot_eager"):
    text = f"def f(x): return x.sin() + {number}"
    exec(compile(text, __file__, "exec"), results := {})  # Dynamo treats a function without a file as somebody else's
    return torch.compile(results["f"], backend=backend)(torch.ones(number + 1)).shape[0]


def segv():
    os.kill(os.getpid(), signal.SIGSEGV)


def abort():
    os.abort()


def leave():
    os._exit(9)


def leave_well():
    os._exit(0)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def term():
    os.kill(os.getpid(), signal.SIGTERM)


def memory():
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    try:
        bytearray(2**40)
    except MemoryError as error:
        sys.excepthook(type(error), error, None)
        os._exit(1)


CHILDREN = (segv, abort, leave, leave_well, kill, term, memory)


def every():
    compiled(1)  # what a first compile imports is imported once
    for end in CHILDREN:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            print(end.__name__, compiled(2), flush=True)
            end()
            os._exit(99)
        print(end.__name__, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def full():
    """No file may grow beyond two kilobytes from here on, as on a full disk."""
    print(compiled(1), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    many(2)


def many(first=1):
    for number in range(first, 12):
        print(compiled(number), flush=True)
    sys.exit(5)


def deleted():
    print(compiled(1), flush=True)
    shutil.rmtree(os.environ["GRAPHDBG"])
    print(compiled(2), flush=True)
    sys.exit(5)


def hang():
    print(compiled(1), flush=True)

    def backend(gm, inputs):
        print("hanging", flush=True)
        time.sleep(1000)

    compiled(2, backend)


if __name__ == "__main__":
    {"all": every}.get(sys.argv[1], globals().get(sys.argv[1]))()
