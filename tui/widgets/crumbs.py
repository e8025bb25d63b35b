"""The first line of a screen: the rooms with their state, where we are, and on the right what runs and what failed.
Knows no run and no job.

For example:

    crumbs.rooms, crumbs.parts = [("home", ""), ("graph", "")], ["myrun/0_0/forward"]
    crumbs.badges = ["2 running", "1 error: E"]
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.reactive import reactive
from textual.widget import Widget

from ...dumps.tables import cut
from .trouble import escaped

SMALLEST = (60, 20)
"""Columns and lines from which on everything has room."""
NAMED = 76
"""Columns from which on every room has its name; below, only the one that is seen."""


class Crumbs(Widget):
    """One line; a path that is too long loses its beginning, for its end says more."""

    can_focus = False

    DEFAULT_CSS = """
    Crumbs {
        dock: top; height: 1; background: $panel; color: $text; padding: 0 1;
        link-style: none; link-color: $text; link-style-hover: bold; link-background-hover: $panel;
    }
    """

    rooms: reactive[Sequence[tuple[str, str]]] = reactive(())
    """Name and state of each room, in the order of their keys."""
    seen: reactive[str] = reactive("")
    parts: reactive[Sequence[str]] = reactive(())
    badges: reactive[Sequence[str]] = reactive(())

    def render(self) -> Text:
        """The line for the width there is."""
        width = self.size.width
        badges = " · ".join(self.badges)
        columns, lines = self.app.size
        if columns < SMALLEST[0] or lines < SMALLEST[1]:
            badges = f"{columns}×{lines}: some does not fit below {SMALLEST[0]}×{SMALLEST[1]}"
        line = self._strip(width >= NAMED) if columns >= SMALLEST[0] else Text(no_wrap=True, end="")
        room = max(0, width - line.cell_len - cell_len(badges) - 2 * bool(badges))
        left = cut(escaped(" › ".join(self.parts)), room, "start")
        line.append(left, "bold")
        if badges:
            line.append(" " * max(1, width - line.cell_len - cell_len(badges)))
            line.append(badges, "reverse")
        return line

    def _strip(self, named: bool) -> Text:
        line = Text(no_wrap=True, end="")
        for number, (name, state) in enumerate(self.rooms, start=1):
            seen = name == self.seen
            click = Style(meta={"@click": f"screen.act('app.{name}')"})
            label = " ".join(filter(None, (str(number), name.capitalize() if named or seen else "", state)))
            line.append(f"[{label}]" if seen else f" {label} ", Style(bold=seen) + click)
        line.append(" " if self.rooms else "")
        return line
