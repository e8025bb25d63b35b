"""The first line of a screen: where we are on the left, what runs and what failed on the right. Knows no run and no job.

>>> crumbs.parts, crumbs.badges = ["graph", "myrun/0_0/forward"], ["2 running", "1 error: E"]
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from .trouble import plain

SMALLEST = (60, 20)
"""Columns and lines from which on everything has its place."""


class Crumbs(Widget):
    """One line; what is too long loses its beginning, for the end of a path says more."""

    can_focus = False

    DEFAULT_CSS = "Crumbs { dock: top; height: 1; background: $panel; color: $text; padding: 0 1; text-style: bold; }"

    parts: reactive[Sequence[str]] = reactive(())
    badges: reactive[Sequence[str]] = reactive(())

    def render(self) -> Text:
        """The line for the width there is."""
        width = self.size.width
        badges = " · ".join(self.badges)
        columns, lines = self.app.size
        if columns < SMALLEST[0] or lines < SMALLEST[1]:
            badges = f"{columns}×{lines}: some does not fit below {SMALLEST[0]}×{SMALLEST[1]}"
        left = shortened(plain(" › ".join(self.parts)), max(0, width - cell_len(badges) - 2 * bool(badges)))
        line = Text(left, no_wrap=True, end="")
        if badges:
            line.append(" " * max(1, width - cell_len(left) - cell_len(badges)))
            line.append(badges, "reverse")
        return line


def shortened(text: str, width: int) -> str:
    """The end of a text, with a sign that its beginning is left out.

    >>> shortened("home › myrun/0_0/forward", 12)
    '…0_0/forward'
    """
    if cell_len(text) <= width:
        return text
    while text and cell_len(text) + 1 > width:
        text = text[1:]
    return "…" + text if width > 0 else ""
