"""The events of `triage --json-lines`, as plain data (docs/json-lines.md). Prints nothing; imports no torch.

>>> rung(Row("inductor", skipped("there is no C++ compiler")))["event"]
'rung'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .ranking import GraphRow
from .records import Row, Triage, inputs_given
from .words import address

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph
    from .ranking import RunTriage

Event = dict[str, Any]


def start(saved: SavedGraph, rungs: Sequence[str]) -> Event:
    """Before the first rung."""
    return {"event": "start", "graph": address(saved), "rungs": list(rungs), "inputs": inputs_given(saved)}


def running(rung: str) -> Event:
    """A rung is about to be judged; it may turn out to be skipped."""
    return {"event": "running", "rung": rung}


def rung(row: Row) -> Event:
    """A rung was judged or skipped."""
    return {"event": "rung", **row.plain()}


def end(found: Triage) -> Event:
    """The finding of one graph."""
    return {"event": "end", **{key: value for key, value in found.plain().items() if key != "rows"}}


def of_run(graph: str, row: GraphRow | Row) -> Event:
    """A graph of a run was judged under Inductor ("graph"), or climbed a rung ("rung")."""
    if isinstance(row, GraphRow):
        return {"event": "graph", **row.plain()}
    return {**rung(row), "graph": graph}


def end_of_run(found: RunTriage) -> Event:
    """The finding of a run: its failing graphs in the order in which to look at them."""
    failing = [row.address or row.id for row in found.graphs if row.failed]
    return {
        "event": "end", "run": found.run, "summary": found.summary, "next": found.next, "seconds": found.seconds,
        "interrupted": found.interrupted, "graphs": len(found.graphs), "failing": failing,
        "first_failing": {ladder.graph: ladder.first_failing for ladder in found.ladders}, "record": found.record.plain(),
    }  # fmt: skip
