"""The tabs of one node: asks `dumps/browse/about.py` for the sheet of the open tab, in a thread, and shows it when it
comes.

Also: one sheet on the screen: only the lines that are seen are made and painted; nodes in it can be clicked.

Whoever moves the cursor calls `show_node` once it rests. An answer for a node that is no longer wanted is thrown away.
A key's handler reads and computes nothing; the table is unknown here.

For example:

    tabs = NodeTabs(saved, view)
    tabs.show_node(57); tabs.choose("code"); tabs.more(1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget

from .....dumps.browse.about import CODE, DETAIL, NEAR, SOURCE, STAGES, About
from .....dumps.browse.near import ASCII, HOPS, MOST_HOPS
from .....dumps.browse.sheet import BAD, DIM, HERE, LINK, TITLE, Line, Sheet, Span, line, line_text, plain_code
from .....dumps.browse.table import GraphView
from .....dumps.store import SavedGraph
from ....base_screen import BaseScreen
from ....settings import ascii_only, mark
from ....widgets.texts import highlighted
from ....widgets.virtual_list import VirtualList

PIECE = 100
"""Lines that are coloured at once."""
LONGEST = 400
"""Characters of a line that are coloured; generated calls can be much longer."""


def pieces(sheet: Sheet, first: int, last: int) -> list[tuple[range, str]]:
    """The pieces of a sheet that are in sight, each in one language."""
    pieces_in_sight: list[tuple[range, str]] = []
    for start in range(first // PIECE * PIECE, last, PIECE):
        end = min(start + PIECE, len(sheet.lines))
        edges = {at for part, _ in sheet.inside for at in (part.start, part.stop) if start < at < end}
        for low, high in pairwise(sorted({start, end, *edges})):
            language = next((name for part, name in sheet.inside if low in part), sheet.language)
            pieces_in_sight.append((range(low, high), language))
    return pieces_in_sight


def coloured(lines: Sequence[object], language: str, *, dark: bool) -> list[Text]:
    """The lines with colours; unchanged where there is no lexer of that name."""
    texts = [plain_code(line_text(line)) for line in lines]  # type: ignore[arg-type]
    shown = highlighted([text[:LONGEST] for text in texts], language, dark=dark)
    for text, whole in zip(shown, texts, strict=False):
        text.append(whole[LONGEST:])
    return shown


KINDS = (TITLE, DIM, LINK, BAD, HERE)
MARK = "▸"
_SET_IN = 9
_ABOVE = 5
"""Lines in sight above the first one to look at."""


class Page(VirtualList):
    """A sheet on the screen. `colour(range, language, take)` is asked for the colours of lines and passes them to
    `take`."""

    chooses = False
    auto_links = Reactive(False)
    COMPONENT_CLASSES = {*(f"page--{kind}" for kind in KINDS), "page--marked", "page--number"}
    BINDINGS = [
        Binding("down,j", "scroll_down", "down", show=False),
        Binding("up,k", "scroll_up", "up", show=False),
        Binding("right,l", "scroll_right", "right", show=False),
        Binding("left,h", "scroll_left", "left", show=False),
        Binding("pagedown,ctrl+d,space", "page_down", "page down", show=False),
        Binding("pageup,ctrl+u", "page_up", "page up", show=False),
        Binding("home,g", "scroll_home", "top", show=False),
        Binding("end,G", "scroll_end", "end", show=False),
        Binding("ctrl+pageup", "page_left", "page left", show=False),
        Binding("ctrl+pagedown", "page_right", "page right", show=False),
    ]
    DEFAULT_CSS = """
    Page { height: 1fr; width: 1fr; background: $surface; color: $foreground; }
    Page { scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
    Page > .page--title { text-style: bold; }
    Page > .page--here { color: $text-accent; text-style: bold; }
    Page > .page--dim { color: $foreground 65%; }
    Page > .page--link { color: $text-primary; text-style: underline; }
    Page > .page--bad { color: $text-error; text-style: bold; }
    Page > .page--number { color: $foreground 45%; }
    Page > .page--marked { background: $primary 25%; }
    """

    def __init__(
        self, colour: Callable[[range, str, Callable[[Sequence[Text]], None]], None], translate: dict[int, str] | None
    ) -> None:
        super().__init__()
        self.sheet = Sheet("", [])
        self._colour = colour
        self._translate = translate
        self._rows: Sequence[tuple[int, Line | str]] = []
        self._strips: dict[int, Strip] = {}
        self._colours: dict[int, Text] = {}
        self._asked: set[int] = set()

    # -- what is shown

    def show(self, sheet: Sheet, *, stay: bool = False) -> None:
        """Shows a sheet from the line to look at; `stay`: from the place of the last sheet."""
        same_file = bool(sheet.language and sheet.lines is self.sheet.lines)
        self.sheet = sheet
        if not same_file:
            self._colours.clear()
            self._asked.clear()
        self._lay()
        if not stay:
            self.scroll_to(0, max(0, self._row_of(sheet.top) - self._above), animate=False, force=True)
        self.refresh()

    @property
    def _above(self) -> int:
        return min(_ABOVE, self.size.height // 3) + len(self._notes) if self.sheet.language else self.size.height // 3

    def _row_of(self, position: int) -> int:
        if self.sheet.language:
            return position + len(self.sheet.notes)
        return next((row for row, (at, _) in enumerate(self._rows) if at >= position), 0)

    def _lay(self) -> None:
        """Lays out notes, then the lines, which are wrapped where they are texts."""
        self._strips.clear()
        sheet = self.sheet
        notes: list[tuple[int, Line | str]] = [(-1, line((_note(note), BAD))) for note in sheet.notes]
        width = max(20, self.size.width - 1)
        if sheet.language:
            self._notes = [row for note in notes for row in broken(note, width)]
            self._rows = []
            longest = max((len(laid_line) for laid_line in sheet.lines[:5000]), default=0) + self._gutter
            self.resize_to(len(self._notes) + len(sheet.lines), min(longest, 400))
            return
        drawn = any(
            piece.text.strip()[:1] in ("┌", "╔")
            for laid_line in sheet.lines[:8]
            if isinstance(laid_line, tuple)
            for piece in laid_line
        )
        whole = [*notes, *enumerate(sheet.lines)]
        self._notes = []
        self._rows = whole if drawn else [row for laid_line in whole for row in broken(laid_line, width)]
        widest = max((cell_len(line_text(laid_line)) for _, laid_line in self._rows), default=0) if drawn else 1
        self.resize_to(len(self._rows), widest)

    _notes: Sequence[tuple[int, Line | str]] = ()

    @property
    def _gutter(self) -> int:
        return len(str(len(self.sheet.lines) + self.sheet.first)) + 3 if self.sheet.language else 0

    def on_resize(self) -> None:
        """Wraps the lines for the new size."""
        self._lay()
        self.refresh()

    def notify_style_update(self) -> None:
        """Takes the styles of another theme."""
        super().notify_style_update()
        self._strips.clear()
        self._colours.clear()
        self._asked.clear()

    # -- painting

    def style_of(self, kind: str) -> Style:
        """A style of the theme."""
        return self.get_component_rich_style(f"page--{kind}") if kind else self.rich_style

    def render_line(self, y: int) -> Strip:
        """Paints one line of the screen."""
        across, down = self.scroll_offset
        width = self.size.width
        row = y if y < len(self._notes) else y + down  # notes stay in sight
        if row >= self.count:
            return Strip.blank(width, self.style_of(""))
        strip = self._strips.get(row)
        if strip is None:
            strip = self._strips[row] = self._strip(row)
        across = 0 if row < len(self._notes) else across
        return strip.crop_extend(across, across + width, self.style_of("marked" if self._marked(row) else ""))

    def _marked(self, row: int) -> bool:
        return bool(self.sheet.language) and self.sheet.is_marked(row - len(self._notes))

    def _strip(self, row: int) -> Strip:
        if self.sheet.language and row >= len(self._notes):
            return self._code_strip(row - len(self._notes))
        line = self._notes[row][1] if self.sheet.language else self._rows[row][1]
        pieces = line if isinstance(line, tuple) else (Span(line),)
        return Strip([Segment(self._text(piece.text), self.style_of(piece.kind) + _leading(piece)) for piece in pieces])

    def _text(self, text: str) -> str:
        return text.translate(self._translate) if self._translate else text

    def _code_strip(self, position: int) -> Strip:
        marked = self.sheet.is_marked(position)
        over = Style(bgcolor=self.style_of("marked").bgcolor) if marked else Style.null()
        bad = any(map(found_bad, self.sheet.notes))
        sign = " " if not marked else mark("bad") if bad else ">" if self._translate else MARK
        number = f"{sign}{self.sheet.first + position:>{self._gutter - 3}}  "
        segments = [Segment(number, self.style_of("number") + over)]
        text = self._colours.get(position)
        base = self.style_of("") + over
        if text is None:
            self._ask(position)
            segments.append(Segment(plain_code(line_text(self.sheet.lines[position])), base))
        else:
            segments += [
                Segment(part, base + Style(color=style.color, bold=style.bold, italic=style.italic) if style else base)
                for part, style, _ in text.render(self.app.console, "")
            ]
        return Strip(segments)

    def _ask(self, position: int) -> None:
        """Asks for the colours around a line, once."""
        for part, language in pieces(self.sheet, position, position + 1):
            if part.start in self._asked:
                continue
            self._asked.add(part.start)
            sheet = self.sheet

            def take(texts: Sequence[Text], part: range = part, sheet: Sheet = sheet) -> None:
                if sheet.lines is not self.sheet.lines:
                    return
                for at, text in zip(part, texts, strict=False):
                    self._colours[at] = text
                    self._strips.pop(at + len(self._notes), None)
                self.refresh()

            self._colour(part, language, take)


def _note(note: str) -> str:
    return note if found_bad(note) else f"! {note}"


def found_bad(note: str) -> bool:
    """Whether a note reports a finding of a job, and not what the sheet lacks."""
    return note.startswith(f"{mark('bad')} ")


def _leading(piece: Span) -> Style:
    """The link of a piece to its node."""
    return Style(meta={"@click": ("screen.visit", (piece.graph, piece.node))}) if piece.node else Style.null()


def broken(row: tuple[int, Line | str], width: int) -> list[tuple[int, Line | str]]:
    """A line as several that fit, broken between words where possible; the pieces keep their kinds."""
    position, line = row
    if isinstance(line, str) or sum(cell_len(piece.text) for piece in line) <= width:
        return [row]
    pieces: list[tuple[int, Line | str]] = []
    now: list[Span] = []
    used = 0
    for piece in line:
        text = piece.text
        while text:
            room = width - used
            if cell_len(text) <= room:
                now.append(piece._replace(text=text))
                used += cell_len(text)
                break
            cut = text.rfind(" ", 1, room + 1)
            cut = cut if cut > 0 else (room if room > width // 2 or used <= _SET_IN else 0)
            if cut:
                now.append(piece._replace(text=text[:cut]))
                text = text[cut:].removeprefix(" ")
            pieces.append((position, tuple(now)))
            now, used = [Span(" " * _SET_IN)], _SET_IN
    if len(now) > 1 or not pieces:
        pieces.append((position, tuple(now)))
    return pieces


class TabLine(Widget):
    """The line with the names of the tabs, the choice and the title of the sheet."""

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
        self._work(lambda: self.about.locked(lambda: self.about.views), self._take_kinds, "tabs")
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
