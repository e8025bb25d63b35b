"""The causes of a process's graph breaks and recompiles, counted: with 500 recompiles the first line says what to fix.

For example:

    causes(process)[0].count, causes(process)[0].text  # -> (498, 'recompile of lim: guard s == … failed')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from .. import opening
from ..graph_folder import JOURNAL_FILE
from ..index import Process
from ..journal import read
from ..store import Run
from ..wording import counted
from . import wording
from .events import of_run
from .model import Compile, Function, ProcessWhy, ProgramLine

MOST = 10


class Cause(msgspec.Struct):
    """One cause: `kind` is "recompile" or "graph break"; `ids` are compiles."""

    kind: str
    text: str
    place: ProgramLine | None
    count: int = 0
    ids: list[str] = []
    foreign: bool = True


def causes(process: ProcessWhy) -> list[Cause]:
    """The causes, most frequent first, those inside torch and Python last; equal counts in order of appearance."""
    by_key: dict[tuple[str, ...], Cause] = {}
    for function in process.functions:
        for item in function.compiles:
            for key, cause in _of_compile(function, item):
                known = by_key.setdefault(key, cause)
                known.count += 1
                known.ids.append(item.id)
                known.foreign &= function.foreign
    return sorted(by_key.values(), key=lambda cause: (cause.foreign, -cause.count))


def _of_compile(function: Function, item: Compile) -> Iterator[tuple[tuple[str, ...], Cause]]:
    for broken in item.breaks:
        place = wording.innermost(broken.stack) or ProgramLine(function.file, function.line, function.name)
        text = f"graph break: {broken.title}" + place.code_text
        yield ("break", place.file, str(place.line), broken.title), Cause("graph break", text, place)
    if item.kind == "recompile" and item.guards:
        for number, guard in enumerate([item.guards[0], *item.also]):
            alike, place = wording.alike(guard.text), guard.place or ProgramLine(function.file, function.line)
            short = wording.short(alike)
            text = f"guard {short} failed as well" if number else short.partition(". ")[0]
            key = "also" if number else "recompile", function.file, str(function.line), alike
            yield key, Cause("recompile", f"recompile of {function.name}: {text}", place)


class Repeated(msgspec.Struct):
    """A guard that made a function recompile repeatedly. `count`: how often; `id`: the last of these compiles; `limit`:
    set where torch gave up; `text`: the guards that failed in the first of them.
    """

    function: str
    text: str
    guard: str
    place: ProgramLine | None
    count: int
    id: str
    limit: str = ""


def repeated(run: Run) -> list[Repeated]:
    """The failed guards: those at which torch gave up first, then by count. The single recompile that makes a size of a
    function dynamic is left out, because Dynamo always does that.
    """
    by_key: dict[tuple[str, ...], Repeated] = {}
    for process in of_run(run).processes:
        for function in process.functions:
            again = [item for item in function.compiles if item.kind in ("recompile", "limit") and item.guards]
            if len(again) == 1 and again[0].became_dynamic:
                continue
            for item in again:
                guard, name = item.guards[0], f"{process.prefix}{item.id}/dynamo"
                key = process.name, function.file, str(function.line), wording.alike(guard.text)
                text, place = wording.failed(guard), guard.place or ProgramLine(function.file, function.line)
                text = "; also: ".join([text, *map(wording.failed, item.also)])
                repeat = by_key.setdefault(
                    key, Repeated(function.name, text, wording.short(guard.text), place, 0, name)
                )
                repeat.count += not item.limit
                repeat.id = repeat.id if item.limit else name
                repeat.limit = item.limit or repeat.limit
    return sorted(by_key.values(), key=lambda repeat: (not repeat.limit, -repeat.count))


def limits(run: Run) -> list[str]:
    """A sentence for each function that torch no longer compiles."""
    return [f"{repeat.function} was given up at {repeat.limit}" for repeat in repeated(run) if repeat.limit]


def headline(process: ProcessWhy) -> str:
    """One sentence with the counts of a process."""
    compiled = [[item for item in function.compiles if item.kind != "observed"] for function in process.functions]
    compiles = [item for items in compiled for item in items]
    numbers = (
        (sum(item.kind == "recompile" for item in compiles), "recompile", ""),
        (sum(len(item.breaks) for item in compiles), "graph break", ""),
        (sum(bool(item.limit) for item in compiles), *["given up at the recompile limit"] * 2),
        (sum(item.failure is not None for item in compiles), "failed", "failed"),
    )
    counts = [counted(number, singular, many) for number, singular, many in numbers if number]
    functions = counted(sum(map(bool, compiled)), "function")
    listed = ", ".join(counts) or "no graph break, no recompile"
    return f"{functions} compiled {counted(len(compiles), 'time')}: {listed}"


class FirstSeen(NamedTuple):
    """The first finding of `--when` in a process: "NaN first in 0_0/forward (outputs 0, 6), execution 18, step 18"."""

    process: str
    graph: str
    what: str
    message: str


def first_found(processes: Iterable[Process]) -> list[FirstSeen]:
    """The first finding of `--when` in each process that has one."""
    first_seen: list[FirstSeen] = []
    for process in processes:
        events = read(process.path / JOURNAL_FILE).events
        first = next((event for event in events if event.kind == "note" and event.fields.get("found")), None)
        if first is not None:
            fields = first.fields
            first_seen.append(
                FirstSeen(process.name, first.graph or "", str(fields.get("what")), str(fields.get("message")))
            )
    return first_seen


_TOLD = {"break": ("graph break", ""), "recompile": ("recompile", ""), "limit": ("recompile limit reached",) * 2}


def hint(text: str, processes: Iterable[Process]) -> str:
    """One line with counts and the command that explains them; empty when there is nothing to explain. Counts lines of
    journals without decoding them: quotes inside a text are escaped there, so no text looks like such a line."""
    counts = dict.fromkeys(_TOLD, 0)
    for process in processes:
        try:
            data = opening.read(process.path / JOURNAL_FILE)
        except OSError:  # the reader of the journal reports it
            continue
        for what in counts:
            counts[what] += data.count(b'"kind":"why","what":"%s"' % what.encode())
    counts["recompile"] -= counts["limit"]  # the recompile beyond the limit is not compiled
    parts = [counted(counts[what], singular, many) for what, (singular, many) in _TOLD.items() if counts[what]]
    return f"{', '.join(parts)}: graphdbg ls {text} --why" if parts else ""
