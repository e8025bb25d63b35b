"""The journal of one process: append-only JSON lines that record each graph's progress, even if the process is killed.

Every line is one os.write on an O_APPEND descriptor, so it survives `kill -9` and never interleaves with another
thread's. Nothing is buffered, and a value that cannot be encoded never raises into the recorded program.

>>> journal = Journal(Path("journal.jsonl"))
>>> journal.event("captured", graph="0_0/forward", nodes=12)
>>> read(Path("journal.jsonl")).states()["0_0/forward"].status
'captured'
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from . import opening
from .errors import CannotWriteError, UnreadableError
from .lines import LineWriter
from .reading import refuse_many

STATES = ("captured", "compiling", "compiled", "failed", "running", "ran", "skipped")
KINDS = (*STATES, "left_out", "note", "why", "begin", "end")
"""The kinds of events. `begin` and `end` are events of the process; `note` and `why` (read by dumps/why) change no
state; `left_out`: a graph was not saved, or was removed, to stay within a limit; the others are states of a graph.
Readers skip unknown kinds."""
DECOMPOSITION, LOWERING, BACKEND = "decomposition ", "lowering ", "backend"
"""Prefixes of the name of a user's decomposition, lowering or backend, in a note on something that has no saved
form."""
IN_FLIGHT = ("compiling", "running")


class Journal:
    """Appends events; safe from several threads and across fork. `path` is created when missing, never truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()  # reentrant: a signal handler may write while its thread holds it
        self.written_bytes = 0
        try:
            self._lines: LineWriter | None = LineWriter(path)
        except OSError as error:
            raise CannotWriteError(f"cannot write {path}", error.strerror or str(error)) from error

    def event(self, kind: str, graph: str | None = None, **fields: Any) -> None:
        """Writes one line {"t": seconds since 1970, "kind", "graph", ...}; values JSON lacks are written as their
        text."""
        if kind not in KINDS:
            raise ValueError(f"unknown journal event {kind!r}")
        line = msgspec.json.encode(_clean({"t": time.time(), "kind": kind, "graph": graph, **fields}))
        with self._lock:
            if self._lines is None:
                return
            try:
                self.written_bytes += self._lines.write(line)
            except OSError as error:
                raise CannotWriteError(f"cannot write {self.path}", error.strerror or str(error)) from error

    def close(self) -> None:
        """Closes the descriptor; later events are dropped (the interpreter is going down)."""
        with self._lock:
            if self._lines is not None:
                self._lines.close()
                self._lines = None


def _clean(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in fields.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, bool) or value is None or isinstance(value, float):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {str(_plain(str(key))): _plain(item) for key, item in cast("dict[Any, Any]", value).items()}
    return _plain(str(value))


class Event(msgspec.Struct):
    """One journal line; `fields` holds everything except `t`, `kind` and `graph`."""

    time: float
    kind: str
    graph: str | None
    fields: dict[str, Any]


def line(event: Event) -> bytes:
    """The journal line of an event that was read, to copy a journal."""
    fields = {"t": event.time, "kind": event.kind, "graph": event.graph, **event.fields}
    return msgspec.json.encode(_clean(fields)) + b"\n"


class GraphState(msgspec.Struct):
    """The state of one graph according to the journal. `seconds`: the compile time, once known; `at` and `stack`: where
    its compile was last seen; `word`: the program's own name for the stage."""

    status: str = ""
    error: str | None = None
    seconds: float | None = None
    nodes: int | None = None
    since: float = 0.0
    compiling_since: float | None = None
    at: str = ""
    stack: list[str] = []
    word: str = ""

    def apply(self, event: Event) -> None:
        """Changes the state as an event says."""
        if event.kind not in STATES:
            return
        fields = event.fields
        self.status, self.since, self.at, self.stack = event.kind, event.time, "", []
        self.word = str(fields.get("word") or self.word)
        nodes = fields.get("nodes")
        if isinstance(nodes, int):
            self.nodes = nodes
        if event.kind == "compiling":
            self.compiling_since = event.time
        if event.kind in ("compiled", "failed"):
            seconds = fields.get("seconds")
            if isinstance(seconds, (int, float)):
                self.seconds = float(seconds)
            elif self.compiling_since is not None and self.seconds is None:
                self.seconds = max(0.0, event.time - self.compiling_since)
        self.error = _error_text(fields) if event.kind in ("failed", "skipped") else None

    def seen(self, event: Event) -> None:
        """Updates where the compile of the graph was last seen."""
        stack = event.fields.get("stack")
        self.at = str(event.fields["at"])
        self.stack = [str(stack_line) for stack_line in cast("list[Any]", stack)] if isinstance(stack, list) else []


