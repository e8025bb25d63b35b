"""The node table: 100,000 rows, of which only the lines that are seen are painted. Knows textual and a `Selection`, no
file.

A move of the cursor paints the lines that change and nothing else. Cells beside each other in one style are one
segment, texts of rows are kept while the columns stay the same. The first line is the heading; a click on it sorts.

For example:

    table.show(selection, columns, lanes)
    table.move(1); table.node  # -> 58
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from ....dumps.browse.columns import GAP, NodeColumn, fitting, widths
from ....dumps.browse.row_texts import ASCII, GLYPHS, Lanes, RowTexts
from ....dumps.browse.selection import Selection
from ...widgets.virtual_list import VirtualList

KEPT = 3000
"""How many texts of rows are kept."""
STYLES = ("head", "quiet", "op", "group", "cursor", "near", "bad", "hot", "warm")
EPSILON = {"float64": 2.3e-16, "float16": 9.8e-4, "bfloat16": 7.9e-3}
"""The step after 1 of each dtype; other dtypes have that of float32."""
WARM = 0.1
"""An error beyond the square root of that step has lost half of the digits and is hot; one beyond this part of the root
is warm."""


class NodeTable(VirtualList):
    """Rows of a selection with a cursor."""

    head = 1
    COMPONENT_CLASSES = {f"nodes--{name}" for name in STYLES}
    DEFAULT_CSS = """
    NodeTable { height: 1fr; width: 1fr; background: $surface; color: $foreground; }
    NodeTable { overflow-x: hidden; overflow-y: scroll; scrollbar-size-vertical: 1; }
    NodeTable > .nodes--head { background: $panel; color: $text-muted; text-style: bold; }
    NodeTable > .nodes--quiet { color: $text-muted; }
    NodeTable > .nodes--op { color: $text-accent; }
    NodeTable > .nodes--group { color: $text-primary; text-style: bold; }
    NodeTable > .nodes--near { color: $text-warning; text-style: bold; }
    NodeTable > .nodes--bad { color: $text-error; text-style: bold; }
    NodeTable > .nodes--hot { background: $error-muted; color: $text-error; text-style: bold; }
    NodeTable > .nodes--warm { background: $warning-muted; color: $text-warning; }
    NodeTable > .nodes--cursor { background: $block-cursor-background; color: $block-cursor-foreground;
        text-style: bold; }
    """

    class Headed(Message):
        """A title of a column was clicked."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None, ascii_only: bool = False) -> None:
        super().__init__(id=id)
        self.selection: Selection | None = None
        self.columns: Sequence[NodeColumn] = ()
        self.lanes: Lanes | None = None
        self.texts: RowTexts | None = None
        self.glyphs = ASCII if ascii_only else GLYPHS
        self.near: dict[int, str] = {}
        """Nodes that the one under the cursor uses or is used by, with their mark."""
        self.bad: dict[int, str] = {}
        """Nodes that a job found bad, with their mark."""
        self.bad_lines: set[int] = set()
        """The user's lines of the bad nodes, as positions among the texts."""
        self._heated: list[tuple[str, int, int]] = []
        """The columns that are coloured by their values: key, first letter and end in the line."""
        self._wide: dict[int, dict[str, int]] = {}
        """The wanted widths of the columns, by the first node that has a row of its own."""
        self._strips: dict[int, Strip] = {}

    # -- what is shown

    def show(self, selection: Selection, columns: Sequence[NodeColumn], lanes: Lanes | None, cursor: int) -> None:
        """Shows these rows with the cursor on one of them."""
        if self.selection is None or self.selection.view is not selection.view or tuple(columns) != tuple(self.columns):
            self._wide.clear()
        self.selection, self.columns, self.lanes = selection, columns, lanes
        self.cursor = max(0, min(cursor, len(selection) - 1))
        self._mark()
        self.resize_to(len(selection))
        self._lay()
        self.to_cursor()
        self.post_message(self.Moved(self, self.cursor))

    def measure(self) -> None:
        """Measures the widths of columns again, after their contents changed."""
        self._wide.clear()
        self._lay()

    def _lay(self) -> None:
        """Finds which columns fit; all texts are written again."""
        self._strips.clear()
        if self.selection is None:
            return
        lanes = self.lanes
        gutter = lanes.width + 1 if lanes is not None else 0
        width = self.scrollable_content_region.width - 1  # digits do not touch the bar
        if width - gutter < 50:
            lanes, gutter = None, 0
        start = _start(self.selection)
        if start not in self._wide:
            self._wide[start] = widths(self.selection.view, self.columns, start)
        fits = fitting(self.columns, self._wide[start], width - gutter)
        self.texts = RowTexts(self.selection, fits, lanes, self.glyphs)
        self._heated, at = [], gutter
        for column, wide in fits:
            if column.key in ("error", "other", "file"):
                self._heated.append((column.key, at, at + wide))
            at += wide + GAP
        self.refresh()

    def on_resize(self) -> None:
        """Lays the columns out for the new size."""
        self._lay()
        self.to_cursor()

    def notify_style_update(self) -> None:
        """Takes the styles of another theme."""
        super().notify_style_update()
        self._strips.clear()

    # -- the cursor

    @property
    def node(self) -> int:
        """The node under the cursor (of a group its first); -1 where there is none."""
        return self.selection.node(self.cursor) if self.selection is not None else -1

    @property
    def row(self) -> int:
        """The row under the cursor: a node, or ~g for a group."""
        return self.selection.rows[self.cursor] if self.selection is not None and len(self.selection) else 0

    def repaint(self, old: int, new: int, margin: int) -> None:
        """Paints both lines, and those whose mark comes or goes."""
        changed = {old, new, *self._near_rows()}
        self._mark()
        changed.update(self._near_rows())
        top = self.scroll_offset.y
        self.to_cursor(margin)
        for at in changed:
            self._strips.pop(at, None)
            if self.scroll_offset.y == top and 0 <= at - top < self.size.height - 1:
                self.refresh_line(at + 1)

    def _mark(self) -> None:
        """Notes which nodes the one under the cursor uses and is used by."""
        self.near = {}
        if self.selection is None or not len(self.selection) or self.row < 0:
            return
        view, node = self.selection.view, self.node
        if view.has_users:
            self.near = {
                **dict.fromkeys(view.users(node)[:KEPT], self.glyphs["user"]),
                **dict.fromkeys(view.inputs(node)[:KEPT], self.glyphs["input"]),
            }

    def _near_rows(self) -> list[int]:
        """The rows on the screen that carry a mark."""
        if self.selection is None or not self.near:
            return []
        top, rows = self.scroll_offset.y, self.selection.rows
        return [at for at in range(top, min(top + self.size.height, len(rows))) if rows[at] in self.near]

    # -- painting

    def style_of(self, name: str) -> Style:
        """A style of the theme."""
        return self.rich_style if name == "base" else self.get_component_rich_style(f"nodes--{name}")

    def render_line(self, y: int) -> Strip:
        """Paints the heading or a row."""
        if y or self.texts is None or self.selection is None:
            return super().render_line(y - 1)
        width = self.scrollable_content_region.width
        text = self.texts.heading(self.selection.question.sort)
        return Strip([Segment(text[:width].ljust(width), self.style_of("head"))], width)

    def line(self, index: int) -> Strip:
        """The strip of one row, which is kept."""
        strip = self._strips.get(index)
        if strip is None:
            if len(self._strips) > KEPT:
                self._strips.clear()
            strip = self._strips[index] = self._strip(index, self.scrollable_content_region.width)
        return strip

    def _strip(self, at: int, width: int) -> Strip:
        assert self.selection is not None and self.texts is not None
        row = self.selection.rows[at]
        text = self.texts(row, self.bad.get(row) or self.near.get(row, " "))
        if at == self.cursor or row < 0:
            style, behind = ("cursor", "cursor") if at == self.cursor else ("group", "base")
            whole = Strip([Segment("".join(text), self.style_of(style))])
            return whole.adjust_cell_length(width, self.style_of(behind))
        *before, rest = text
        style = "bad" if row in self.bad else "near" if row in self.near else "base"
        base, ahead = self.style_of("base"), sum(map(len, before))
        segments = [
            Segment(text, self.style_of(kind)) for text, kind in zip(before, ("quiet", style, "op"), strict=True)
        ]
        done = 0
        for key, start, end in self._heated:
            if (heat := self._heat(row, key)) and start >= ahead:
                segments.append(Segment(rest[done : start - ahead], base))
                segments.append(Segment(rest[start - ahead : end - ahead], self.style_of(heat)))
                done = end - ahead
        return Strip([*segments, Segment(rest[done:], base)]).adjust_cell_length(width, base)

    def _heat(self, node: int, key: str) -> str:
        """The style of an error, or of the user's line of a bad node; empty for the usual one."""
        assert self.selection is not None
        view = self.selection.view
        if key == "file":
            return "bad" if view.table.where[node] in self.bad_lines else ""
        values = view.values.get(node)
        error = getattr(values, key) if values is not None else None
        if not error:
            return ""
        limit = EPSILON.get(view.text[view.table.dtype[node]], 1.2e-7) ** 0.5
        return "hot" if error > limit else "warm" if error > WARM * limit else ""

    # -- the mouse

    def on_click(self, event: events.Click) -> None:
        """Sorts on a click on a title."""
        if event.y:
            super().on_click(event)
        elif self.texts is not None and (key := self.texts.key_at(event.x)) is not None:
            self.post_message(self.Headed(key))

    def opens(self, index: int, chain: int) -> bool:
        """Whether a click opens the row: a second click, on a group once more after the cursor was there."""
        return index == self.cursor and (chain == 2 or self.row < 0)


def _start(selection: Selection) -> int:
    """The first node that has a row of its own, where those in front are folded."""
    first = selection.rows[0] if len(selection) else 0
    return selection.groups.ends[~first] if first < 0 and selection.groups is not None else 0
