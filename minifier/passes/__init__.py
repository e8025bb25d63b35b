# pyright: basic
"""Passes over the small case's other axes, one per file. A pass proposes edits and can apply one; the engine decides.

An edit is one line of text that starts with the pass's name, so that it can stand in a journal: "dims 768 2". A pass knows
nothing of search order, caches, isolation or time; it returns a new case and leaves the given one alone. To add one: its file,
and its name in NAMES (the order in which they run).

>>> pass_of("dims").propose(Live(gm, inputs))
[['dims 8 2', 'dims 768 2'], ['dims 2 1']]
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def pass_of(name: str) -> ModuleType:
    """The module that proposes and applies the edits of that name; raises KeyError where there is none."""
    if name not in (*NAMES, *EXPLAINING):
        raise KeyError(name)
    return import_module(f".{name}", __name__)


NAMES = ("symbols", "bodies", "operands", "dims", "values", "strides", "ranks", "dtypes", "operators", "inputs", "switches",
         "program", "names")  # fmt: skip
"""The passes in the order in which they run; each is the module of that name."""

EXPLAINING = ("probes",)
"""Modules whose edits are asked about the finished case and never kept; no passes of the search."""
EAGER = frozenset({"bodies", "operands", "ranks", "dtypes", "operators", "program", *EXPLAINING})
"""Passes that run the case to see what they may propose, so of no use where that kills the process."""
NEUTRAL = frozenset({"names"})
"""Passes whose edits change nothing that a failure may depend on, as far as anybody knows."""
PLAINER = frozenset({"dtypes"})
"""Passes whose edits make a case plainer though its inputs may take more bytes."""
