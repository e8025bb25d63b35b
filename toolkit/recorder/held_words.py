"""Closing words about held inputs: which step went wrong and what was kept of it, and what holding cost.

Only reads journal events. Must not print.

>>> lines([(process, events)], rows, "myrun")
['graphdbg: NaN first in 0_0/backward (output 3), execution 37; ... are kept: graphdbg replay myrun/0_0/backward']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...dumps import index, journal
from ...dumps.amounts import size_text
from ...dumps.wording import counted
from .holding import COST

Events = Sequence[tuple[str, Sequence[journal.Event]]]
"""(process, what its journal says)."""

_MOST = 3


def is_mine(note: Mapping[str, Any]) -> bool:
    """Whether a note is told here."""
    return note.get("message") == COST or "found" in note or "kept" in note


def lines(events: Events, rows: Sequence[index.Row], run: str) -> list[str]:
    """The sentences for all processes of a run."""
    names = {(row.process, row.local): row.id for row in rows}
    found = [(process, event) for process, of_process in events for event in of_process if "found" in event.fields]
    told: list[str] = []
    for process, event in found[:_MOST]:
        kept = _kept(dict(events)[process], event.fields["found"])
        told.append(_sentence(event, process, kept, names, run))
    if len(found) > _MOST:
        more = counted(len(found) - _MOST, "more step")
        told.append(f"graphdbg: and {more} went wrong; their inputs lie in inputs.<execution>.json")
    return told + _cost([event.fields for _, of_process in events for event in of_process])


def _kept(events: Sequence[journal.Event], number: int) -> list[str]:
    return [event.graph for event in events if event.graph is not None and event.fields.get("kept") == number]


def _sentence(
    event: journal.Event, process: str, kept: Sequence[str], names: Mapping[tuple[str, str], str], run: str
) -> str:
    fields, graph = event.fields, event.graph or ""
    name = names.get((process, graph), graph)
    text = str(fields.get("message", "")).replace(graph, name)
    if not kept:
        return f"graphdbg: {text}; its inputs are not kept, they exceed the limit for held inputs"
    others = sorted((local for local in kept if local != graph), key=lambda local: _distance(local, graph))
    shown = ", ".join(names.get((process, local), local) for local in others[:_MOST])
    more = f" and {len(others) - _MOST} more" if len(others) > _MOST else ""
    these = " and ".join((["its inputs"] if graph in kept else []) + ([f"those of {shown}{more}"] if others else []))
    start = graph if graph in kept else kept[0]
    return f"graphdbg: {text}; {these} are kept: graphdbg replay {run}/{names.get((process, start), start)}"


def _distance(local: str, graph: str) -> tuple[bool, bool]:
    """Partners of the graph first, and graphs as Dynamo made them, which hold the others, last."""
    compile_name, _, stage = local.partition("/")
    return stage.startswith("dynamo"), compile_name != graph.partition("/")[0]


def _cost(notes: Sequence[Mapping[str, Any]]) -> list[str]:
    costs = [note for note in notes if note.get("message") == COST]
    if not costs:
        return []
    total = {key: sum(float(note.get(key) or 0) for note in costs) for key in ("seconds", "testing_seconds", "executions")}
    most = size_text(int(sum(int(note.get("most_bytes") or 0) for note in costs)))
    executions = counted(int(total["executions"]), "execution")
    text = f"graphdbg: holding inputs took {total['seconds']:.1f} s over {executions} and {most}"
    if total["testing_seconds"]:
        text += f"; {total['testing_seconds']:.1f} s of them looking for NaN"
    left_out = sum(int(note.get("left_out") or 0) for note in costs)
    return [text, *([f"graphdbg: {counted(left_out, 'more step')} went wrong whose inputs were not kept"] if left_out else [])]
