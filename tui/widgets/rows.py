"""A list of any length with a cursor: only the lines that are seen are painted. Knows nothing of what it lists.

`paint(index, width)` gives the parts of one line, each with a style; a move of the cursor paints two lines.

>>> rows = Rows(lambda index, width: [(names[index], "bold")])
>>> rows.show(len(names), cursor=3)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

Parts = Sequence[tuple[str, str]]


class Rows(ScrollView, can_focus=True, inherit_bindings=False):
    """One line per item."""

    COMPONENT_CLASSES = {"rows--cursor"}
    DEFAULT_CSS = """
    Rows { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    Rows > .rows--cursor { background: $primary 40%; color: $text; text-style: bold; }
    """

    class Moved(Message):
        """The cursor is on another item."""

        def __init__(self, rows: Rows, index: int) -> None:
            super().__init__()
            self.rows, self.index = rows, index

    class Opened(Message):
        """An item was clicked twice."""

        def __init__(self, rows: Rows, index: int) -> None:
            super().__init__()
            self.rows, self.index = rows, index

    def __init__(self, paint: Callable[[int, int], Parts], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._paint = paint
        self.count = 0
        self.cursor = 0

    def show(self, count: int, cursor: int | None = None) -> None:
        """Takes a new list; the cursor stays where it is unless told."""
        self.count = count
        before = self.cursor
        self.cursor = max(0, min(self.cursor if cursor is None else cursor, count - 1))
        size = Size(1, count)
        if size != self.virtual_size:
            self.virtual_size = size
        self.refresh()
        if cursor is not None and self.cursor != before:
            self.call_after_refresh(self._to_cursor)

    def move_to(self, index: int, *, margin: int = 0) -> bool:
        """Moves the cursor to an item, or the nearest there is, with so many lines around it seen; whether it moved."""
        index = max(0, min(index, self.count - 1))
        if index == self.cursor or not self.count:
            return False
        old, self.cursor = self.cursor, index
        self.refresh_lines(old)
        self.refresh_lines(index)
        self._to_cursor(margin)
        self.post_message(self.Moved(self, index))
        return True

    def move(self, by: int) -> bool:
        """Moves the cursor by so many items."""
        return self.move_to(self.cursor + by)

    @property
    def page(self) -> int:
        """So many items are seen at once."""
        return max(1, self.size.height - 1)

    def refresh_visible(self) -> None:
        """Paints again what is seen, where the items themselves changed."""
        self.refresh()

    def _to_cursor(self, margin: int = 0) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        margin = min(margin, (height - 1) // 2)
        if top + margin <= self.cursor < top + height - margin:
            return
        far = not top - height <= self.cursor < top + 2 * height
        above = self.cursor < top + margin
        y = self.cursor - height // 3 if far else self.cursor - margin if above else self.cursor - height + 1 + margin
        self.scroll_to(y=max(0, y), animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        index, width = y + self.scroll_offset.y, self.size.width
        base = self.rich_style
        if index >= self.count:
            return Strip.blank(width, base)
        if index == self.cursor:
            base = base + self.get_component_rich_style("rows--cursor")
        parts = self._paint(index, width)
        if index == self.cursor:  # one style: colours of words are hard to read on it, and the words say the same
            parts = [("".join(text for text, _ in parts), "")]
        segments = [Segment(text, base + style_of(style) if style else base) for text, style in parts if text]
        return Strip(segments).adjust_cell_length(width, base)

    def on_click(self, event: events.Click) -> None:
        """A click puts the cursor there, a second one opens."""
        index = event.y + self.scroll_offset.y
        if index < self.count:
            self.move_to(index)
            if event.chain == 2:
                self.post_message(self.Opened(self, index))


@cache
def style_of(text: str) -> Style:
    """A style by its words, parsed once."""
    return Style.parse(text)
