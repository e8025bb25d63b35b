"""Progress as lines, where nobody watches a terminal: first words at once, improvements, and a sign of life every ten
seconds.

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

from ...dumps.answers import is_whole
from ...dumps.output import emit, say, terminal
from ...dumps.wording import clock_text, counted, size_text
from ..events import Follow, Happening, QueryAnswered, Started, Steered
from ..story import Story
from .telling import doing, left_text, queries_text, size

QUIET_S = 9.5
"""After so long without a line there is one."""


class PlainLines:
    """Writes lines while the block runs; `say` is the way out."""

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
        """One line."""
        with self._lock:
            self._say(text)
        self._said.set()

    def take(self, event: Happening) -> None:
        """Says one event, which the story has heard, where it is worth a line."""
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
    """Yields who takes events, once the story has heard them, and who takes sentences. Under JSON the events are
    stdout's lines, without --full only the first, and stderr has the sentences."""
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
    from .live import LiveView

    view = LiveView(console, story)
    with view.live:
        yield view.take, view.say
