"""The lines of a node table in a given width: what each cell says, cut and filled. `show` and the screen print the
same.

A line comes in four parts (gutter and number, name, op, the rest), so that each part has one style. Knows nothing of
colours.

>>> from graphdbg.dumps.browse.columns import fitting, usual, widths
>>> from graphdbg.dumps.browse.lanes import laying
>>> from graphdbg.dumps.browse.selection import Question, selecting
>>> columns = fitting(usual(view), widths(view, usual(view)), 80)
>>> texts = RowTexts(finish(selecting(view, Question())), columns, finish(laying(view)))
>>> "".join(texts(6))
'●╯┤││     6  addmm      addmm        float32  [2, 16]  [16, 1]       128 B      3'
"""

from __future__ import annotations

from collections.abc import Sequence

from ..amounts import count_text, size_text
from ..wording import counted
from .columns import GAP, Column, brief, fitted
from .lanes import GLYPHS, Lanes
from .selection import Selection
from .sorting import Sort

Parts = tuple[str, str, str, str]


class RowTexts:
    """`columns`: those that fit, each with its width."""

    def __init__(
        self,
        selection: Selection,
        columns: Sequence[tuple[Column, int]],
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
        """The titles, with the direction of the column that rows are sorted by."""
        gap, titles = " " * GAP, " " * self._gutter
        arrow = self.glyphs["falling" if sort.descending else "rising"] if sort is not None else ""
        for number, (column, width) in enumerate(self.columns):
            title = column.title + (arrow if sort is not None and column.key == sort.key else "")
            titles += (gap if number else "") + fitted(title, width, column)
        return titles

    def key_at(self, x: int) -> str | None:
        """The column at a place of the line."""
        at = self._gutter
        for column, width in self.columns:
            at += width + GAP
            if x < at:
                return column.key
        return None


def group_text(selection: Selection, key: str, group: int) -> str:
    """The cell of a folded group: how many of its nodes are let through, and what they sum up to."""
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
