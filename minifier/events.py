"""What happens while minifying, as plain records: for progress displays, for --json, and for screens that follow a run.

Each is one line under `graphdbg minify --json` and in OUT/events.jsonl (docs/minify-events.md), which `EventsFile`
writes and `progress.watched` reads; `from_json` is the way back. Must not print or count, nor ever end a search.

>>> Stepped("windows", 7).to_json()
{'event': 'step', 'step': 'windows', 'queries': 7, 'words': 'looking for the place: windows of neighbouring nodes'}
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from ..dumps.lines import LineWriter
from ..dumps.opening import opened
from ..dumps.wording import counted
from .passes import PASSES
from .search.problem import Answer

VERSION = 1
"""Raised when a field changes its meaning or goes; new fields and events may come at any time."""

EVENTS_FILE = "events.jsonl"
_START = b'"event":"start"'

PURPOSES = ("sanity", "search", "explanation", "verification")
"""What a query is for: does the original fail, does a candidate, what is each part needed for, does the saved
result."""
EXPLAINING = "needs"
"""The step whose queries are no part of the search."""

WORDS = {
    "sanity": "checking that it fails",
    "hint": "looking near what the failure names",
    "windows": "looking for the place: windows of neighbouring nodes",
    "labels": "looking for the place: one kind of operation at a time",
    "grow": "finding what else is needed",
    "chunks": "reducing large parts",
    "atoms": "reducing node by node",
    "blocks": "dropping blocks of nodes",
    "polish": "bypassing nodes that are left",
    "outputs": "dropping outputs",
    "together": "smaller shapes, simpler values, plainer strides at once",
    "axes": "smaller shapes, simpler values, plainer strides",
    "explain": "checking that each part is needed",
    "needs": "asking what each part that is left is needed for",
    "measuring": "measuring how often it fails",
    "verification": "checking the saved case in fresh processes",
    "report": "writing repro.py and issue.md, and trying the repro",
    **{name: row.words for name, row in PASSES.items() if row.words},
}
"""Step of the search -> plain words."""


def words(step: str) -> str:
    """A step in plain words; its own name where there are none."""
    return WORDS.get(step, step)


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """One event. Of one that was written it is known when (seconds since 1970), and in which process's `life`, from 1
    on."""

    time: float = 0.0
    life: int = 0

    def to_json(self) -> dict[str, Any]:
        """The line of --json and OUT/events.jsonl."""
        line: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in line.items() if value or name not in ("time", "life")}


class Started(Happening, frozen=True, tag="start"):
    """A minification begins or goes on; `known` answers come from an earlier process."""

    graph: str = ""
    out: str = ""
    options: dict[str, Any] = {}
    known: int = 0
    version: int = VERSION


class Stepped(Happening, frozen=True, tag="step"):
    """A step of the search begins, after `queries` queries."""

    step: str
    queries: int = 0
    words: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "words", words(self.step))


class QueryAnswered(Happening, frozen=True, tag="query"):
    """One query was answered, the `queries`-th in all; `improved`: it is the smallest failing case so far."""

    queries: int = 0
    purpose: str = ""
    step: str = ""
    case: str = ""
    verdict: str = ""
    signature: str = ""
    nodes: int = 0
    input_bytes: int = 0
    seconds: float = 0.0
    improved: bool = False
    recalled: bool = False
    detail: str = ""
    failure: Any = None
    record: Any = None

    @classmethod
    def of(
        cls,
        queries: int,
        purpose: str,
        step: str,
        case: str,
        answer: Answer,
        improved: bool = False,
        recalled: bool = False,
    ) -> QueryAnswered:
        """The event of an answer."""
        told = answer.to_json()
        return cls(queries=queries, purpose=purpose, step=step, case=case, improved=improved, recalled=recalled, **told)


class Improved(Happening, frozen=True):
    """A case of the history, and its `number` there."""

    queries: int = 0
    case: str = ""
    nodes: int = 0
    input_bytes: int = 0
    number: int = 0


class Best(Improved, frozen=True, tag="best"):
    """The smallest failing case so far has become smaller."""


class QueryStarted(Happening, frozen=True, tag="asking"):
    """A query starts; it will be the `number`-th, unless one of those that run beside it makes it needless."""

    number: int = 0
    purpose: str = ""
    step: str = ""
    case: str = ""


class Said(Happening, frozen=True, tag="say"):
    """A sentence for people, in OUT/events.jsonl; --json has them on stderr."""

    text: str = ""


class Steered(Happening, frozen=True, tag="steered"):
    """What became of an order of the user's (see `control`): `state` is "applied" or "refused", then with the
    reason."""

    id: str = ""
    what: str = ""
    state: str = "applied"
    why: str = ""
    step: str = ""
    number: int | None = None
    queries: int = 0

    @property
    def sentence(self) -> str:
        """For people."""
        about = self.step if self.step and self.what != "skip" else "" if self.number is None else str(self.number)
        order = f"{self.what} {about}".strip()
        if self.state == "refused":
            return f"{order}: refused, {self.why}"
        return f"{order}: done, after {counted(self.queries, 'query')}" + (
            f" ({words(self.step)})" if self.step else ""
        )


class Restarted(Improved, frozen=True, tag="restarted"):
    """The search goes on from that case of its history; 0 is the original. What was found stays in the history."""


class Ended(Happening, frozen=True, tag="end"):
    """The process that minifies is done with OUT. `verdict`: "reduced", "interrupted" or "failed"; `why` it ended
    early."""

    verdict: str = ""
    why: str = ""
    case: str = ""
    nodes: int = 0
    input_bytes: int = 0
    queries: int = 0


Follow = Callable[[Happening], None]
"""Who is told; called in the thread that minifies, in order."""


def from_json(line: object) -> Happening | None:
    """The inverse of `to_json`; None for a line that this version does not know, or with other types than promised."""
    try:
        return msgspec.convert(
            line,
            Started | Stepped | QueryAnswered | Best | QueryStarted | Said | Steered | Restarted | Ended,
            strict=False,
        )
    except msgspec.ValidationError:
        return None


class EventsFile:
    """Appends to OUT/events.jsonl; made when the first line comes. `complain` takes the sentence about a disk that
    refuses.

    Each line is one write at the end of the file. A line that a dead process left half is ended first. Where the disk
    refuses, writing stops and one sentence says so: it must never end a search.
    """

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
                self._complain(
                    f"{self.path} is written no more ({why}): who follows it sees nothing new, the search goes on"
                )

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
        with opened(self.path) as file:
            while lines := file.readlines(1 << 20):
                self.life += sum(_START in line[:40] for line in lines)
        return self._lines
