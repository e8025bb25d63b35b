"""A list of any length with a cursor: only the lines that are seen are painted. Knows nothing of what it lists.

`paint(index, width)` gives the parts of one line, each with a style.

For example:

    rows = Rows(lambda index, width: [(names[index], "bold")])
    rows.show(len(names), cursor=3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from .virtual_list import VirtualList

Parts = Sequence[tuple[str, str]]


class Rows(VirtualList):
    """A list with one line per item."""

    COMPONENT_CLASSES = {"rows--cursor"}
    DEFAULT_CSS = """
    Rows { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    Rows > .rows--cursor { background: $primary 40%; color: $text; text-style: bold; }
    """

    def __init__(self, paint: Callable[[int, int], Parts], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paint = paint

    def show(self, count: int, cursor: int | None = None) -> None:
        """Takes a new list; the cursor stays where it is unless `cursor` is given."""
        before = self.cursor
        self.cursor = max(0, min(self.cursor if cursor is None else cursor, count - 1))
        self.resize_to(count)
        self.repaint_changed()
        if cursor is not None and self.cursor != before:
            self.call_after_refresh(self.to_cursor)

    def line(self, index: int) -> Strip:
        """One line of the list."""
        base, parts = self.rich_style, self._paint(index, self.size.width)
        if index == self.cursor:  # one style: colours of words are hard to read on it, and the words say the same
            base = base + self.get_component_rich_style("rows--cursor")
            parts = [("".join(text for text, _ in parts), "")]
        segments = [Segment(text, base + Style.parse(style) if style else base) for text, style in parts if text]
        strip, width = Strip(segments), self.size.width
        if strip.cell_length > width and strip.crop(width).text.strip():  # words are cut off, not spaces
            strip = Strip([*strip.crop(0, width - 1), Segment("…", base)])
        return strip.adjust_cell_length(width, base)
