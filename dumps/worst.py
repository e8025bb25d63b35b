"""The graph that a command takes where a run is named and one graph is needed: the worst by the verdicts that are
known.

The last verdicts are kept in the cache folder, never in a run. Judges nothing, imports no torch, and never fails: a
verdict that could not be kept or read is not known.

>>> keep(run, {"0_0/forward": (1, "fails: wrong numbers", "relative error 0.5 to float64, eager's own 1e-7")})
>>> worst_known(run)[1]
'its last verdict is fails: wrong numbers'
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from . import index, journal
from .errors import NoSuchGraphError
from .graph_folder import JOURNAL_FILE
from .tables import one_line, plain
from .wording import in_short
from .written import put, taken

if TYPE_CHECKING:
    from .store import Run, SavedGraph

FILE = "verdicts.json"
"""The name of the file in the cache folder."""

Told = tuple[int, str, str]
"""The kept part of a verdict: its exit code, its outcome in a few words, and its reason."""
_FAILS, _UNSURE = 1, 4
"""The exit codes of a failing and of an unclear verdict."""


def keep(run: Run | None, verdicts: Mapping[str, Told]) -> None:
    """Keeps verdicts on graphs of a run, by id; `worst_known` looks at them in this order."""
    put(FILE, run, verdicts)


class _DynamoLine(msgspec.Struct):
    """The journal's line about an exception or a graph break of Dynamo. `stack`: file, line, function, code; the
    innermost last."""

    error: str = "an exception"
    text: str = ""
    stack: list[tuple[str, int, str, str]] = []


def why_none(processes: Sequence[index.Process]) -> str:
    """Why a run holds no graphs: the first exception of Dynamo, else its first graph break, what was left out, or that
    nothing is known."""
    events = [event for process in processes for event in journal.read(process.path / JOURNAL_FILE).events]
    for what in ("failed", "break"):
        for event in events:
            if event.kind == "why" and event.fields.get("what") == what:
                with contextlib.suppress(msgspec.ValidationError):
                    said = msgspec.convert(event.fields, _DynamoLine)
                    places = [f", {PurePath(file).name}:{line}, in {name}" for file, line, name, _ in said.stack[-1:]]
                    did = f"raised {said.error}" if what == "failed" else "breaks off before it has a graph"
                    return plain(f"Dynamo {did}: {one_line(in_short(said.text))}{''.join(places)}")
    return index.left_out_text(index.left_out(processes)) or "nothing was compiled, or the recorder was not active"


def no_graphs(run: Run) -> NoSuchGraphError:
    """The error about a run without graphs."""
    command = f", or judge the program itself: graphdbg triage -- {shlex.join(run.record.command)}"
    look = f"see graphdbg ls {shlex.quote(run.name)} --why{command if run.record.command else ''}"
    return NoSuchGraphError(f"{run.name} holds no graphs", why_none(run.processes), look)


def worst_known(run: Run) -> tuple[SavedGraph, str]:
    """Returns the worst graph, and why it was chosen ("" for the only graph). Raises UsageError for a run without
    graphs."""
    graphs = run.graphs()
    if not graphs:
        raise no_graphs(run)
    if len(graphs) == 1:
        return graphs[0], ""
    failing, why = last_failing(run)
    if failing:
        return failing, why
    for graph in graphs:
        if graph.status == "failed":
            error = (graph.error or "").strip().splitlines()
            return graph, "it failed in the run" + (f": {error[0][:160]}" if error else "")
    unsure, why = _with_verdict(run, _UNSURE)
    if unsure:
        return unsure, why
    compiled = [graph for graph in graphs if graph.status in ("compiled", "ran")]
    if compiled:
        return compiled[0], "no graph of the run is known to fail; this is the first that was compiled"
    return graphs[0], "no graph of the run is known to fail; this is the first that was saved"


def last_failing(run: Run) -> tuple[SavedGraph | None, str]:
    """The first graph whose last verdict is a failure, and that verdict in words; None where there is none."""
    return _with_verdict(run, _FAILS)


def last_verdicts(run: Run) -> dict[str, Told]:
    """The last verdicts on graphs of a run, by id."""
    return taken(FILE, run, Told)


def _with_verdict(run: Run, code: int) -> tuple[SavedGraph | None, str]:
    known, graphs = last_verdicts(run), {saved.id: saved for saved in run.graphs()}
    graph = next((graphs[name] for name, verdict in known.items() if verdict[0] == code and name in graphs), None)
    return graph, f"its last verdict is {known[graph.id][1]}" if graph else ""
