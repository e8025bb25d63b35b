"""Which causes of graph breaks and recompiles a process has, counted: with 500 recompiles the first line says what to mend.

>>> causes(process)[0].count, causes(process)[0].text
(498, 'recompile of lim: guard s == … failed')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..graph_folder import JOURNAL_FILE
from ..index import Process
from ..wording import counted
from . import wording
from .model import Compile, Function, Place, ProcessWhy

MOST = 10


class Cause(msgspec.Struct):
    """One cause: `kind` is "recompile" or "graph break"; `ids` are compiles."""

    kind: str
    text: str
    place: Place | None
    count: int = 0
    ids: list[str] = []
    foreign: bool = True


def causes(process: ProcessWhy) -> list[Cause]:
    """The causes, most frequent first, those inside torch and Python last; equal counts in order of appearance."""
    found: dict[tuple[str, ...], Cause] = {}
    for function in process.functions:
        for item in function.compiles:
            for key, cause in _of_compile(function, item):
                known = found.setdefault(key, cause)
                known.count += 1
                known.ids.append(item.id)
                known.foreign &= function.foreign
    return sorted(found.values(), key=lambda cause: (cause.foreign, -cause.count))


def _of_compile(function: Function, item: Compile) -> Iterator[tuple[tuple[str, ...], Cause]]:
    for broken in item.breaks:
        place = wording.innermost(broken.stack) or Place(function.file, function.line, function.name)
        text = f"graph break: {broken.title}" + (f": {place.code}" if place.code else "")
        yield ("break", place.file, str(place.line), broken.title), Cause("graph break", text, place)
    if item.kind == "recompile" and item.guards:
        guard = item.guards[0]
        alike = wording.alike(guard.text)
        text = f"recompile of {function.name}: {wording.short(alike).partition('. ')[0]}"
        place = guard.place or Place(function.file, function.line)
        yield ("recompile", function.file, str(function.line), alike), Cause("recompile", text, place)


def headline(process: ProcessWhy) -> str:
    """One sentence of counts."""
    compiles = [item for function in process.functions for item in function.compiles]
    breaks = sum(len(item.breaks) for item in compiles)
    numbers = (
        (sum(item.kind == "recompile" for item in compiles), "recompile", ""),
        (breaks, "graph break", ""),
        (sum(bool(item.limit) for item in compiles), "given up at the recompile limit", "given up at the recompile limit"),
        (sum(item.failure is not None for item in compiles), "failed", "failed"),
    )
    told = [counted(number, one, many) for number, one, many in numbers if number]
    return (
        f"{counted(len(process.functions), 'function')} compiled {counted(len(compiles), 'time')}: "
        f"{', '.join(told) or 'no graph break, no recompile'}"
    )


_TOLD = {"break": ("graph break", ""), "recompile": ("recompile", ""), "limit": ("recompile limit reached",) * 2}


def hint(text: str, processes: Iterable[Process]) -> str:
    """One line that says where to look; empty when there is nothing to explain. Counts lines of journals and decodes none:
    quotes inside a text are escaped there, so no text looks like one."""
    found = dict.fromkeys(_TOLD, 0)
    for process in processes:
        try:
            data = (process.path / JOURNAL_FILE).read_bytes()
        except OSError:  # told by the reader of the journal
            continue
        for what in found:
            found[what] += data.count(b'"kind":"why","what":"%s"' % what.encode())
    found["recompile"] -= found["limit"]  # the one too many is not compiled any more
    parts = [counted(found[what], one, many) for what, (one, many) in _TOLD.items() if found[what]]
    return f"{', '.join(parts)}: graphdbg ls {text} --why" if parts else ""
