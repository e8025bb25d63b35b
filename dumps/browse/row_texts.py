"""The lines of a node table for a given width: the text of each cell, cut and padded. `show` and the screen print the
same lines.

A line has four parts (gutter and number, name, op, the rest), each with one style. Knows nothing of colours.

>>> from graphdbg.dumps.browse.columns import fitting, usual, widths
>>> from graphdbg.dumps.browse.row_texts import laying
>>> from graphdbg.dumps.browse.selection import Question, selecting
>>> columns = fitting(usual(view), widths(view, usual(view)), 80)
>>> texts = RowTexts(selecting(view, Question()), columns, laying(view))
>>> "".join(texts(6))
'●╯┤││     6  addmm      addmm        float32  [2, 16]  [16, 1]       128 B      3'
"""

from __future__ import annotations

from collections.abc import Sequence

from ..wording import count_text, counted, size_text
from .columns import GAP, NodeColumn, brief, fitted
from .selection import Selection, Sort
from .table import GraphView, Users

MOST = 8
FAR = 40
"""Rows; a longer lane would leave the screen at both ends."""

NONE, OPEN = 255, 254

_SIGNS = "own open unused down across cross left right end_left end_right far input user folded rising falling"
GLYPHS: dict[str, str] = dict(zip(_SIGNS.split(), "●○·│─┼├┤╰╯‹▴▾▸▲▼", strict=True))
"""left, right: the value is used here and again further on; its lane is on that side of the node. far: an input from
afar."""
ASCII: dict[str, str] = dict(zip(_SIGNS.split(), "*o.|-+++`'<^v+^v", strict=True))


class Lanes:
    """The lanes of values in the gutter. `lane[i]` is the lane of node i's value, OPEN or NONE."""

    def __init__(self, lane: bytearray, users: Users, inputs: Sequence[Sequence[int]]) -> None:
        self.lane = lane
        self.users = users
        self.inputs = inputs
        self.width = max((at for at in range(MOST) if at in lane), default=-1) + 2
        """The gutter's width in letters: the lanes in use, and one for an input from afar."""

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


def laying(view: GraphView) -> Lanes:
    """Assigns lanes to all values: to each the first that is free."""
    users = view.user_lists
    lane = bytearray(len(view))
    until = [0] * MOST
    for node in range(len(view)):
        last = users.last(node)
        lane[node] = NONE if last < 0 else OPEN
        if 0 < last - node <= FAR:
            for at in range(MOST):
                if until[at] <= node:
                    lane[node] = at
                    until[at] = last
                    break
    return Lanes(lane, users, view.table.inputs)


Parts = tuple[str, str, str, str]


class RowTexts:
    """The lines of a selection. `columns`: those that fit, each with its width."""

    def __init__(
        self,
        selection: Selection,
        columns: Sequence[tuple[NodeColumn, int]],
        lanes: Lanes | None = None,
        glyphs: dict[str, str] = GLYPHS,
    ) -> None:
        self.selection = selection
        self.columns = columns
        self.lanes = lanes
        self.glyphs = glyphs
        self._gutter = lanes.width + 1 if lanes is not None else 0

    def __call__(self, row: int, mark: str = " ") -> Parts:
        """The line of a node, or of a folded group (~g); `mark` goes before its name."""
        parts = ["", "", "", ""]
        view, lanes = self.selection.view, self.lanes
        if lanes is not None:
            parts[0] = lanes.gutter(row, self.glyphs) + " " if row >= 0 else " " * self._gutter
        gap = " " * GAP
        for column, width in self.columns:
            text = brief(view, column.key, row) if row >= 0 else self._of_group(column.key, ~row)
            text = fitted(text, width, column)
            if column.key == "index":
                parts[0] += text
            elif column.key == "name":
                parts[1] = f" {mark}{text}" if parts[0] else text
            elif column.key == "op" and parts[1]:
                parts[2] = gap + text
            else:
                parts[3] += gap + text if parts[0] or parts[1] or parts[3] else text
        return parts[0], parts[1], parts[2], parts[3]

    def _of_group(self, key: str, group: int) -> str:
        text = group_text(self.selection, key, group)
        return f"{self.glyphs['folded']} {text}" if key == "name" else text

    def heading(self, sort: Sort | None = None) -> str:
        """The titles, with an arrow at the column by which rows are sorted."""
        gap, titles = " " * GAP, " " * self._gutter
        arrow = self.glyphs["falling" if sort.descending else "rising"] if sort is not None else ""
        for number, (column, width) in enumerate(self.columns):
            title = column.title + (arrow if sort is not None and column.key == sort.key else "")
            titles += (gap if number else "") + fitted(title, width, column)
        return titles

    def key_at(self, x: int) -> str | None:
        """The key of the column at position `x` of a line."""
        at = self._gutter
        for column, width in self.columns:
            at += width + GAP
            if x < at:
                return column.key
        return None


def group_text(selection: Selection, key: str, group: int) -> str:
    """The cell of a folded group: the number of its nodes that pass the filter, and their totals."""
    groups, view = selection.groups, selection.view
    assert groups is not None
    if key == "index":
        return str(groups.starts[group])
    if key == "name":
        return groups.labels[group]
    inside = selection.inside(group)
    if key == "op":
        return counted(len(inside), "node", form=",")
    if key == "bytes":
        return size_text(sum(view.table.size_bytes[node] or 0 for node in inside))
    if key == "flops":
        total = sum(view.flops(node) or 0 for node in inside)
        return count_text(total) if total else ""
    return ""
