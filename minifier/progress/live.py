"""The live view of a minification on a terminal: a panel with the nodes over the queries, drawn again four times a second.

Shows what `model.State` says and decides nothing. `render` is plain data to renderable, so that a test can record it.

>>> with LiveView(console, state) as view: view.take(event)
"""

from __future__ import annotations

from math import log
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...dumps.wording import counted
from ..events import Happening, Steered
from ..problem import Verdict
from .model import State, span

if TYPE_CHECKING:
    from rich.console import Console

HEIGHT = 6
BLOCKS = " ▁▂▃▄▅▆▇█"
MARKS = {
    Verdict.SAME: ("●", "green"), Verdict.PASS: ("·", "dim"), Verdict.OTHER: ("x", "yellow"),
    Verdict.INVALID: ("-", "dim"), Verdict.TIMEOUT: ("t", "red"), Verdict.INFRA: ("!", "red"),
}  # fmt: skip
"""Verdict -> the character and colour of a query under the graph."""
LABEL = 6


class LiveView:
    """Draws while the block runs; `say` prints a sentence above the panel."""

    def __init__(self, console: Console, state: State) -> None:
        self.console, self.state = console, state
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def take(self, event: Happening) -> None:
        """Takes in one event; it shows with the next drawing."""
        self.state.take(event)
        if isinstance(event, Steered):
            self.say(event.sentence)

    def say(self, text: str) -> None:
        """A sentence that stays."""
        self.console.print(Text(text))

    def _draw(self) -> Panel:
        return render(self.state, self.console.width)


def render(state: State, width: int) -> Panel:
    """The panel for a terminal of `width` columns."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", width=LABEL + 1)
    table.add_column(ratio=1)
    table.add_row("now", Text(state.doing()))
    if state.signature:
        table.add_row("failure", Text(state.signature, overflow="ellipsis", no_wrap=True))
    table.add_row("best", Text(state.size(), "bold green" if state.best else ""))
    table.add_row("asked", Text(state.counts()))
    table.add_row("time", _time(state))
    parts = [*_graph(state, width - 5 - LABEL), Text(), table] if state.nodes else [table]
    name = Text.assemble(("minify ", "bold"), state.graph or "", f" -> {state.out}" if state.out else "")
    return Panel(Group(*parts), title=name, title_align="left", subtitle=Text("Ctrl-C keeps the best", "dim"))


def _time(state: State) -> Text:
    text = span(state.seconds()) + (f" of {span(state.max_time)}" if state.max_time else "")
    if state.recent:
        text += f", {state.pace_s():.1f} s a query"
        text += f", about {span(max(1.0, state.left_s()))} left" if state.step != "sanity" else ""
    if state.known:
        text += f"; {counted(state.known, 'answer was', 'answers were')} known from before"
    return Text(text)


def _graph(state: State, width: int) -> list[Text]:
    """Nodes of the best case over the queries, on a logarithmic scale, and a mark for each verdict."""
    points = state.points[-max(10, width) :]
    sizes = [best for _, best, _ in points]
    most = max([state.nodes, *sizes, 2])
    rows: list[Text] = []
    for row in reversed(range(HEIGHT)):
        label = {HEIGHT - 1: str(most), HEIGHT // 2: str(_at(row, most)), 0: "1"}.get(row, "")
        line = Text(f"{label:>{LABEL}} ", "dim")
        for size in sizes:
            level = log(max(1, size)) / log(most) * HEIGHT * 8 if size else 0.0
            line.append(BLOCKS[int(min(8, max(0, round(level) - 8 * row)))], "cyan")
        rows.append(line)
    marks = Text(f"{'nodes':>{LABEL}} ", "dim")
    for _, _, verdict in points:
        marks.append(*MARKS[verdict])
    return [*rows, marks]


def _at(row: int, most: int) -> int:
    """The size that the middle of a row stands for."""
    return max(1, round(most ** ((row + 0.5) / HEIGHT)))
