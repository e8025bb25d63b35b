"""The live view of a minification on a terminal: a panel with the nodes over the queries, drawn again four times a
second.

Shows what the story of the log says and decides nothing. `render` is plain data to renderable, so that a test can
record it.

For example:

    view = LiveView(console, log.story)
    with view.live: view.take(event)
"""

from __future__ import annotations

import time
from math import log
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...dumps.tables import plain, visible
from ...dumps.wording import clock_text, counted
from ...toolkit.verdicts.verdict_words import query_words
from ..events import Happening, Steered
from ..story import Story
from .telling import doing, left_text, queries_text, size

if TYPE_CHECKING:
    from rich.console import Console

HEIGHT = 6
BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL = 6


class LiveView:
    """Draws while `live` is entered; `say` prints a sentence above the panel."""

    def __init__(self, console: Console, story: Story) -> None:
        self.console, self.story = console, story
        self.live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=True)

    def take(self, event: Happening) -> None:
        """Says what became of an order; whatever is in the story shows with the next drawing."""
        if isinstance(event, Steered):
            self.say(event.sentence)

    def say(self, text: str) -> None:
        """A sentence that stays."""
        self.console.print(Text(visible(text)))

    def _draw(self) -> Panel:
        return render(self.story, self.console.width, time.time())


def render(story: Story, width: int, now: float) -> Panel:
    """The panel for a terminal of `width` columns."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", width=LABEL + 1)
    table.add_column(ratio=1)
    table.add_row("now", Text(plain(doing(story))))
    if story.signature:
        table.add_row("failure", Text(plain(story.signature), overflow="ellipsis", no_wrap=True))
    table.add_row("best", Text(size(story), "bold green" if story.best else ""))
    table.add_row("asked", Text(queries_text(story.asked, story.verdicts)))
    table.add_row("time", _time(story, now))
    parts = [*_graph(story, width - 5 - LABEL), Text(), table] if story.original[0] else [table]
    name = Text.assemble(("minify ", "bold"), plain(story.graph or ""), plain(f" -> {story.out}") if story.out else "")
    return Panel(Group(*parts), title=name, title_align="left", subtitle=Text("Ctrl-C keeps the best", "dim"))


def _time(story: Story, now: float) -> Text:
    text = clock_text(story.seconds(now)) + (f" of {clock_text(story.max_time_s)}" if story.max_time_s else "")
    if story.pace_s():
        text += f", {story.pace_s():.1f} s a query"
        text += f", {left}" if (left := left_text(story, now)) else ""
    if story.known:
        text += f"; {counted(story.known, 'answer was', 'answers were')} known from before"
    return Text(text)


def _graph(story: Story, width: int) -> list[Text]:
    """Nodes of the best case over the queries, on a logarithmic scale, and a mark for each verdict."""
    shown = max(10, width)
    sizes = [nodes for nodes, _ in story.points[-shown:]]
    most = max([story.original[0], *sizes, 2])
    rows: list[Text] = []
    for row in reversed(range(HEIGHT)):
        label = {HEIGHT - 1: str(most), HEIGHT // 2: str(_at(row, most)), 0: "1"}.get(row, "")
        line = Text(f"{label:>{LABEL}} ", "dim")
        for nodes in sizes:
            level = log(max(1, nodes)) / log(most) * HEIGHT * 8 if nodes else 0.0
            line.append(BLOCKS[int(min(8, max(0, round(level) - 8 * row)))], "cyan")
        rows.append(line)
    marks = Text(f"{'nodes':>{LABEL}} ", "dim")
    for query in story.queries[-shown:]:
        words = query_words(query.verdict)
        marks.append(words.mark, words.style or "dim")
    return [*rows, marks]


def _at(row: int, most: int) -> int:
    """The size that the middle of a row stands for."""
    return max(1, round(most ** ((row + 0.5) / HEIGHT)))
