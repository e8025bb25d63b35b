"""Which display follows a minification: JSON lines where they are asked for, a live view on a terminal, else plain lines.

>>> with following(as_json=False) as (tell, narrate): minify_saved(saved, out=out, tell=tell, narrate=narrate)
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from ...dumps.output import emit, say, terminal
from ..events import Follow, Happening
from .plain import PlainLines
from .story import Story


@contextmanager
def following(as_json: bool) -> Generator[tuple[Follow, Callable[[str], None]]]:
    """Yields who takes events and who takes sentences. Under JSON the events are stdout's lines and stderr has the sentences."""
    if as_json:

        def line(event: Happening) -> None:
            emit(event.to_json(), as_json=True)

        yield line, say
        return
    console = terminal()
    if console is None:
        with PlainLines(say, Story()) as lines:
            yield lines.take, lines.say
        return
    from .live import LiveView

    with LiveView(console, Story()) as view:
        yield view.take, view.say
