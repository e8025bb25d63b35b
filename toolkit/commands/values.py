"""What `graphdbg replay --values` prints: a line for each node as soon as its value is known, then the finding. No command.

>>> show_values(load_graph("case"), "eager", 0, None, 600.0, (), as_json=False, as_lines=True)
0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dumps.output import emit, say

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

STAGES = {
    "as it is": "judging the graph as it is", "eager": "running it eagerly", "compile": "compiling it with its values as outputs",
    "run": "running what was compiled", "compare": "comparing with float64",
}  # fmt: skip


def show_values(saved: SavedGraph, rung: str, seed: int, device: str | None, limit_s: float, imports: Sequence[str], *,
                as_json: bool, as_lines: bool) -> int:  # fmt: skip
    """Prints the values as they come; returns the exit code: 0 nothing is wrong, 1 something is, or they could not be read."""
    from ..node_values.reading import node_values
    from ..node_values.words import heading, line

    rows: list[dict[str, Any]] = []
    end: dict[str, Any] = {}
    for event in node_values(saved, rung, seed, device, limit_s=limit_s, imports=imports):
        if as_lines:
            emit(event, as_json=True)
        kind = event["event"]
        if kind == "end":
            end = event
        elif kind == "stage" and not as_lines:
            say(STAGES.get(str(event["stage"]), ""))
        elif kind == "plain" and not as_lines:
            say(f"{rung}: {event['verdict']}")
        elif kind == "value":
            if not as_json and not as_lines:
                emit(line(event) if rows else f"{heading()}\n{line(event)}", as_json=False)
            rows.append(event)
    if as_json:
        plain = [{key: value for key, value in row.items() if key != "event"} for row in rows]
        emit({**{key: value for key, value in end.items() if key not in ("event", "rows")}, "rows": plain}, as_json=True)
    elif not as_lines:
        for note in end["notes"]:
            say(f"note: {note}")
        emit(f"\n{end['sentence']}" + (f"\nNext: {end['next']}" if end["next"] else ""), as_json=False)
    return 1 if end["failed"] else 0
