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
    """The text that it shows, or showed last."""

    def compose(self):
        """One text widget."""
        yield Static(markup=False)

    @property
    def shown(self) -> bool:
        """Whether it is visible."""
        return self.display

    def write(self, title: str, below: str, text: str) -> None:
        """Shows a text, and on the frame its title and its keys."""
        self.text, self.border_title, self.border_subtitle = text, Text(title), Text(below)
        self.query_one(Static).update(Text(text))
        self.display = True

    def hide(self) -> bool:
        """Closes it; returns whether it was open."""
        was, self.display = self.display, False
        return was


class NotePanel(Panel):
    """A panel in front of a list."""

    title_text = ""

    def show(self, title: str, text: str) -> None:
        """Shows a text in place of an earlier one, and takes the keys."""
        self.put(title, text)
        self.focus()

    def put(self, title: str, text: str) -> None:
        """Replaces the text, which is being read already."""
        self.title_text = title
        self.write(plain(title), "esc closes", "\n".join(plain(line) for line in text.splitlines()))
