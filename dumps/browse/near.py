"""The neighbourhood of one node: which nodes, in which rows, and their drawing as boxes and lines for a terminal.

The nearest nodes within some hops, both ways, in rows from what is used to what uses; `boxes` draws them. Reads the
table only: it takes no longer in a graph of 100,000 nodes than in a small one.

>>> print(text(sheet_of(view, view.position("mul_1"), hops=1)))
3 nodes within 1 hop of mul_1
┌────────────────+3┐
│ addmm            │
│ addmm f32[2, 16] │
└─────────┬──────+2┘
          │
 ╔════════▼═══════╗
 ║ mul_1          ║
 ║ mul f32[2, 16] ║
 ╚════════╤═══════╝
          │
 ┌────────▼───────┐
 │ erf            │
 │ erf f32[2, 16] │
 └──────────────+1┘
"""

from __future__ import annotations

from ..short import base_name, row_value, shorten
from ..wording import counted
from .boxes import NodeBox, drawn
from .sheet import DIM, Line, Sheet, line
from .table import GraphView

HOPS = 2
MOST_HOPS = 9
WIDTH = 80
MOST = 24
"""How many boxes can be read in a terminal; of more nodes the nearest are drawn."""
_WIDEST, _NARROWEST = 24, 12


def around(view: GraphView, index: int, hops: int, most: int = MOST) -> tuple[list[int], int]:
    """The nodes within a number of hops, in the order of the graph (of more than `most`, the nearest), and how many
    there are."""
    distance = {index: 0}
    border = [index]
    for step in range(1, hops + 1):
        following: list[int] = []
        for at in border:
            if view.op(at) == "output" and at != index:  # everything is two hops from everything through it
                continue
            for other in (*view.inputs(at), *view.users(at)):
                if other not in distance:
                    distance[other] = step
                    following.append(other)
        border = following
    nearest = sorted(distance, key=lambda at: (distance[at], abs(at - index)))[:most]
    return sorted(nearest), len(distance)


def rows_of(view: GraphView, chosen: list[int]) -> dict[int, int]:
    """The row of each chosen node: below all that it uses, and as near to its users as that allows."""
    inside = set(chosen)
    row: dict[int, int] = {}
    for at in chosen:
        row[at] = max((row[used] + 1 for used in view.inputs(at) if used in inside), default=0)
    for at in reversed(chosen):
        users = [row[user] for user in view.users(at) if user in inside]
        if users and not any(used in inside for used in view.inputs(at)):
            row[at] = min(users) - 1
    return row


def sheet_of(view: GraphView, index: int, hops: int = HOPS, width: int = WIDTH) -> Sheet:
    """The drawing as a sheet that begins at the row of the node itself."""
    hops = max(1, min(hops, MOST_HOPS))
    chosen, count = around(view, index, hops)
    row = rows_of(view, chosen)
    inside = set(chosen)
    most = _fitting(list(row.values()), width)
    boxes: list[NodeBox] = []
    for at in chosen:
        inputs = [used for used in view.inputs(at) if used in inside]
        hidden = len(view.inputs(at)) - len(inputs), sum(user not in inside for user in view.users(at))
        boxes.append(_box(view, at, row[at], inputs, hidden, most, focus=at == index))
    lines, top = drawn(boxes, width)
    name = view.table.name[index]
    head: list[Line] = [line((f"{counted(len(chosen), 'node')} within {counted(hops, 'hop')} of ", DIM), name)]
    if count > len(chosen):
        head.append(line((f"{count} are that near; these are the nearest", DIM)))
    return Sheet(f"around {name}", [*head, *lines], top + len(head), choice=counted(hops, "hop"))


def _fitting(rows: list[int], width: int) -> int:
    """The width of a box at which the fullest row fits, within limits."""
    fullest = max(rows.count(row) for row in set(rows))
    return max(_NARROWEST, min(_WIDEST, (width - 2) // fullest - 2))


def _box(
    view: GraphView, at: int, row: int, inputs: list[int], hidden: tuple[int, int], width: int, *, focus: bool
) -> NodeBox:
    name = view.table.name[at]
    op = view.op(at)
    what = base_name(view.target(at)) if op.startswith("call_") else "" if op in (name, "placeholder") else op
    value = row_value(view.table.row(at))
    together = f"{what} {value}".strip()
    words = [name, together] if len(together) <= width - 4 else [name, what, value]
    return NodeBox(at, name, row, [shorten(text, width - 4) for text in words if text], inputs, hidden, focus)
