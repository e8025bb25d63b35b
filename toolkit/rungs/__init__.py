"""The ladder: ways to run one graph, from trusted to clever, one file each, found by its RUNG.

The registry imports no torch; a rung's module is loaded when it is asked for.

>>> from graphdbg.toolkit.live.spec import ReplaySpec
>>> rung("eager").unavailable(ReplaySpec())          # None: it can run here
"""

from __future__ import annotations

import difflib
from importlib import import_module

from ...dumps.errors import UnknownWordError
from ..live.rung import LADDER, CannotRun, Rung

NAMES = tuple(LADDER)
"""The names of the rungs, from trusted to clever."""
BACKENDS = {"aot_eager": "decomposed", "aot_eager_decomp_partition": "decomposed", "cudagraphs": "inductor_cudagraphs"}
"""Backend of torch.compile -> the rung that is closest to it."""
WHOLE = frozenset(name for name, facts in LADDER.items() if facts.is_whole)
"""Rungs without Inductor, which run a joint graph unsplit."""


def rung(name: str) -> Rung:
    """The rung of that name; UsageError with the nearest names for another."""
    return import_module(f".{known(name)}", __name__).RUNG


def known(name: str) -> str:
    """Checks that a name is a rung's, without importing its module or torch; UsageError with the nearest names for
    another."""
    if name in NAMES:
        return name
    near = difflib.get_close_matches(name, NAMES, 1)
    fix = nearest_to(name) or (f"did you mean {near[0]!r}?" if near else "")
    raise UnknownWordError(f"no rung is called {name!r}", f"the rungs are {', '.join(NAMES)}", fix)


def nearest_to(backend: str) -> str:
    """What to type in place of a torch backend's name; "" for a name that is none.

    >>> nearest_to("aot_eager")
    "torch's backend aot_eager: use decomposed (what AOTAutograd and the decompositions make of it, run by torch)"
    """
    name = BACKENDS.get(backend, "")
    return f"torch's backend {backend}: use {name} ({LADDER[name].words})" if name else ""


def warmth(*rungs: str) -> str:
    """The kind of warm fork server that these rungs need."""
    return "torch" if set(rungs) <= WHOLE else "inductor"


__all__ = ["BACKENDS", "NAMES", "WHOLE", "CannotRun", "Rung", "known", "nearest_to", "rung", "warmth"]
