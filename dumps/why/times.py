"""The time of a run: each compile by phase, with its cause, cache and graph breaks, from the journals; and the
steady-state time of one execution, where it was measured (`triage RUN --symptom slow`). Imports no torch.

>>> sorted(found.id for found in of_run(open_run("myrun")))  # it gives the longest first
['0_0/dynamo', '0_1/dynamo']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .. import journal
from ..graph_folder import JOURNAL_FILE
from ..index import ListedGraph, Process
from ..store import Run
from ..tables import Column, on_terminal, one_line, render
from ..written import put, taken
from .wording import failed

FILE = "steady.json"
Steady = tuple[float, float]
"""Seconds of one execution: compiled, and eager."""
Span = tuple[str, float, float]
"""A phase of a compile, with its start and end in seconds since 1970."""
_PHASES = {"dynamo": "aot", "forward": "inductor", "inference": "inductor", "backward": "backward"}
"""Stage -> the phase in which its graph is compiled."""


class CompileTime(msgspec.Struct):
    """One compile of a function. `id`: Dynamo's graph; `cause`: why it was compiled; seconds of Dynamo's tracing, of
    AOTAutograd with its passes, of Inductor's forward and backward; `cache`: hit, miss, or off while it was recorded;
    `run_s` and `eager_s`: one execution in the steady state; `spans`: start and end of each phase (Inductor's lies
    within AOTAutograd's).
    """

    id: str
    function: str
    cause: str
    dynamo_s: float | None = None
    aot_s: float | None = None
    inductor_s: float | None = None
    backward_s: float | None = None
    cache: str = ""
    breaks: int = 0
    run_s: float | None = None
    eager_s: float | None = None
    spans: list[Span] = []

    @property
    def compile_s(self) -> float:
        """The seconds of all phases."""
        return sum(filter(None, (self.dynamo_s, self.aot_s, self.inductor_s, self.backward_s)))


def keep_steady(run: Run, steady: Mapping[str, Steady]) -> None:
    """Keeps measured seconds of executions, by the id of Dynamo's graph."""
    put(FILE, run, steady)


def of_run(run: Run) -> list[CompileTime]:
    """The compiles of a run that gave graphs, the longest first."""
    from .. import why  # late: hardly ever needed

    steady = taken(FILE, run, Steady)
    times: list[CompileTime] = []
    reasons = {process.name: process for process in why.of_run(run).processes}
    for process in run.processes:
        rows = [row for row in run.rows if row.process == process.name]
        moments, caches = _from_journal(process)
        for function in reasons[process.name].functions if process.name in reasons else ():
            for compiled in function.compiles:
                ids = {line.id for line in compiled.graphs}
                mine = [row for row in rows if row.id in ids]
                outer = next((row for row in mine if row.stage == "dynamo"), None)
                if outer is None:
                    continue
                cause = compiled.kind + (f": {failed(compiled.guards[0])}" if compiled.guards else "")
                unfinished = outer.lost or outer.status in ("failed", *journal.IN_FLIGHT)
                cause += (f"; it {'failed' if outer.status == 'failed' else 'did not end'}") if unfinished else ""
                inner, backward = _seconds(mine, ("forward", "inference")), _seconds(mine, ("backward",))
                local = outer.local.partition("/")[0]
                spans = _spans(moments, compiled.began, [row for row in mine if row.local.startswith(f"{local}/")])
                at = {phase: (start, end) for phase, start, end in spans}
                tracing = at["dynamo"][1] - at["dynamo"][0] if "dynamo" in at else None
                # else it was compiled when the backward first ran
                within = "backward" in at and "aot" in at and at["backward"][0] < at["aot"][1]
                others = (inner or 0.0) + (backward or 0.0) * within
                aot = max(0.0, outer.seconds - others) if outer.seconds is not None else None
                run_s, eager_s = steady.get(outer.id, (None, None))
                times.append(
                    CompileTime(
                        outer.id,
                        ", ".join(filter(None, (function.name, function.place))),
                        cause,
                        tracing,
                        aot,
                        inner,
                        backward,
                        caches.get(local, caches[""]),
                        len(compiled.breaks),
                        run_s,
                        eager_s,
                        spans,
                    )
                )
    return sorted(times, key=lambda compile_time: -compile_time.compile_s)


def function_of(run: Run, name: str) -> str:
    """The function that a graph was compiled from, with its line ("step, train.py:7"); empty where journals do not
    tell."""
    compiled = name.rpartition("/")[0]
    return next((timing.function for timing in of_run(run) if timing.id.rpartition("/")[0] == compiled), "")


def table(times: Iterable[CompileTime]) -> str:
    """The compiles as a table."""
    columns = [
        Column("id", style="bold"),
        *(Column(name, right=True) for name in ("dynamo", "aot", "inductor", "backward")),
        Column("cache"),
        *(Column(name, right=True) for name in ("breaks", "run", "eager")),
        Column("function", expendable=1),
        Column("compiled because", fold=True),
    ]
    rows = [
        (
            timed.id,
            *map(_shown, (timed.dynamo_s, timed.aot_s, timed.inductor_s, timed.backward_s)),
            timed.cache,
            str(timed.breaks or ""),
            *(_shown(value, 1000, " ms") for value in (timed.run_s, timed.eager_s)),
            timed.function,
            one_line(timed.cause, 160),
        )
        for timed in times
    ]
    return render(columns, rows, terminal=on_terminal())


def _shown(value: float | None, factor: float = 1.0, unit: str = "") -> str:
    return "" if value is None else f"{value * factor:.2f}{unit}"


def _seconds(rows: Iterable[ListedGraph], stages: tuple[str, ...]) -> float | None:
    known = [row.seconds for row in rows if row.stage in stages and row.seconds is not None]
    return sum(known) if known else None


_HIDDEN = re.compile(r"(\S+): .* hidden by the (.+) cache$")
_ENDS = ("compiled", "failed")


def _from_journal(process: Process) -> tuple[dict[tuple[str, str], float], dict[str, str]]:
    """The times at which each graph first reached each state ("" for the end of the journal), and the cache results by
    compile ("" for all others)."""
    moments: dict[tuple[str, str], float] = {}
    caches = {"": "off"}
    for event in journal.read(process.path / JOURNAL_FILE).events:
        fields: dict[str, Any] = event.fields
        moments["", ""] = event.time
        if event.graph is not None:
            moments.setdefault((event.graph, event.kind), event.time)
        elif fields.get("hidden") and (hidden := _HIDDEN.match(str(fields.get("message")))):
            caches[hidden[1].partition("/")[0]] = f"hit ({hidden[2]})"
        elif fields.get("keep_cache"):
            caches[""] = "miss"
    return moments, caches


def _spans(moments: Mapping[tuple[str, str], float], began: float, rows: Iterable[ListedGraph]) -> list[Span]:
    """Start and end of each phase; a phase that never ended lasts until the end of the journal."""
    spans: list[Span] = []
    for row in rows:
        if row.stage == "dynamo" and began and (captured := moments.get((row.local, "captured"))):
            spans.append(("dynamo", began, max(began, captured)))
        if (phase := _PHASES.get(row.stage)) and (start := moments.get((row.local, "compiling"))):
            ends = [moments[row.local, kind] for kind in _ENDS if (row.local, kind) in moments]
            spans.append((phase, start, max(start, *(ends or [moments["", ""]]))))
    return spans
