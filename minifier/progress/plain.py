"""Progress as lines, where nobody watches a terminal: first words at once, improvements, and a sign of life every ten
seconds.

Also: the live view of a minification on a terminal: a panel with the plot, drawn again four times a second.

`following` chooses the display: JSON lines where they are asked for, a live view on a terminal, else these lines.

For example:

    with PlainLines(say, log.story) as lines: lines.take(event)
    # query 4: 40 of 53 nodes, 4896 bytes of 6048 bytes of inputs (looking for the place)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ...dumps.answers import is_whole
from ...dumps.output import emit, say, terminal
from ...dumps.tables import plain, visible
from ...dumps.wording import clock_text, counted, size_text
from ..events import Follow, Happening, QueryAnswered, Started, Steered
from ..story import Story
from .plot import drawn, picture
from .telling import doing, left_text, queries_text, size, time_text

HEIGHT = 9
LABEL = 6


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
    table.add_row("time", Text(time_text(story, now, running=True)))
    plotted = picture(story)
    rows = drawn(plotted.series, width - 4, HEIGHT, plotted.marks) if plotted.series else []
    name = Text.assemble(("minify ", "bold"), plain(story.graph or ""), plain(f" -> {story.out}") if story.out else "")
    whole, below = Group(Text("\n").join(rows), table), Text("Ctrl-C keeps the best", "dim")
    return Panel(whole, title=name, title_align="left", subtitle=below)


QUIET_S = 9.5
"""After so many seconds without a line, a sign of life is written."""


class PlainLines:
    """Writes progress lines through `say` while the block runs."""

    def __init__(self, say: Callable[[str], None], story: Story, quiet_s: float = QUIET_S) -> None:
        self._say, self.story, self._quiet_s = say, story, quiet_s
        self._lock = threading.Lock()
        self._said = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live_on, name="graphdbg-progress", daemon=True)

    def __enter__(self) -> PlainLines:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._said.set()
        self._thread.join()

    def say(self, text: str) -> None:
        """Writes one line."""
        with self._lock:
            self._say(text)
        self._said.set()

    def take(self, event: Happening) -> None:
        """Writes a line for an event that is worth one; the story has heard the event before."""
        if isinstance(event, Started):
            known = f"; {counted(event.known, 'answer is', 'answers are')} known from before" if event.known else ""
            self.say(f"minifying {event.graph} into {event.out}: checking that it fails{known}")
        elif isinstance(event, Steered):
            self.say(event.sentence)
        elif isinstance(event, QueryAnswered) and event.improved:
            self.say(
                f"query {event.queries}: {event.nodes} of {counted(self.story.original[0], 'node')}, "
                f"{size_text(event.input_bytes)} of inputs ({doing(self.story)})"
            )

    def _live_on(self) -> None:
        while not self._ended.is_set():
            if self._said.wait(self._quiet_s):
                self._said.clear()
                continue
            story, now = self.story, time.time()
            left = f", {left}" if (left := left_text(story, now)) else ""
            asked = queries_text(story.asked, story.verdicts)
            with self._lock:
                self._say(f"after {clock_text(story.seconds(now))}: {doing(story)}; {asked}; best: {size(story)}{left}")


@contextmanager
def following(story: Story, as_json: bool) -> Generator[tuple[Follow, Callable[[str], None]]]:
    """Yields two functions: one takes events, once the story has heard them, one takes sentences. With JSON the events
    are lines of stdout, without --full only the first, and the sentences go to stderr."""
    if as_json:
        whole = is_whole()  # asked where the command line is known

        def line(event: Happening) -> None:
            if isinstance(event, Started) or whole:
                emit(event.to_json(), as_json=True)

        yield line, say
        return
    console = terminal()
    if console is None:
        with PlainLines(say, story) as lines:
            yield lines.take, lines.say
        return

    def above(text: str) -> None:  # the panel, where it stays
        console.print(Text(visible(text)))

    def take(event: Happening) -> None:  # other events show with the next drawing of the story
        if isinstance(event, Steered):
            above(event.sentence)

    def draw() -> Panel:
        return render(story, console.width, time.time())

    with Live(console=console, get_renderable=draw, refresh_per_second=4, transient=True):
        yield take, above
