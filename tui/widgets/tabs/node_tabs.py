"""The tabs of one node: asks `dumps/browse/about.py` for the sheet of the open tab, in a thread, and shows it when it comes.

Whoever moves the cursor calls `show_node` once it rests. An answer for a node that is no longer wanted is thrown away. Must not
read or compute anything in a key's handler, and must not know the table.

>>> tabs = NodeTabs(saved, view)
>>> tabs.show_node(57); tabs.choose("code"); tabs.more(1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.message import Message

from ....dumps.browse.about import CODE, DETAIL, NEAR, SOURCE, STAGES, About
from ....dumps.browse.boxes import ASCII
from ....dumps.browse.near import HOPS, MOST_HOPS
from ....dumps.browse.sheet import DIM, Sheet, Span, line
from ....dumps.browse.table import GraphView
from ...settings import ascii_only
from ...telling import Telling
from .colours import coloured
from .page import Page
from .tab_line import TabLine

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph

NAMES = {DETAIL: "Detail", SOURCE: "Source", CODE: "Code", STAGES: "IR", NEAR: "Near"}


class NodeTabs(Vertical):
    """`node` is the position of the node that is shown; None: none."""

    DEFAULT_CSS = "NodeTabs { height: 1fr; width: 1fr; }"
    BINDINGS = [
        Binding("plus,equals_sign", "hops(1)", "a hop more", show=False),
        Binding("minus", "hops(-1)", "a hop less", show=False),
    ]

    class Jump(Message):
        """To a node, of this graph or (`graph`: its id) of another one of the same run."""

        def __init__(self, node: str, graph: str = "") -> None:
            super().__init__()
            self.node, self.graph = node, graph

    def __init__(self, saved: SavedGraph, view: GraphView | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.saved = saved
        self._view = view
        self._about: About | None = None
        self.node: int | None = None
        self.tab = DETAIL
        self.kinds: Sequence[str] = tuple(NAMES)
        self.numbers = {SOURCE: 0, CODE: 0, NEAR: HOPS}
        """Which frame, which kernel, how many hops."""
        self.shown: tuple[str, int | None, int] = ("", None, 0)
        """Tab, node and number of the sheet that is seen."""

    def compose(self) -> ComposeResult:
        """The line of names and the page."""
        yield TabLine(id="tab-line")
        yield Page(self._colour, translate=ASCII if ascii_only() else None, id="page")

    def on_mount(self) -> None:
        """Shows what was asked for before it was mounted."""
        self._tell("")
        self._work(self._kinds, self._take_kinds, "tabs")
        self._ask()

    # -- what is shown

    @property
    def page(self) -> Page:
        """The sheet."""
        return self.query_one(Page)

    @property
    def sheet(self) -> Sheet:
        """What is seen."""
        return self.page.sheet

    def show_node(self, index: int | None) -> None:
        """Shows another node; None: none."""
        if index == self.node:
            return
        self.node = index
        self.numbers.update({SOURCE: 0, CODE: 0})
        if self.is_mounted:
            self._ask()

    def choose(self, tab: str) -> None:
        """Shows another tab."""
        if tab != self.tab and tab in self.kinds:
            self.tab = tab
            self._tell("")
            self._ask()

    def next_tab(self) -> None:
        """The tab to the right, after the last the first."""
        self._step(1)

    def previous_tab(self) -> None:
        """The tab to the left."""
        self._step(-1)

    def _step(self, by: int) -> None:
        self.choose(self.kinds[(self.kinds.index(self.tab) + by) % len(self.kinds)])

    def more(self, by: int) -> None:
        """The next frame or kernel; of the neighbourhood a hop more. Nothing on the other tabs."""
        if self.tab == NEAR:
            self.hops(by)
        elif self.tab in self.numbers:
            self.numbers[self.tab] += by
            self._ask()

    def hops(self, by: int) -> None:
        """A wider or narrower neighbourhood, which is shown then."""
        self.numbers[NEAR] = max(1, min(MOST_HOPS, self.numbers[NEAR] + by))
        if self.tab == NEAR:
            self._ask()
        else:
            self.choose(NEAR)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """+ and - are hops where the neighbourhood is seen; else they mean what they mean on the screen."""
        return self.tab == NEAR if action == "hops" else super().check_action(action, parameters)

    def action_hops(self, by: int) -> None:
        """One hop more or less."""
        self.hops(by)

    # -- asking and showing

    def about(self) -> About:
        """What is asked; in a thread."""
        if self._about is None:
            self._about = About(self.saved, self._view)
        return self._about

    def _kinds(self) -> Sequence[str]:
        about = self.about()
        with about.lock:
            return about.views

    def _take_kinds(self, kinds: Sequence[str]) -> None:
        self.kinds = kinds
        if self.tab not in kinds:
            self.choose(DETAIL)
        self._tell(self.sheet.title)

    def _ask(self) -> None:
        tab, node, number = wanted = self.tab, self.node, self.numbers.get(self.tab, 0)
        if node is None:
            self._show(wanted, Sheet("", [line(("no node", DIM))]))
            return
        self._work(lambda: self.about().sheet(tab, node, number), lambda sheet: self._show(wanted, sheet), NAMES[tab])

    def _show(self, wanted: tuple[str, int | None, int], sheet: Sheet) -> None:
        if wanted != (self.tab, self.node, self.numbers.get(self.tab, 0)):
            return  # asked for something else meanwhile
        stay = wanted[0] == self.shown[0] == CODE and sheet.top == self.sheet.top and sheet.lines is self.sheet.lines
        self.shown = wanted
        self._tell(sheet.title, sheet.choice)
        self.page.show(sheet, stay=stay)

    def _tell(self, title: str, choice: str = "") -> None:
        names = [NAMES[kind] for kind in self.kinds]
        self.query_one(TabLine).show(names, self.kinds.index(self.tab) if self.tab in self.kinds else 0, title, choice)

    def _work(self, function: Callable[[], object], then: Callable[..., object], doing: str) -> None:
        screen = self.screen
        assert isinstance(screen, Telling)

        def show(answer: object) -> None:
            if self.children:  # else taken down meanwhile
                then(answer)

        screen.work(function, show, group=f"tabs {doing}", doing=f"reading {doing}")

    def _colour(self, part: range, language: str, take: Callable[[Sequence[Text]], None]) -> None:
        lines = self.sheet.lines[part.start : part.stop]
        dark = self.app.current_theme.dark
        screen = self.screen
        assert isinstance(screen, Telling)
        screen.work(lambda: coloured(lines, language, dark=dark), take, doing="colouring")

    # -- messages of the parts

    def on_tab_line_chosen(self, event: TabLine.Chosen) -> None:
        """A tab was clicked."""
        event.stop()
        self.choose(self.kinds[event.number])

    def on_page_followed(self, event: Page.Followed) -> None:
        """A node was clicked."""
        event.stop()
        self.follow(event.span)

    def follow(self, span: Span) -> None:
        """Tells where to jump."""
        self.post_message(self.Jump(span.node, span.graph if span.graph != self.saved.id else ""))
