"""The minifications in the folder, as lines of Home: whether they run, how far they got. Reads on a bite at a time, in a thread.

>>> outs = Outs()
>>> [line.text for line in outs.lines()]
['42 queries, 3 nodes of 113 so far']
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..dumps.amounts import ago_text
from ..dumps.browse.listing import Line
from ..dumps.errors import GraphdbgError
from ..dumps.wording import counted
from ..minifier.progress.watched import Watched
from .here import is_out

_BITES = 8
"""Of each at one look."""

WORDS = {
    "starting": "starting", "running": "running", "ended": "finished", "dead": "died", "elsewhere": "elsewhere",
    "unknown": "stopped", "gone": "vanished",
}  # fmt: skip
"""Its state in one word, as Home writes it."""


class Outs:
    """The minifications that were found; those that vanish stay, and say so."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}

    def lines(self) -> list[Line]:
        """One line each, as of now."""
        try:
            names = [entry.name for entry in os.scandir() if entry.is_dir() and not entry.name.startswith(".")]
        except OSError:
            names = []
        for name in sorted(names):
            if name not in self._watched and is_out(Path(name)):
                self._watched[name] = Watched(Path(name))
        return [self._line(name, watched) for name, watched in self._watched.items()]

    def _line(self, name: str, watched: Watched) -> Line:
        line = Line(f"out {name}", "out", name, 1, target=name, path=Path(name))
        try:
            for _ in range(_BITES):
                bite = watched.look()
                watched.take(bite)
                if not bite.more:
                    break
        except (GraphdbgError, OSError) as error:
            line.status, line.text, line.bad = "damaged", str(error), True
            return line
        story = watched.story
        line.status, line.bad = WORDS[watched.state], watched.state in ("dead", "gone")
        parts = [counted(len(story.queries), "query", form=",")] if story.queries else []
        if story.best is not None:
            far = "so far" if watched.state == "running" else "left"
            parts.append(f"{counted(story.best[0], 'node', form=',')} of {story.original[0]:,} {far}")
        if watched.state == "running" and (story.paused or story.step):
            parts.append("paused" if story.paused else story.step)
        elif story.last:
            parts.append(ago_text(time.time() - story.last))
        line.text = ", ".join(parts) or "enter shows it"
        return line
