"""Passes over the small case's other axes, one per file. A pass proposes edits and can apply one; the engine decides.

An edit is one line of text that starts with the pass's name, so that it can stand in a journal: "dims 768 2". A pass
knows nothing of search order, caches, isolation or time; it returns a new case and leaves the given one alone. To add
one: a file with `propose` and `apply` that ends in its PASS, of which all words and lists are made. Imports no torch.

>>> pass_of("dims").propose(case)
[['dims 2 1']]
>>> edit_words("dims 768 2")
'sizes of 768 made 2'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...dumps.registered import all_described

if TYPE_CHECKING:
    from ...toolkit.live.case import Live


class PassFunctions(NamedTuple):
    """The functions of a pass. `propose`: rounds of edits of a case, of which the first with an edit not tried yet is
    tried; `apply`: the case with an edit."""

    propose: Callable[[Live], list[list[str]]]
    apply: Callable[[Live, str], Live]


class Pass(NamedTuple):
    """The facts about one pass, named as its file. `order`: the passes run by ascending order.

    `words`: the search step in plain words. `edits`: glob of an edit -> the edit in words, `{1}` for its second word;
    the first glob that fits counts. `unneeded`: beginning of an edit -> what the original had and a case with that edit
    has not.
    """

    order: float
    edits: Mapping[str, str]
    words: str = ""
    unneeded: Mapping[str, str] = {}
    runs_eager: bool = False
    """Whether the pass runs the case in eager to find its proposals: of no use where that kills the process."""
    is_neutral: bool = False
    """Whether its edits change nothing that a failure is known to depend on."""
    is_plainer: bool = False
    """Whether its edits make a case plainer though its inputs may take more bytes."""
    explains: bool = False
    """Whether its edits are asked about the finished case and never kept: no pass of the search."""


PASSES = all_described(Path(__file__).parent, "PASS", Pass)
"""The passes by name, in the order in which they run; their files are read, not imported."""

NAMES = tuple(name for name, row in PASSES.items() if not row.explains)
EAGER = frozenset(name for name, row in PASSES.items() if row.runs_eager)
NEUTRAL = frozenset(name for name, row in PASSES.items() if row.is_neutral)
PLAINER = frozenset(name for name, row in PASSES.items() if row.is_plainer)
"""EAGER, NEUTRAL, PLAINER: names of the passes with that property."""


def pass_of(name: str) -> PassFunctions:
    """The functions of the pass of that name; raises KeyError where there is none."""
    if name not in PASSES:
        raise KeyError(name)
    module = import_module(f".{name}", __name__)
    return PassFunctions(module.propose, module.apply)


def edit_words(edit: str) -> str:
    """An edit in words; its repr where there are no words for it."""
    rows = (row for item in PASSES.values() for row in item.edits.items())
    words = next((words for pattern, words in rows if fnmatchcase(edit, pattern)), "")
    return words.format(*edit.split(" ")) if words else repr(edit)


def unneeded(edit: str) -> str:
    """What the original had and a case with this edit has not; empty where the edit alone does not tell."""
    rows = (row for item in PASSES.values() for row in item.unneeded.items())
    return next((words for begin, words in rows if f"{edit} ".startswith(f"{begin} ")), "")
