"""Diff: its digit, what it is about, and its actions with their keys, in the order in which help lists them."""

from __future__ import annotations

from ...actions import Action, Screen

SCREEN = Screen(
    digit="3", label="diff", help="The graph beside another one.", words="diff A B", also="compare", of="pair",
    about=("two graphs side by side with their last verdicts, or a forward beside its backward"),
    actions=(
    Action("diff.next", "n", "next hit", "To the next difference that does not merely follow from another.",
           "diff A B --all", does=("diff_step", 1), footer=True, also="difference"),
    Action("diff.previous", "N", "hit before", "To the difference before.", "diff A B --all", does=("diff_step", -1)),
    Action("diff.choose", "c", "choose other", "Choose the other graph: recompile, stage, forward or backward, another "
           "run.", "ls RUN", footer=True, also="compare"),
    Action("diff.only", "a", "all or some", "Only what differs and some lines around it, or every line.",
           "diff A B --side-by-side --all", footer=True),
    Action("diff.join", "equals_sign", "by seq_nr", "Join a forward and its backward by seq_nr, or align by what nodes "
           "compute.", "diff A B --by-seq-nr", footer=True),
    Action("diff.swap", "X", "swap", "A becomes B, and B becomes A.", "diff B A"),
    Action("diff.open", "enter", "open", "The node in its graph: of A, else of B.", "show RUN/ID",
           does=("diff_open", 0), footer=True),
    Action("diff.open_other", "b", "open in B", "The node of B in its graph.", "show RUN/ID", does=("diff_open", 1)),
    ),
)  # fmt: skip
