"""The tabs of one node: asks `dumps/browse/about.py` for the sheet of the open tab, in a thread, and shows it when it
comes.

Whoever moves the cursor calls `show_node` once it rests. An answer for a node that is no longer wanted is thrown away.
A key's handler reads and computes nothing; the table is unknown here.

For example:

    tabs = NodeTabs(saved, view)
    tabs.show_node(57); tabs.choose("code"); tabs.more(1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical

from .....dumps.browse.about import CODE, DETAIL, NEAR, SOURCE, STAGES, About
from .....dumps.browse.near import ASCII, HOPS, MOST_HOPS
from .....dumps.browse.sheet import DIM, Sheet, line
from .....dumps.browse.table import GraphView
from ....base_screen import BaseScreen
from ....settings import ascii_only, mark
from .page import Page, coloured

if TYPE_CHECKING:
    from .....dumps.store import SavedGraph


from collections.abc import Mapping

from rich.cells import cell_len
from rich.style import Style
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


NAMES = {DETAIL: "Detail", SOURCE: "Source", CODE: "Code", STAGES: "IR", NEAR: "Near"}


class NodeTabs(Vertical):
    """The tabs of one node; `node` is the position of the node that is shown, or None."""

    DEFAULT_CSS = "NodeTabs { height: 1fr; width: 1fr; }"
    BINDINGS = [
        Binding("plus,equals_sign", "hops(1)", "a hop more", show=False),
        Binding("minus", "hops(-1)", "a hop less", show=False),
    ]

    page = getters.query_one(Page)

    def __init__(self, saved: SavedGraph, view: GraphView | None) -> None:
        super().__init__()
        self.saved = saved
        self._view = view
        self.node: int | None = None
        self.tab = DETAIL
        self.kinds: Sequence[str] = tuple(NAMES)
        self.numbers = {SOURCE: 0, CODE: 0, NEAR: HOPS}
        """Which frame, which kernel, and how many hops are shown."""
        self.notes_of: Callable[[int, bool], list[str]] = lambda node, source: []
        """The findings of jobs at a node; with the other argument, at its source line."""
        self.shown: tuple[str, int | None, int] = ("", None, 0)
        """Tab, node and number of the sheet that is shown."""

    def compose(self) -> ComposeResult:
        """The line of names and the page."""
        yield TabLine()
        yield Page(self._colour, ASCII if ascii_only() else None)

    def on_mount(self) -> None:
        """Shows what was asked for before it was mounted."""
        self._show_title("")
        self._work(self._kinds, self._take_kinds, "tabs")
        self._ask()

    # -- what is shown

    @property
    def sheet(self) -> Sheet:
        """The sheet that is shown."""
        return self.page.sheet

    def show_node(self, index: int | None) -> None:
        """Shows another node; None: none."""
        if index == self.node:
            return
        self.node = index
        self.numbers.update({SOURCE: 0, CODE: 0})
        if self.is_mounted:
            self._ask()

    def again(self) -> None:
        """Shows the same sheet again after new findings."""
        if self.is_mounted:
            self._ask()

    def choose(self, tab: str) -> None:
        """Shows another tab."""
        if tab != self.tab and tab in self.kinds:
            self.tab = tab
            self._show_title("")
            self._ask()

    def step(self, by: int) -> None:
        """Moves so many tabs to the right, after the last to the first."""
        self.choose(self.kinds[(self.kinds.index(self.tab) + by) % len(self.kinds)])

    def more(self, by: int) -> None:
        """Shows the next frame or kernel, or one hop more; does nothing on the other tabs."""
        if self.tab == NEAR:
            self.action_hops(by)
        elif self.tab in self.numbers:
            self.numbers[self.tab] += by
            self._ask()

    def action_hops(self, by: int) -> None:
        """Shows a wider or narrower neighbourhood."""
        self.numbers[NEAR] = max(1, min(MOST_HOPS, self.numbers[NEAR] + by))
        if self.tab == NEAR:
            self._ask()
        else:
            self.choose(NEAR)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Lets + and - change the hops where the neighbourhood is shown; elsewhere they keep their meaning on the
        screen."""
        return self.tab == NEAR if action == "hops" else super().check_action(action, parameters)

    # -- asking and showing

    @cached_property
    def about(self) -> About:
        """The views that are asked, in a thread."""
        return About(self.saved, self._view)

    def _kinds(self) -> Sequence[str]:
        with self.about.lock:
            return self.about.views

    def _take_kinds(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        if self.tab not in kinds:
            self.choose(DETAIL)
        self._show_title(self.sheet.title)

    def _ask(self) -> None:
        tab, node, number = wanted = self.tab, self.node, self.numbers.get(self.tab, 0)
        if node is None:
            self._show(wanted, Sheet("", [line(("no node", DIM))]))
            return
        self._work(lambda: self.about.sheet(tab, node, number), lambda sheet: self._show(wanted, sheet), NAMES[tab])

    def _show(self, wanted: tuple[str, int | None, int], sheet: Sheet) -> None:
        if wanted != (self.tab, self.node, self.numbers.get(self.tab, 0)):
            return  # asked for something else meanwhile
        stay = wanted[0] == self.shown[0] == CODE and sheet.top == self.sheet.top and sheet.lines is self.sheet.lines
        self.shown = wanted
        if wanted[1] is not None and (texts := self.notes_of(wanted[1], wanted[0] == SOURCE)):
            sheet = replace(sheet, notes=[*(f"{mark('bad')} {text}" for text in texts), *sheet.notes])
        self._show_title(sheet.title, sheet.choice)
        self.page.show(sheet, stay=stay)

    def _show_title(self, title: str, choice: str = "") -> None:
        now = self.tab if self.tab in self.kinds else self.kinds[0]
        self.query_one(TabLine).show({kind: NAMES[kind] for kind in self.kinds}, now, title, choice)

    @property
    def _screen(self) -> BaseScreen[Any]:
        return cast("BaseScreen[Any]", self.screen)

    def _work(self, function: Callable[[], object], then: Callable[..., object], doing: str) -> None:
        def show(answer: object) -> None:
            if self.children:  # else taken down meanwhile
                then(answer)

        self._screen.work(function, show, group=f"tabs {doing}", doing=f"reading {doing}")

    def _colour(self, part: range, language: str, take: Callable[[Sequence[Text]], None]) -> None:
        lines = self.sheet.lines[part.start : part.stop]
        dark = self.app.current_theme.dark
        self._screen.work(lambda: coloured(lines, language, dark=dark), take, doing="colouring")
