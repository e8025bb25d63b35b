"""Two saved graphs side by side, for the command and for the screen: reads both and chooses how they are joined.

>>> print(beside_text(beside(saved, run.graph("0_1/forward")), everything=False))
A  myrun/0_0/forward
B  myrun/0_1/forward
...
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..store import SavedGraph
from ..tables import Column, plain, render
from .model import graph_view
from .pair import diff
from .sideways import MARKS, Sideways, aligned, joined
from .view import verdict_text

CONTEXT = 2
"""Lines without difference that are printed around one with a difference."""

SIGNS = {
    "": " ",
    "changed": "~",
    "only A": "-",
    "only B": "+",
    "replaced": "±",
    "moved": "↕",
    "follows": "·",
    "seq_nr": "=",
    "saved": "s",
}
"""One character for each mark."""
_COLOURS = {"-": "red", "+": "green", "~": "yellow", "±": "yellow", "·": "dim"}


def beside(a: SavedGraph, b: SavedGraph, *, by_seq_nr: bool = False) -> Sideways:
    """The lines of two graphs. Raises UnreadableError for a damaged graph, UsageError for graphs without any common
    seq_nr."""
    graphs = (a.name, b.name)
    if by_seq_nr:
        by_number = joined(a.table, b.table, graphs=graphs, stages=(a.stage, b.stage))
        if not any(by_number.marks):
            why = "no node of one has the seq_nr of a node of the other, and none has the name of an input"
            raise UsageError(f"{graphs[0]} and {graphs[1]} cannot be joined", why, "name a forward and its backward")
        return by_number
    comparison = diff(a, b)
    return aligned(comparison, a.table, b.table, graphs=graphs, summary=verdict_text(graph_view(comparison, *graphs)))


def beside_text(sideways: Sideways, *, everything: bool, terminal: bool = False) -> str:
    """The lines as a table; without `everything` those that differ, and some around them."""
    a, b = sideways.sides
    kept = range(len(sideways)) if everything else _near(sideways)
    columns_a, two = (
        [
            Column("#", right=True, expendable=3),
            Column(side, style="bold"),
            Column("target", expendable=2),
            Column("value", expendable=1),
        ]
        for side in "AB"
    )
    columns = [Column(""), *columns_a, *two, Column("what", fold=True)]
    cells: list[Sequence[str]] = []
    last = -1
    for index in kept:
        if index > last + 1:
            cells.append([""] * 2 + [f"... {index - last - 1} alike"] + [""] * 7)
        row = sideways.row(index)
        left, right = (
            [str(at), side.names[at], sideways.strings[side.targets[at]], sideways.strings[side.values[at]]]
            if at >= 0
            else [""] * 4
            for side, at in ((a, row.a), (b, row.b))
        )
        cells.append([SIGNS[row.mark], *left, *right, row.text or row.mark])
        last = index
    if last < len(sideways) - 1:
        cells.append([""] * 2 + [f"... {len(sideways) - 1 - last} alike"] + [""] * 7)
    head = [f"A  {plain(a.graph)}", f"B  {plain(b.graph)}", sideways.summary, ""]
    styles = [_COLOURS.get(row[0], "") for row in cells]
    return "\n".join([*head, render(columns, cells, terminal=terminal, styles=styles).rstrip("\n")])


def _near(sideways: Sideways) -> list[int]:
    quiet = {MARKS.index(""), MARKS.index("moved")}
    lines_near: set[int] = set()
    for index, mark in enumerate(sideways.marks):
        if mark not in quiet:
            lines_near.update(range(max(0, index - CONTEXT), min(len(sideways), index + CONTEXT + 1)))
    return sorted(lines_near)
