# pyright: basic
"""Passes over the small case's other axes, one per file. A pass proposes edits and can apply one; the engine decides.

An edit is one line of text that starts with the pass's name, so that it can stand in a journal: "dims 768 2". A pass
knows nothing of search order, caches, isolation or time; it returns a new case and leaves the given one alone. To add
one: its file, with `propose(case)` and `apply(case, edit)`, and its row in PASSES, of which all words and lists are
made. Imports no torch.

>>> pass_of("dims").propose(case)
[['dims 2 1']]
>>> edit_words("dims 768 2")
'sizes of 768 made 2'
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Pass(NamedTuple):
    """One pass, whose module has this name.

    `words`: the step of the search. `edits`: glob of an edit -> it in words, with its own words by their place, the
    first that fits. `unneeded`: how an edit begins -> what the original had and a case with that edit has not.
    """

    name: str
    words: str
    edits: Mapping[str, str]
    unneeded: Mapping[str, str] = {}
    runs_eager: bool = False
    """Whether it runs the case to see what it may propose: of no use where that kills the process."""
    is_neutral: bool = False
    """Whether its edits change nothing that a failure may depend on, as far as anybody knows."""
    is_plainer: bool = False
    """Whether its edits make a case plainer though its inputs may take more bytes."""
    explains: bool = False
    """Whether its edits are asked about the finished case and never kept: no pass of the search."""


PASSES = (
    Pass("symbols", "symbolic sizes made numbers", {"symbols *": "the symbolic size {1} made a number"},
         {"symbols": "dynamic sizes"}),
    Pass("bodies", "smaller graphs inside higher-order operators",
         {"bodies inline": "the operators that hold graphs inlined", "bodies * * *": "{1} without {2}"},
         {"bodies inline": "operators that hold graphs"}, runs_eager=True),
    Pass("operands", "what nobody reads of higher-order operators", {"operands *": "{1} without what nobody reads"},
         runs_eager=True),
    Pass("dims", "smaller shapes",
         {"dims * * *": "sizes of {1} made {2}, those of windows too", "dims * *": "sizes of {1} made {2}"},
         {"dims": "the original sizes"}),
    Pass("values", "simpler values", {"values * *": "input {1} filled with {2}"}, {"values": "recorded values"}),
    Pass("strides", "plainer strides", {"strides *": "input {1} laid out plainly"}, {"strides": "recorded strides"}),
    Pass("ranks", "fewer dimensions",
         {"ranks 1": "inputs of at most 1 dimension", "ranks *": "inputs of at most {1} dimensions"}, runs_eager=True),
    Pass("dtypes", "plainer dtypes", {"dtypes * *": "{1} made {2}"}, runs_eager=True, is_plainer=True),
    Pass("operators", "simpler operators and numbers",
         {"operators * to *": "{3} in place of {1}", "operators * default *": "{1} without its argument {3}",
          "operators * * *": "the argument {2} of {1} made {3}"}, runs_eager=True),
    Pass("inputs", "one input in place of several", {"inputs * *": "{2} in place of {1}"},
        {"inputs": "inputs that differ"}),
    Pass("switches", "turning off settings that are not needed",
         {"switches config * *": "the setting {2}.{3} at its default", "switches static": "fixed sizes",
          "switches grad": "gradients off", "switches inference": "inference mode off",
          "switches autocast": "autocast off",
          "switches autocast *": "autocast off for {2}", "switches regions *": "the regions of another {2} mode left "
          "out",
          "switches dtype * *": "autocast to {3} in place of {2}", "switches state *": "{2} at its default"},
         {"switches static": "dynamic sizes", "switches grad": "gradients", "switches autocast": "autocast",
          "switches regions": "mode switches"}),
    Pass("program", "entering through torch.compile, as a plain program",
         {"program enter": "the graph entered through torch.compile",
          "program *": "the graph entered through torch.compile, with functions of torch"}, runs_eager=True),
    Pass("names", "plain names", {"names *": "other names"}, is_neutral=True),
    Pass("probes", "",
         {"probes operator * * *": "{3} in place of {2}", "probes size *": "a size of {2} made {3}",
          "probes cut *": "without {2}", "probes constant * * *": "{4} in place of a constant of {2}",
          "probes fill * *": "input {2} filled with {3}", "probes transposed *": "input {2} transposed"},
         runs_eager=True, explains=True),
)  # fmt: skip
"""The passes in the order in which they run."""

NAMES = tuple(one.name for one in PASSES if not one.explains)
EAGER, NEUTRAL, PLAINER = (
    frozenset(one.name for one in PASSES if getattr(one, field)) for field in ("runs_eager", "is_neutral", "is_plainer")
)
"""Names of those that are so."""


def pass_of(name: str) -> ModuleType:
    """The module that proposes and applies the edits of that name; raises KeyError where there is none."""
    if all(one.name != name for one in PASSES):
        raise KeyError(name)
    return import_module(f".{name}", __name__)


def edit_words(edit: str) -> str:
    """An edit of a pass for people; as it is where there are no words for it."""
    rows = (row for one in PASSES for row in one.edits.items())
    told = next((told for pattern, told in rows if fnmatchcase(edit, pattern)), "")
    return told.format(*edit.split(" ")) if told else repr(edit)


def unneeded(edit: str) -> str:
    """What the original had and a case with this edit has not; empty where it cannot be said of the edit alone."""
    rows = (row for one in PASSES for row in one.unneeded.items())
    return next((told for begin, told in rows if f"{edit} ".startswith(f"{begin} ")), "")
