"""The home screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Static

from ..here import Here
from ..room import Room

if TYPE_CHECKING:
    from textual.app import ComposeResult


class HomeRoom(Room):
    """To be built."""

    ROOM = "home"
    TITLE_WORDS = "home"

    def __init__(self, here: Here, *, follow: bool = False) -> None:
        super().__init__(here)
        self.follow = follow

    def content(self) -> ComposeResult:
        """To be built."""
        yield Static("home", id="body")

    def equivalent(self) -> list[str]:
        """The words of `@`."""
        return ["ls", *self.crumbs()[-1:]]
