"""The ladder: thirteen ways to run one graph, from trusted to clever, one file each.

The registry imports no torch; a rung's module is loaded when it is asked for.

>>> from graphdbg.toolkit.live.spec import ReplaySpec
>>> rung("eager").unavailable(ReplaySpec())          # None: it can run here
"""

from __future__ import annotations

import difflib
from importlib import import_module

from ...dumps.errors import UsageError
from ..live.rung import CannotRun, Rung

NAMES = (
    "eager",
    "nop",
    "debug_nop",
    "decomposed",
    "torchscript",
    "lazy",
    "inductor_nofuse",
    "lite",
    "strict",
    "triton_interpret",
    "inductor",
    "inductor_cudagraphs",
    "aot_inductor",
)
"""The names of the rungs, from trusted to clever."""
WHOLE = ("eager", "nop", "debug_nop", "torchscript")
"""Rungs without Inductor, which run a joint graph as it is."""


def rung(name: str) -> Rung:
    """The rung of that name; UsageError with the nearest names for another."""
    if name in NAMES:
        return import_module(f".{name}", __name__).RUNG
    near = difflib.get_close_matches(name, NAMES, 1)
    raise UsageError(
        f"no rung is called {name!r}", f"the rungs are {', '.join(NAMES)}", f"did you mean {near[0]!r}?" if near else ""
    )


def warmth(*rungs: str) -> str:
    """How warm a fork server has to be for these rungs."""
    return "torch" if set(rungs) <= set(WHOLE) else "inductor"


__all__ = ["NAMES", "WHOLE", "CannotRun", "Rung", "rung", "warmth"]
