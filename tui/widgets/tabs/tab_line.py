"""The line above a page: which tabs there are and which one is seen, which of several things it shows. A click chooses.

>>> TabLine().show(["Detail", "Source"], 0, "model.py:12", "1/3")
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget


class TabLine(Widget):
    """One line."""

    can_focus = False
    COMPONENT_CLASSES = {"tab-line--now", "tab-line--title"}
    DEFAULT_CSS = """
    TabLine { height: 1; width: 1fr; background: $panel; color: $text-muted; }
    TabLine > .tab-line--now { background: $surface; color: $text-primary; text-style: bold underline; }
    TabLine > .tab-line--title { color: $foreground; }
    """

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._names: Sequence[str] = ()
        self._now, self._title, self._choice = 0, "", ""

    def show(self, names: Sequence[str], now: int, title: str = "", choice: str = "") -> None:
        """Shows these names with one of them open."""
        self._names, self._now, self._title, self._choice = names, now, title, choice
        self.refresh()

    def render(self) -> Text:
        """Names, the choice, and as much of the title as fits."""
        text = Text(no_wrap=True, end="")
        for number, name in enumerate(self._names):
            now = number == self._now
            text.append(f"[{name}]" if now else f" {name} ", self.get_component_rich_style("tab-line--now") if now else "")
        room = self.size.width - text.cell_len
        more = f" {self._choice} ," + "." if self._choice and "/" in self._choice else f" {self._choice}"
        shown = f"{more}  {self._title}" if self._choice else f"  {self._title}"
        if cell_len(shown) > room:
            shown = shown[: max(0, room - 1)] + "…" if room > len(more) else more
        text.append(shown[:room], self.get_component_rich_style("tab-line--title"))
        return text

    def on_click(self, event: events.Click) -> None:
        """The tab under the mouse."""
        at = 0
        for number, name in enumerate(self._names):
            at += cell_len(name) + 2
            if event.x < at:
                self.post_message(self.Chosen(number))
                return
