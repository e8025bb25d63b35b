"""The diff screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Static

from ..here import Here
from ..room import Room

if TYPE_CHECKING:
    from textual.app import ComposeResult


class DiffRoom(Room):
    """To be built."""

    ROOM = "diff"
    TITLE_WORDS = "diff"

    def __init__(self, here: Here) -> None:
        super().__init__(here)


    def content(self) -> ComposeResult:
        """To be built."""
        yield Static("diff", id="body")

    def equivalent(self) -> list[str]:
        """The words of `@`."""
        return ["diff", *self.crumbs()[-1:]]
