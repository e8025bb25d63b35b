"""In place of a room that cannot be painted: the error as plain text. Needs nothing that could fail, too.

For example: `app.push_screen(Broken("this is a defect ...", "crash.txt", close_room))`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static


class Broken(Screen[None]):
    """One text; esc leaves it: the room is closed, and Home shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,1", "home", show=False),
        Binding("q", "app.quit", show=False),
    ]

    def __init__(self, text: str, place: str, leave: Callable[[], object]) -> None:
        super().__init__()
        self.text, self.place, self.leave = text, place, leave

    def compose(self) -> ComposeResult:
        """The text."""
        last = self.text.rstrip().rsplit("\n", 1)[-1]
        keys = f"esc closes it and shows Home · q leaves · the text is also in {self.place}"
        head = f"This screen cannot be painted: {last}\n\n{keys}"
        with VerticalScroll():
            yield Static(Text(f"{head}\n\n{self.text}"))

    def action_home(self) -> None:
        """Closes the room that cannot be painted."""
        self.leave()
