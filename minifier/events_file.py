"""OUT/events.jsonl: all that a minification tells, one line each, for whoever looks on from another process, now or later.

Each line is one write at the end of the file and has a `time` and the number of the process's `life`. A line that a dead process
left half is ended first. Where the disk refuses, writing stops and one sentence says so: it must never end a search. Must not
read for others (`progress.watched` does).

>>> EventsFile(Path("small")).tell(Stepped("windows", 7))
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from ..dumps.lines import LineWriter
from .events import Happening

EVENTS_FILE = "events.jsonl"
_START = b'"event":"start"'


class EventsFile:
    """Appends to OUT/events.jsonl; made when the first line comes. `complain` takes the sentence about a disk that refuses."""

    def __init__(self, out: Path, complain: Callable[[str], None] = lambda text: None) -> None:
        self.path = out / EVENTS_FILE
        self.life = 0
        self._complain = complain
        self._lines: LineWriter | None = None
        self._broken = False
        self._lock = RLock()

    def tell(self, event: Happening) -> None:
        """Writes one event. Safe from several threads."""
        self.write(event.to_json())

    def write(self, line: dict[str, Any]) -> None:
        """Writes one line, whose `event` says what it is."""
        with self._lock:
            if self._broken:
                return
            try:
                lines = self._lines or self._open()
                if line.get("event") == "start":
                    self.life += 1
                lines.write(msgspec.json.encode({**line, "time": round(time.time(), 3), "life": self.life}))
                if lines.torn:
                    raise OSError(0, "the disk is full")
            except OSError as error:
                self._broken = True
                why = error.strerror or str(error)
                self._complain(f"{self.path} is written no more ({why}): who follows it sees nothing new, the search goes on")

    def close(self) -> None:
        """Lets go of the file; later events are dropped."""
        with self._lock:
            if self._lines is not None:
                self._lines.close()
            self._lines, self._broken = None, True

    def _open(self) -> LineWriter:
        self._lines = LineWriter(self.path)
        if not self.path.stat().st_size:  # of a device it is 0, whatever can be read
            return self._lines
        with self.path.open("rb") as file:
            while lines := file.readlines(1 << 20):
                self.life += sum(_START in line[:40] for line in lines)
        return self._lines
