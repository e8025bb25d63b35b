"""Moving about in a list: the actions `list.*`, for every screen whose list is a `Rows`. Knows nothing of what is listed.

>>> class HomeRoom(ListMoves, Room): ...
"""

from __future__ import annotations

from .room import Room
from .widgets.rows import Rows


class ListMoves(Room):
    """A screen with one list that has the keys."""

    @property
    def rows(self) -> Rows:
        """The list."""
        return self.query_one("#rows", Rows)

    def on_screen_resume(self) -> None:
        """Back from another screen: the list has the keys."""
        super().on_screen_resume()
        if not self.typing:
            self.rows.focus()

    def moved_by_hand(self) -> None:
        """A key moved the cursor."""

    def _go(self, by: int) -> None:
        self.moved_by_hand()
        self.rows.move(by)

    def do_list_down(self) -> None:
        """One line down."""
        self._go(1)

    def do_list_up(self) -> None:
        """One line up."""
        self._go(-1)

    def do_list_page_down(self) -> None:
        """One page down."""
        self._go(self.rows.page)

    def do_list_page_up(self) -> None:
        """One page up."""
        self._go(-self.rows.page)

    def do_list_top(self) -> None:
        """To the first line."""
        self._go(-self.rows.count)

    def do_list_end(self) -> None:
        """To the last line."""
        self._go(self.rows.count)
