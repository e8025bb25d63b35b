"""A minification's folder as it stands and as it goes on: events.jsonl read bit by bit, or the journal of an old one. No torch.

Reading changes nothing in OUT and never waits; whatever is missing is said. Must not steer or start anything.

>>> watched = Watched(Path("small"))
>>> watched.read()
True
>>> watched.story.best, watched.state
((3, 4), 'ended')
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from ...dumps.errors import GraphdbgError, UsageError
from ...dumps.process import FILE as PROCESS_FILE
from ...dumps.process import ProcessRecord, liveness
from ...dumps.reading import read_record
from .story import UNTOLD, Story

EVENTS_FILE, JOURNAL_FILE = "events.jsonl", "journal.jsonl"
BITE_BYTES = 256 * 1024
"""So much is read at once."""

State = Literal["starting", "running", "ended", "dead", "elsewhere", "unknown", "gone"]
"""dead: its process is gone and did not say how it ended; elsewhere: on another host, to be watched only; unknown: an old OUT
that names no process; gone: the folder is not there any more."""


class Watched:
    """One OUT that is followed. Everything that is known is in `story`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.story = Story(out=str(out))
        self.state: State = "starting"
        self.old = False
        """Whether only the journal is there: no steps, no queries in flight, no sentences."""
        self.damage = 0
        """Whole lines that are no JSON objects."""
        self._descriptor = -1
        self._file: tuple[int, int] = (0, 0)
        self._rest = b""
        self._offset = 0

    def read(self) -> bool:
        """Takes in what came since; whether there was anything. Call it again at once where `more`."""
        if not self.out.is_dir():
            self.close()
            self.state = "gone" if self.story.queries or self.state != "starting" else "starting"
            return False
        path = self.out / EVENTS_FILE
        old = not path.exists() and (self.out / JOURNAL_FILE).exists()
        if old:
            path = self.out / JOURNAL_FILE
        lines = self._lines(path)
        if old != self.old:
            self.old = old
        for line in lines:
            for event in _from_journal(line, self.story) if old else (line,):
                self.story.take(event)
        self.state = self._state()
        return bool(lines)

    @property
    def more(self) -> bool:
        """Whether the file is known to be longer than what was read."""
        try:
            return self._descriptor >= 0 and os.fstat(self._descriptor).st_size > self._offset
        except OSError:
            return False

    def close(self) -> None:
        """Lets go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._rest, self._offset = -1, b"", 0

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        try:
            found = path.stat()
        except OSError:
            return []
        identity = found.st_dev, found.st_ino
        if self._descriptor < 0 or identity != self._file or found.st_size < self._offset:
            self.close()
            self._descriptor, self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)), identity
            self.story = Story(out=str(self.out))
        data = os.read(self._descriptor, BITE_BYTES)
        self._offset += len(data)
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        return [event for line in whole.split(b"\n") if newline and line and (event := self._decoded(line)) is not None]

    def _decoded(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict):
            return cast("dict[str, Any]", event)
        self.damage += 1
        return None

    def _state(self) -> State:
        ended = self.story.done is not None or bool(self.story.ended)
        try:
            record = read_record(self.out / PROCESS_FILE, ProcessRecord)
        except GraphdbgError:
            return "ended" if ended or (self.out / "case").is_dir() else "unknown"
        states: dict[str, State] = {"ended": "ended", "alive": "running", "dead": "dead", "unknown": "elsewhere"}
        return states[liveness(record, ended=ended)]


def watched(out: str | Path) -> Watched:
    """A folder that is followed, read as far as one bite goes. Raises UsageError where it holds no minification."""
    path = Path(out)
    if not any((path / name).is_file() for name in (EVENTS_FILE, JOURNAL_FILE)):
        why = "it has no events.jsonl and no journal.jsonl" if path.is_dir() else "there is no such folder"
        raise UsageError(f"{out} is no folder of a minification", why, "minify a graph: graphdbg minify RUN/ID -o OUT")
    found = Watched(path)
    found.read()
    return found


def _from_journal(line: dict[str, Any], story: Story) -> Iterator[dict[str, Any]]:
    """What a line of a journal says, as events. It does not say which step asked; that is told by what changed."""
    if "header" in line:
        about = line.get("about")
        known = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
        yield {"event": "start", "graph": known.get("graph", ""), "out": story.out, "options": known.get("options", {})}
    elif "verdict" in line and "case" in line:
        text = str(line["case"])
        purpose = "sanity" if text == "original" else "verification" if text.startswith("verify ") else "search"
        # What the original did is judged once its runs are compared; the journal has it from before that.
        judged = "same" if purpose == "sanity" and line["verdict"] == "other" else line["verdict"]
        size = line.get("nodes"), line.get("input_bytes")
        best = story.best or story.original
        improved = purpose == "search" and judged == "same" and (not best[0] or size < best)
        step = purpose if purpose != "search" else _step_of(text)
        if step != story.step:
            yield {"event": "step", "step": step}
        yield {**line, "event": "query", "purpose": purpose, "step": step, "verdict": judged, "improved": improved}


def _step_of(case: str) -> str:
    if " edits " not in case:
        return UNTOLD
    names = {name for name in ("dims", "values", "strides", "switches") if f'"{name} ' in case}
    return "together" if len(names) > 1 else next(iter(names), UNTOLD)