def _error_text(fields: dict[str, Any]) -> str:
    message = str(fields.get("message") or fields.get("reason") or fields.get("error") or "")
    kind = str(fields.get("type") or fields.get("exception") or "")
    if kind and message.startswith(kind):
        kind = ""
    return ": ".join(part for part in (kind, message) if part) or "no reason was recorded"


class Ending(NamedTuple):
    """How a process closed its journal. `ended`: it wrote an `end`; `uncaught`: the exception that ended it, if
    recorded; `left_out`: reason -> number of graphs that were not saved for it; `last`: the last event that changed a
    graph's state."""

    ended: bool
    uncaught: str | None
    left_out: Counter[str]
    last: Event | None


class JournalContents(msgspec.Struct):
    """A journal as read: its events in order, and one sentence per damaged line. Events may be appended: `states`
    applies each event once."""

    events: list[Event]
    damage: list[str]
    moved: dict[str, GraphState] = {}
    applied: int = 0

    def states(self) -> dict[str, GraphState]:
        """Graph id -> its state, in the order in which the graphs first appear."""
        for event in self.events[self.applied :]:
            if event.graph is not None and event.kind in STATES:
                self.moved.setdefault(event.graph, GraphState()).apply(event)
            elif event.graph in self.moved and event.kind == "note" and isinstance(event.fields.get("at"), str):
                self.moved[event.graph].seen(event)
            elif event.graph is not None and event.kind == "left_out":
                self.moved.pop(event.graph, None)
            elif event.kind == "why" and event.fields.get("then") in ("frame skipped", "rest skipped"):
                self._abandoned(event)
        self.applied = len(self.events)
        return dict(self.moved)

    def _abandoned(self, event: Event) -> None:
        """Marks the failed graphs of a compile as skipped where Dynamo went on without it, so that the user saw no
        failure."""
        for name, state in self.moved.items():
            if state.status == "failed" and name.split("/")[0] == event.fields.get("compile"):
                state.status, state.error = "skipped", f"Dynamo left the frame to eager: {state.error}"

    def ending(self) -> Ending:
        """How the process closed its journal, from its events."""
        reasons: dict[str, str] = {}
        counted, last, uncaught = Counter[str](), None, None
        for event in self.events:
            if event.graph is not None and event.kind == "left_out":
                reasons[event.graph] = str(event.fields.get("reason") or "a limit")
            elif event.graph is not None and event.kind == "captured":
                reasons.pop(event.graph, None)
            if event.graph is not None and event.kind in STATES:
                last = event
            if event.kind == "note" and event.fields.get("left_out"):
                counted[str(event.fields.get("reason"))] += int(event.fields["left_out"])
            if event.kind == "note" and event.fields.get("uncaught"):
                uncaught = str(event.fields.get("message"))
        return Ending(
            any(event.kind == "end" for event in self.events), uncaught, Counter(reasons.values()) + counted, last
        )


def read(path: Path) -> JournalContents:
    """Reads a journal; a missing one is empty. A line that is torn or damaged is skipped and reported in `damage`."""
    try:
        data = opening.read(path)
        refuse_many(data, len(data), str(path))
    except FileNotFoundError:
        return JournalContents([], [])
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error)) from error
    return parse(data, str(path))


def parse(data: bytes, where: str = "journal") -> JournalContents:
    """The events of journal bytes; see `read`."""
    *lines, last = data.split(b"\n")
    contents = of_lines(lines, where)
    if last.strip():
        contents.damage.append(f"{where}: the last line is torn (the process died while writing it) and was skipped")
    return contents


def of_lines(lines: Iterable[bytes], where: str) -> JournalContents:
    """The events of whole lines; see `read`."""
    contents = JournalContents([], [])
    decoder = msgspec.json.Decoder(dict[str, Any])
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = _event(decoder.decode(line))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            event = None
        if event is None:
            contents.damage.append(f"{where}, line {number}: damaged and skipped")
        else:
            contents.events.append(event)
    return contents


def _event(line: dict[str, Any]) -> Event | None:
    stamp, kind, graph = line.pop("t", None), line.pop("kind", None), line.pop("graph", None)
    if isinstance(stamp, bool) or not isinstance(stamp, (int, float)) or not isinstance(kind, str):
        return None
    if graph is not None and not isinstance(graph, str):
        return None
    return Event(float(stamp), kind, graph, line)
