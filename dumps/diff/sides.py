"""What a user may compare: a graph, or a part of a run: all of it, one process (`r/1:`, `r/rank1_pid13`), one compile
(`r/0_1`).

Reads journals and names only. A graph is found as every other command finds it.

>>> part = side("myrun/0_0")
>>> part.text, part.kind, len(part.rows)
('myrun/0_0', 'compile', 8)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import UsageError
from ..index import ListedGraph, is_run
from ..store import Run, SavedGraph, open_run, resolve


class GraphGroup(msgspec.Struct):
    """Graphs of a run that belong together, in order of capture."""

    text: str
    run: Run
    rows: list[ListedGraph]
    kind: Literal["run", "process", "compile"]

    def processes(self) -> dict[str, list[ListedGraph]]:
        """The rows of each process, by the name of its folder, in the order of ranks."""
        by_process: dict[str, list[ListedGraph]] = {}
        for row in self.rows:
            by_process.setdefault(row.process, []).append(row)
        return by_process

    def graph(self, row: ListedGraph) -> SavedGraph:
        """Opens the graph of a row."""
        return SavedGraph(row.path, self.run, row)


def side(text: str, cwd: str | Path | None = None) -> SavedGraph | GraphGroup:
    """The graph or part of a run that a text names; raises UsageError saying what was looked for and where."""
    path = Path(os.path.normpath(Path(cwd or "") / text))
    if text and "\0" not in text:
        for folder in (path, *path.parents):
            if is_run(folder):
                target = _part(open_run(folder), path.relative_to(folder).as_posix(), text)
                if target is not None:
                    return target
                break
    target = resolve(text, cwd)
    return target if isinstance(target, SavedGraph) else GraphGroup(text, target, target.rows, "run")


def _part(run: Run, rest: str, text: str) -> GraphGroup | None:
    """A process or a whole compile of a run; None where one graph, or nothing, is meant."""
    if rest == ".":
        return GraphGroup(text, run, run.rows, "run")
    process, colon, local = rest.rpartition(":")
    rows = [
        row
        for row in run.rows
        if not colon or row.process == process or (row.rank is not None and process == str(row.rank))
    ]
    if colon and not rows:
        there = ", ".join(known.name if known.rank is None else f"{known.rank}:" for known in run.processes)
        raise UsageError(f"{text} names no process with graphs", f"{run.path} has {there or 'no processes'}")
    if colon and not local:
        return GraphGroup(text, run, _one_process(rows, text), "process")
    if not colon:
        named = [row for row in rows if row.process == rest]
        if named:
            return GraphGroup(text, run, named, "process")
    compiled = [row for row in rows if row.local.partition("/")[0] == local]
    return GraphGroup(text, run, _one_process(compiled, text), "compile") if len(compiled) > 1 else None


def _one_process(rows: list[ListedGraph], text: str) -> list[ListedGraph]:
    names = list(dict.fromkeys(row.process for row in rows))
    if len(names) > 1:
        raise UsageError(
            f"{text} is ambiguous", f"it could be of {', '.join(names)}", "put one of them and `:` before the id"
        )
    return rows
