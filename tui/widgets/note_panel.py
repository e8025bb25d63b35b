"""Texts in a frame, hidden until there is something to read: why a graph exists, what a job said. Knows no screen."""

from __future__ import annotations

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...dumps.tables import plain


class Panel(VerticalScroll):
    """Hidden until something is written into it; esc closes it."""

    DEFAULT_CSS = """
    Panel { display: none; height: auto; max-height: 60%; border: round $primary; padding: 0 1; }
    Panel Static { height: auto; }
    """

    text = ""
    """What it says, or said last."""

    def compose(self):
        """One text."""
        yield Static(markup=False)

    @property
    def shown(self) -> bool:
        """Whether it is seen."""
        return self.display

    def write(self, title: str, below: str, text: str) -> None:
        """Shows a text, and on the frame its title and what can be done."""
        self.text, self.border_title, self.border_subtitle = text, Text(title), Text(below)
        self.query_one(Static).update(Text(text))
        self.display = True

    def hide(self) -> bool:
        """Closes it; whether it was open."""
        was, self.display = self.display, False
        return was


class NotePanel(Panel):
    """In front of a list."""

    title_text = ""

    def show(self, title: str, text: str) -> None:
        """Shows a text in place of an earlier one, and takes the keys."""
        self.tell(title, text)
        self.focus()

    def tell(self, title: str, text: str) -> None:
        """Another text, where it is read already."""
        self.title_text = title
        self.write(plain(title), "esc closes", "\n".join(plain(line) for line in text.splitlines()))
