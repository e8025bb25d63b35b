"""A list of any length with a cursor, of which only the lines that are seen are painted. Knows nothing of what it
lists.

A subclass says in `line` how one line looks. A move of the cursor paints the line it left and the one it came to.

"""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip


def _cells(strip: Strip) -> list[tuple[str, Any]]:
    """A strip cell by cell; the second cell of a wide letter is empty."""
    letters = ((letter, style) for text, style, _ in strip for letter in text)
    return [(cell, style) for letter, style in letters for cell in (letter, *[""] * (cell_len(letter) - 1))]


class VirtualList(ScrollView, can_focus=True, inherit_bindings=False):
    """A list of `count` lines; `cursor` is the chosen one, below 0 where none can be chosen: then a move scrolls."""

    count = 0
    cursor = 0
    head = 0
    """Lines of the widget above the list, which stay where they are."""
    first = 0
    """Lines of the list before this one are headings, which the cursor passes over."""
    chooses = True

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, rows: VirtualList, index: int) -> None:
            super().__init__()
            self.rows, self.index = rows, index

    class Opened(Moved):
        """A line was clicked twice."""

    def __init__(self, *children: Any, **more: Any) -> None:
        super().__init__(*children, **more)
        self._widest = 1
        self._painted: dict[int, Strip] = {}
        """What was painted last, by the row of the screen."""

    # -- what a subclass says

    def line(self, index: int) -> Strip:
        """One line as it is seen."""
        raise NotImplementedError

    def opens(self, index: int, chain: int) -> bool:
        """Whether a click opens a line, and does not merely put the cursor there."""
        return chain == 2

    # -- what is common

    def resize_to(self, count: int, width: int = 1) -> None:
        """Takes how many lines there are, and how wide the widest is."""
        self.count, self._widest = count, width
        self._fit()

    def _fit(self) -> None:
        """Sets the size to scroll in, without painting everything where only the scrollbar moves."""
        size = Size(self._widest, self.count + self.head)
        new, old = (
            Size(max(extent.width, self.size.width), max(extent.height, self.size.height))
            for extent in (size, self.virtual_size)
        )
        if new == old:
            return
        if new.width == old.width and min(new.height, old.height) > self.size.height > 0:  # only the scrollbar moves
            self.set_reactive(VirtualList.virtual_size, size)  # type: ignore[arg-type]
            self._scroll_update(size)
        else:
            self.virtual_size = size

    def on_resize(self) -> None:
        """Fits the list to the new size."""
        self._fit()

    @property
    def page(self) -> int:
        """How many lines a page moves: those in sight, less one."""
        return max(1, self.size.height - self.head - 1)

    def go(self, where: str) -> None:
        """Moves as a key asks: down, up, page_down, page_up, top, end."""
        page, all_of_it = self.page, self.count
        far = {"down": 1, "up": -1, "page_down": page, "page_up": -page, "top": -all_of_it, "end": all_of_it}
        self.move(far[where])

    def move(self, by: int) -> None:
        """Moves the cursor; where there is none, scrolls."""
        if self.chooses:
            self.move_to(self.cursor + by)
        else:
            self.scroll_to(y=self.scroll_offset.y + by, animate=False)

    def move_to(self, index: int, *, margin: int = 0) -> None:
        """Moves the cursor to a line, or the nearest there is, with some lines around it in sight."""
        index = max(self.first, min(index, self.count - 1))
        if index == self.cursor or not self.chooses or self.count <= self.first:
            return
        old, self.cursor = self.cursor, index
        self.repaint(old, index, margin)
        self.post_message(self.Moved(self, index))

    def repaint(self, old: int, new: int, margin: int) -> None:
        """Paints what a move of the cursor changes."""
        self.refresh_line(old + self.head)
        self.refresh_line(new + self.head)
        self.to_cursor(margin)

    def to_cursor(self, margin: int = 0) -> None:
        """Scrolls until the cursor is in sight; after a far move, with lines around it."""
        top, height = round(self.scroll_target_y), max(1, self.size.height - self.head)
        margin = min(margin, (height - 1) // 2)
        if top + margin + bool(self.first) <= self.cursor < top + height - margin:
            return
        if not top - height <= self.cursor < top + 2 * height:
            self.center()
            return
        y = self.cursor - margin if self.cursor < top + margin + bool(self.first) else self.cursor - height + 1 + margin
        self.scroll_to(y=0 if self.cursor == self.first else max(0, y), animate=False, force=True)

    def center(self) -> None:
        """Scrolls until the cursor has lines around it."""
        height = max(1, self.size.height - self.head)
        self.scroll_to(y=max(0, self.cursor - height // 3), animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        self._painted[y] = strip = self._row(y)
        return strip

    def _row(self, y: int) -> Strip:
        index = y + self.scroll_offset.y
        return self.line(index) if 0 <= index < self.count else Strip.blank(self.size.width, self.rich_style)

    def repaint_changed(self) -> None:
        """Paints only the cells that have changed: on a slow line every byte is seen."""
        for y in range(self.size.height):
            old, new = self._painted.get(y), self._row(y)
            if old is None or old.cell_length != new.cell_length:
                self.refresh(Region(0, y, self.size.width, 1))
            elif old != new:
                before, after = _cells(old), _cells(new)
                changed = [x for x, (cell, other) in enumerate(zip(before, after, strict=False)) if cell != other]
                if changed or len(before) != len(after):
                    first, last = (changed[0], changed[-1]) if len(before) == len(after) else (0, self.size.width - 1)
                    self.refresh(Region(first, y, last - first + 1, 1))

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor on the clicked line; a second click opens it."""
        index = event.y - self.head + self.scroll_offset.y
        if self.chooses and self.first <= index < self.count:
            opens = self.opens(index, event.chain)
            self.move_to(index)
            if opens:
                self.post_message(self.Opened(self, index))
