"""The lines under the node table: one that says what is shown, and the one that is typed into with its note. No logic.

For example:

    line.show("312 of 100,018", "3/17, wrapped")
    prompt.open("filter", "op:mm", FILTER_HELP)
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.containers import Vertical
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from ....dumps.tables import plain


class StatusLine(Widget):
    """One line: how many rows on the left, the last finding or message on the right."""

    can_focus = False
    DEFAULT_CSS = "StatusLine { height: 1; background: $boost; color: $text; padding: 0 1; }"

    left: reactive[str] = reactive("")
    right: reactive[str] = reactive("")
    alarm: reactive[bool] = reactive(False)

    def show(self, left: str | None = None, right: str | None = None, *, alarm: bool = False) -> None:
        """Sets what it shows; None leaves that side unchanged."""
        self.left = self.left if left is None else plain(left)
        self.right = self.right if right is None else plain(right)
        self.alarm = alarm

    def render(self) -> Text:
        """The line for the available width; the right side is dropped first."""
        width = self.size.width
        line = Text(self.left, no_wrap=True, end="", overflow="ellipsis")
        room = width - cell_len(self.left) - 2
        if self.right and room >= 8:
            right = Text(
                self.right, "bold reverse" if self.alarm else "bold", no_wrap=True, end="", overflow="ellipsis"
            )
            right.truncate(room, overflow="ellipsis")
            line.append(" " * max(2, width - cell_len(self.left) - right.cell_len))
            line.append_text(right)
        return line


class PromptInput(Input):
    """An input in which up and down walk through earlier texts."""

    def __init__(self) -> None:
        super().__init__(compact=True, select_on_focus=False)
        self.history: list[str] = []
        self._at = 0

    def begin(self, history: list[str]) -> None:
        """Takes the history of the present question."""
        self.history, self._at = history, len(history)

    def on_key(self, event: events.Key) -> None:
        """Handles up and down."""
        if event.key in ("up", "down") and self.history:
            event.stop()
            self._at = max(0, min(self._at + (-1 if event.key == "up" else 1), len(self.history)))
            self.value = self.history[self._at] if self._at < len(self.history) else ""
            self.cursor_position = len(self.value)


class Prompt(Vertical):
    """A line to type into, with a note under it; hidden until it is opened."""

    DEFAULT_CSS = """
    Prompt { display: none; height: 2; }
    Prompt Static { height: 1; padding: 0 1; color: $text-muted; background: $boost; }
    Prompt PromptInput { height: 1; border: none !important; padding: 0 1 !important; background: $boost; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.purpose = ""
        self.histories: dict[str, list[str]] = {}
        self.input = PromptInput()
        self.note = Static(markup=False)
        """Help, or carets under what is wrong and why."""
        self.help = ""

    def compose(self):
        """The line and its note."""
        yield self.input
        yield self.note

    @property
    def is_open(self) -> bool:
        """Whether something is being typed now."""
        return bool(self.purpose)

    def open(self, purpose: str, text: str, help: str) -> None:
        """Asks for a text."""
        self.purpose, self.help = purpose, help
        self.input.begin(self.histories.setdefault(purpose, []))
        with self.input.prevent(Input.Changed):
            self.input.value = text
        self.input.cursor_position = len(text)
        self.say()
        self.display = True
        self.input.focus()

    def close(self) -> None:
        """Closes the line."""
        typed = self.input.value.strip()
        history = self.histories.setdefault(self.purpose, [])
        if typed and typed not in history[-1:]:
            history.append(typed)
        self.purpose = ""
        self.display = False

    def say(self, text: str = "", start: int = -1, end: int = -1) -> None:
        """Shows what is wrong, with carets below it; with nothing wrong, the help."""
        if start >= 0:
            said = Text(" " * start + "^" * max(1, end - start) + " " + plain(text), "bold", no_wrap=True)
        else:
            said = Text(plain(text) or self.help, no_wrap=True)
        self.note.update(said, layout=False)
