"""Imported, plants a death by one op: compiling or running the op `planted_death::culprit` takes the process with it.

The op is an identity in eager, but for the last place. PLANTED_DEATH is WHAT-WHERE. What: segfault, abort, loop, hog
(memory without end). Where: compile (Inductor's lowering of the op dies), run (a post-grad pass replaces the op by one
whose kernel dies) or eager (its own kernel does). It first starts a program in a session of its own, as a compiler
daemon would be, so that what is left behind can be seen: PLANTED_STRAY names a file for its number.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.lowering import lowerings

WHAT, _, WHERE = os.environ.get("PLANTED_DEATH", "segfault-run").partition("-")


def _die() -> None:
    if stray := os.environ.get("PLANTED_STRAY"):
        program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
        with Path(stray).open("a") as file:
            file.write(f"{program.pid}\n")
    if WHAT == "segfault":
        ctypes.string_at(0)
    elif WHAT == "abort":
        os.abort()
    elif WHAT == "loop":
        while True:
            pass
    elif WHAT == "hog":
        held = []
        while True:
            held.append(torch.ones(64 << 18))
    os.kill(os.getpid(), signal.SIGKILL)


@torch.library.custom_op("planted_death::culprit", mutates_args=())
def culprit(x: torch.Tensor) -> torch.Tensor:
    """Gives back a copy."""
    if WHERE == "eager":
        _die()
    return x.clone()


@culprit.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("planted_death::deadly", mutates_args=())
def deadly(x: torch.Tensor) -> torch.Tensor:
    """Dies."""
    _die()
    return x.clone()


@deadly.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Replace(CustomGraphPass):
    """Puts the deadly op in the place of the harmless one."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.planted_death.culprit.default):
            node.target = torch.ops.planted_death.deadly.default

    def uuid(self) -> None:
        return None


def _lower(*args: object) -> None:
    _die()


if WHERE == "compile":
    lowerings[torch.ops.planted_death.culprit.default] = _lower
elif WHERE != "eager":
    config.post_grad_custom_post_pass = Replace()
