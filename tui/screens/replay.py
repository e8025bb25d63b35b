"""The replay screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Static

from ..here import Here
from ..room import Room

if TYPE_CHECKING:
    from textual.app import ComposeResult


class ReplayRoom(Room):
    """To be built."""

    ROOM = "replay"
    TITLE_WORDS = "replay"

    def __init__(self, here: Here) -> None:
        super().__init__(here)


    def content(self) -> ComposeResult:
        """To be built."""
        yield Static("replay", id="body")

    def equivalent(self) -> list[str]:
        """The words of `@`."""
        return ["triage", *self.crumbs()[-1:]]
