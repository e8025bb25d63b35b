"""Actions of the diff screen; moving about in its list is with those of Home."""

from __future__ import annotations

from .action import Action

_ROOMS = ("diff",)

ACTIONS: tuple[Action, ...] = (
    Action("diff.next", ("n",), "next", "To the next difference that does not merely follow from another.", _ROOMS,
           "diff A B --all", footer=True),
    Action("diff.previous", ("N", "p"), "previous", "To the difference before.", _ROOMS, "diff A B --all"),
    Action("diff.choose", ("c",), "choose other", "Choose the other graph: recompile, stage, forward or backward, another run.",
           _ROOMS, "ls RUN", footer=True),
    Action("diff.only", ("d",), "only differences", "Show only what differs and some lines around it, or every line.",
           _ROOMS, "diff A B --side-by-side --all", footer=True),
    Action("diff.join", ("s",), "by seq_nr", "Join a forward and its backward by seq_nr, or align by what nodes compute.",
           _ROOMS, "diff A B --by-seq-nr"),
    Action("diff.swap", ("x",), "swap", "A becomes B, and B becomes A.", _ROOMS, "diff B A"),
    Action("diff.open", ("enter",), "open", "The node in its graph: of A, else of B.", _ROOMS, "show RUN/ID", footer=True),
    Action("diff.open_other", ("b",), "open in B", "The node of B in its graph.", _ROOMS, "show RUN/ID"),
)  # fmt: skip
