"""A text in front of a list, to be read and closed: why a graph exists, what a job said. Knows no screen.

>>> panel.show("why myrun", text)
"""

from __future__ import annotations

from rich.text import Text
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...dumps.tables import plain


class NotePanel(VerticalScroll):
    """Hidden until there is something to read; esc closes it."""

    DEFAULT_CSS = """
    NotePanel { display: none; height: auto; max-height: 60%; border: round $primary; padding: 0 1; }
    NotePanel.shown { display: block; }
    NotePanel Static { height: auto; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.text = self.title_text = ""

    def compose(self):
        """One text."""
        yield Static(id="note-text", markup=False)

    def show(self, title: str, text: str) -> None:
        """Shows a text in place of an earlier one."""
        self.title_text = title
        self.border_title = Text(plain(title))
        self.border_subtitle = "esc closes"
        self.tell(text)
        self.add_class("shown")
        self.focus()

    def tell(self, text: str) -> None:
        """Another text under the same title."""
        self.text = "\n".join(plain(line) for line in text.splitlines())
        self.query_one("#note-text", Static).update(Text(self.text))

    def hide(self) -> bool:
        """Closes it; whether it was open."""
        was = self.has_class("shown")
        self.remove_class("shown")
        if was:
            self.screen.query_one("#rows").focus()
        return was
