"""The def-use gutter: for each node a line from where its value is made to where it is used last, in at most eight
lanes.

Lanes are given once for the whole graph, so that they stay where they are while one scrolls. A value whose last user is
far away (or for which no lane is free) has no line: its node is drawn open. Lanes mean nothing where rows are sorted,
filtered or folded; whoever shows them says so then. Knows nothing of colours.

>>> lanes = finish(laying(view))
>>> [lanes.gutter(node) for node in (6, 7)]
['●╯┤││  ', '├●│││  ']
"""

from __future__ import annotations

from collections.abc import Sequence

from .slices import Steps, spans
from .table import GraphView, Users

MOST = 8
FAR = 40
"""Rows; a longer line would leave the screen at both ends."""

NONE, OPEN = 255, 254
NODES = 4096

GLYPHS = {
    "own": "●",
    "open": "○",
    "unused": "·",
    "down": "│",
    "across": "─",
    "cross": "┼",
    "left": "├",
    "right": "┤",
    "end_left": "╰",
    "end_right": "╯",
    "far": "‹",
    "input": "▴",
    "user": "▾",
    "folded": "▸",
    "rising": "▲",
    "falling": "▼",
}
"""left, right: the value is used here and again further on; its lane is on that side of the node. far: an input from
afar."""
ASCII = {
    "own": "*",
    "open": "o",
    "unused": ".",
    "down": "|",
    "across": "-",
    "cross": "+",
    "left": "+",
    "right": "+",
    "end_left": "`",
    "end_right": "'",
    "far": "<",
    "input": "^",
    "user": "v",
    "folded": "+",
    "rising": "^",
    "falling": "v",
}


class Lanes:
    """`lane[i]` is the lane of node i's value, OPEN or NONE."""

    def __init__(self, lane: bytearray, users: Users, inputs: Sequence[Sequence[int]]) -> None:
        self.lane = lane
        self.users = users
        self.inputs = inputs
        self.width = max((at for at in range(MOST) if at in lane), default=-1) + 2
        """Letters of the gutter: the lanes in use, and one for an input from afar."""

    def gutter(self, index: int, glyphs: dict[str, str] = GLYPHS) -> str:
        """The gutter of one node in `width` letters."""
        lane, users = self.lane, self.users
        alive: dict[int, int] = {}
        for node in range(max(0, index - FAR), index):
            if lane[node] < MOST and users.last(node) >= index:
                alive[lane[node]] = node
        used = set(self.inputs[index])
        line = [" "] * (self.width - 1)
        for at in alive:
            line[at] = glyphs["down"]
        near = [at for at, node in alive.items() if node in used]
        own = lane[index]
        place = (
            own if own < MOST else next((at for at in range(len(line)) if at not in alive or at in near), len(line) - 1)
        )
        for at in near:
            low, high = min(at, place), max(at, place)
            for between in range(low + 1, high):
                if between not in near:
                    line[between] = glyphs["cross"] if between in alive else glyphs["across"]
        for at in near:
            if at != place:
                side = "left" if at < place else "right"
                line[at] = glyphs[f"end_{side}" if users.last(alive[at]) == index else side]
        if line:
            line[place] = glyphs["own" if own < MOST else "open" if own == OPEN else "unused"]
        return "".join(line) + (glyphs["far"] if len(near) < len(used) else " ")


def laying(view: GraphView) -> Steps[Lanes]:
    """Gives lanes to all values in slices: each the first that is free."""
    yield from view.finding_users()
    users = view.user_lists
    lane = bytearray(len(view))
    until = [0] * MOST
    for start, end in spans(len(view), NODES):
        for node in range(start, end):
            last = users.last(node)
            lane[node] = NONE if last < 0 else OPEN
            if 0 < last - node <= FAR:
                for at in range(MOST):
                    if until[at] <= node:
                        lane[node] = at
                        until[at] = last
                        break
        yield
    return Lanes(lane, users, view.table.inputs)
