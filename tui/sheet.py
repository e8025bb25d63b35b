"""Small screens in front of a room: help, the command line, questions. Each knows what it shows and nothing of the room
behind.

For example:

    app.push_screen(Choose("2 jobs are running.", {"b": "leave them running", "s": "stop them"}), answer)
    app.push_screen(Ask("go to", hint="a name or a number", check=lambda text: "" if text else "type one"), go)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from .base_screen import BaseScreen
from .widgets.trouble import ErrorPanel

R = TypeVar("R")
LOOK_S = 0.25
"""How often a question checks whether it still holds."""


class SheetScreen(BaseScreen[R], ModalScreen[R]):
    """A sheet in front of a room; esc closes it."""

    AUTO_FOCUS = "*"
    BINDINGS: ClassVar[list[BindingType]] = [*BaseScreen.PANEL_KEYS, Binding("escape", "leave", "close", show=False)]
    DEFAULT_CSS = """
    SheetScreen { align: center middle; background: $background 60%; }
    SheetScreen > #sheet {
        width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $primary; padding: 0 1;
        background: $surface;
    }
    SheetScreen > #sheet Static { height: auto; }
    """

    def __init__(self, heading: str, below: str = "esc close") -> None:
        super().__init__()
        self.heading, self.below = heading, below

    def inside(self) -> ComposeResult:
        """The widgets in the frame."""
        raise NotImplementedError

    def answer(self) -> R | None:
        """The answer of esc."""

    def compose(self) -> ComposeResult:
        """The frame, and the panel of errors."""
        with Vertical(id="sheet") as frame:
            frame.border_title, frame.border_subtitle = Text(self.heading), Text(self.below)
            yield from self.inside()
        yield ErrorPanel()

    def action_leave(self) -> None:
        """Closes the panel of errors, else the sheet."""
        if self.panel is None or not self.panel.hide():
            self.dismiss(self.answer())


class Choose(SheetScreen[str]):
    """A question that is answered with one key; the answer is the key, None for esc.

    `moot`: once it returns true there is nothing left to ask, and the first answer holds.
    """

    def __init__(self, question: str, answers: Mapping[str, str], moot: Callable[[], bool] = lambda: False) -> None:
        super().__init__("choose")
        self.question, self.answers, self.moot = question, answers, moot

    def inside(self) -> ComposeResult:
        """The question, then the keys."""
        text = Text(self.question + "\n\n")
        for key, meaning in {**self.answers, "esc": "cancel"}.items():
            text.append(f"{key:>5} ", "bold")
            text.append(meaning + "\n")
        yield Static(text)

    def on_mount(self) -> None:
        """Checks now and then whether the question still holds."""
        self.set_interval(LOOK_S, self._look)

    def _look(self) -> None:
        if self.is_current and self.moot():
            self.dismiss(next(iter(self.answers)))

    def on_key(self, event: events.Key) -> None:
        """Answers with the key."""
        if event.key in self.answers:
            event.stop()
            self.dismiss(event.key)


class Ask(SheetScreen[str]):
    """A line to type; the answer is the text, None for esc. `check` gives a sentence where the text is not
    acceptable."""

    def __init__(
        self, title: str, *, hint: str = "", value: str = "", check: Callable[[str], str] = lambda text: ""
    ) -> None:
        super().__init__(title, "enter · esc close")
        self.hint, self.value, self.check = hint, value, check

    def inside(self) -> ComposeResult:
        """The line, and below it what is wrong with it."""
        yield Input(self.value, placeholder=self.hint, select_on_focus=False)
        yield Static(id="why", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Shows at once what is wrong."""
        self.query_one("#why", Static).update(self.check(event.value) if event.value else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answers where the text is acceptable."""
        wrong = self.check(event.value)
        self.query_one("#why", Static).update(wrong)
        if not wrong:
            self.dismiss(event.value)
