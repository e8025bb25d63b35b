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
    """The functions of a pass. `propose` gives groups of edits of a case, the first that helps are kept; `apply` the
    case with an edit."""

    propose: Callable[[Live], list[list[str]]]
    apply: Callable[[Live, str], Live]


class Pass(NamedTuple):
    """The facts about one pass, named as its file. `order`: the passes run in it.

    `words`: the step of the search. `edits`: glob of an edit -> it in words, with its own words by their place, the
    first that fits. `unneeded`: how an edit begins -> what the original had and a case with that edit has not.
    """

    order: float
    edits: Mapping[str, str]
    words: str = ""
    unneeded: Mapping[str, str] = {}
    runs_eager: bool = False
    """Whether it runs the case to see what it may propose: of no use where that kills the process."""
    is_neutral: bool = False
    """Whether its edits change nothing that a failure may depend on, as far as anybody knows."""
    is_plainer: bool = False
    """Whether its edits make a case plainer though its inputs may take more bytes."""
    explains: bool = False
    """Whether its edits are asked about the finished case and never kept: no pass of the search."""


PASSES = all_described(Path(__file__).parent, "PASS", Pass)
"""The passes by name, in the order in which they run, as far as they can be read without torch."""

NAMES = tuple(name for name, row in PASSES.items() if not row.explains)
EAGER = frozenset(name for name, row in PASSES.items() if row.runs_eager)
NEUTRAL = frozenset(name for name, row in PASSES.items() if row.is_neutral)
PLAINER = frozenset(name for name, row in PASSES.items() if row.is_plainer)
"""Names of those that are so."""


def pass_of(name: str) -> PassFunctions:
    """What proposes and applies the edits of that name; raises KeyError where there is none."""
    if name not in PASSES:
        raise KeyError(name)
    module = import_module(f".{name}", __name__)
    return PassFunctions(module.propose, module.apply)


def edit_words(edit: str) -> str:
    """An edit of a pass for people; as it is where there are no words for it."""
    rows = (row for item in PASSES.values() for row in item.edits.items())
    words = next((words for pattern, words in rows if fnmatchcase(edit, pattern)), "")
    return words.format(*edit.split(" ")) if words else repr(edit)


def unneeded(edit: str) -> str:
    """What the original had and a case with this edit has not; empty where it cannot be said of the edit alone."""
    rows = (row for item in PASSES.values() for row in item.unneeded.items())
    return next((words for begin, words in rows if f"{edit} ".startswith(f"{begin} ")), "")
