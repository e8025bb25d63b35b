"""The line above a page: which tabs there are and which one is seen, which of several things it shows. A click chooses.

>>> TabLine().show({"detail": "Detail", "source": "Source"}, "source", "model.py:12", "1/3")
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.reactive import Reactive
from textual.widget import Widget


class TabLine(Widget):
    """One line."""

    can_focus = False
    auto_links = Reactive(False)
    COMPONENT_CLASSES = {"tab-line--now", "tab-line--title"}
    DEFAULT_CSS = """
    TabLine { height: 1; width: 1fr; background: $panel; color: $text-muted; }
    TabLine > .tab-line--now { background: $surface; color: $text-primary; text-style: bold underline; }
    TabLine > .tab-line--title { color: $foreground; }
    """

    _names: Mapping[str, str] = {}
    _now = _title = _choice = ""

    def show(self, names: Mapping[str, str], now: str, title: str = "", choice: str = "") -> None:
        """Shows these names of tabs, one of them open."""
        self._names, self._now, self._title, self._choice = names, now, title, choice
        self.refresh()

    def render(self) -> Text:
        """Names, the choice, and as much of the title as fits."""
        text = Text(no_wrap=True, end="")
        for tab, name in self._names.items():
            now = tab == self._now
            style = self.get_component_rich_style("tab-line--now") if now else Style.null()
            text.append(f"[{name}]" if now else f" {name} ", style + Style(meta={"@click": f"screen.tab({tab!r})"}))
        room = self.size.width - text.cell_len
        more = f" {self._choice} ," + "." if self._choice and "/" in self._choice else f" {self._choice}"
        shown = f"{more}  {self._title}" if self._choice else f"  {self._title}"
        if cell_len(shown) > room:
            shown = shown[: max(0, room - 1)] + "…" if room > len(more) else more
        text.append(shown[:room], self.get_component_rich_style("tab-line--title"))
        return text
