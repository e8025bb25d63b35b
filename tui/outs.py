"""The minifications in the folder, as lines of Home: whether they run, how far they got. Reads on a bite at a time, in
a thread.

"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..dumps.browse.listing import ListingLine
from ..dumps.errors import GraphdbgError
from ..dumps.wording import ago_text, counted
from ..minifier.progress import telling
from ..minifier.progress.outcome import ended, sentences_afterwards
from ..minifier.progress.watched import Watched
from .here import is_out
from .job_files import option, recent


def _folders() -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError:
        return []


def running_search(graph: str | None) -> str | None:
    """The folder of a running minification: of this graph, else the newest of this folder; None where none runs."""
    running = [job.record.words for job in recent() if job.state == "running" and job.here]
    names = [*_folders(), *(option(words, "-o", "--output") for words in running)]
    searches: list[tuple[bool, float, str]] = []
    for name in dict.fromkeys(names):
        path = Path(name)
        if name and is_out(path):
            watched = Watched(path)
            with contextlib.suppress(GraphdbgError, OSError):
                watched.take(watched.look())
                if watched.state == "running":
                    searches.append((watched.story.graph == graph, path.stat().st_mtime, name))
    return max(searches)[2] if searches else None


_BITES = 8
"""How many bites of each are read at one look."""

WORDS = {"ended": "finished", "dead": "died", "unknown": "stopped", "gone": "vanished"}
"""The states of a minification that Home writes with another word."""


class Outs:
    """The minifications that were found; those that vanish stay, and say so."""

    def __init__(self) -> None:
        self._watched: dict[str, Watched] = {}

    def lines(self) -> list[ListingLine]:
        """One line each, as of now, the newest first; `run` names their run."""
        for name in _folders():
            if name not in self._watched and is_out(Path(name)):
                self._watched[name] = Watched(Path(name))
        lines = [self._line(name, watched) for name, watched in self._watched.items()]
        when = {f"out {name}": watched.story.last for name, watched in self._watched.items()}
        return sorted(lines, key=lambda line: when[line.key], reverse=True)

    def standing_lines(self, name: str) -> list[str]:
        """How a running minification stands, or the result of an ended one."""
        watched = self._watched[name]
        if watched.state != "ended":
            return telling.facts(watched, time.time())
        return [telling.standing(watched, time.time()), *sentences_afterwards(ended(watched.out, watched.story))]

    def _line(self, name: str, watched: Watched) -> ListingLine:
        line = ListingLine(f"out {name}", "out", name, 1, target=name, path=Path(name))
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
        early = watched.state == "ended" and bool((story.done or {}).get("stopped"))
        line.status = "stopped" if early else WORDS.get(watched.state, watched.state)
        line.bad, line.run = watched.state in ("dead", "gone"), story.graph
        inside = "" if story.graph.startswith("/") else story.graph.partition("/")[2]
        parts = [inside or story.graph] if story.graph else []
        parts += [counted(len(story.queries), "query", form=",")] if story.queries else []
        if story.best is not None:
            far = "so far" if watched.state == "running" else "left"
            parts.append(f"{counted(story.best[0], 'node', form=',')} of {story.original[0]:,} {far}")
        if watched.state == "running" and (story.paused or story.step):
            parts.append("paused" if story.paused else story.step)
        elif story.last:
            parts.append(ago_text(time.time() - story.last))
        line.text = ", ".join(parts) or "enter shows it"
        return line
