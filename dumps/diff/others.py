"""Graphs that a graph can be compared with: its other stages, its recompiles, its backward or forward, the same graph
of other runs.

Reads journals only. Opens no graph.

>>> [(other.graph, other.why) for other in others(run.graph("0_1/forward"), "myrun")][:2]
[('myrun/0_0/forward', 'another compile of the same function'), ('myrun/0_1/backward', 'its backward, joined by
seq_nr')]
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from ..errors import GraphdbgError
from ..ids import number_of
from ..index import ListedGraph, runs
from ..store import SavedGraph, open_run

Kind = Literal["recompile", "other side", "other run", "other process", "stage"]
_ORDER: tuple[Kind, ...] = ("recompile", "other run", "other side", "other process", "stage")
_PARTNERS = {"forward": "backward", "backward": "forward"}
_MOST_RUNS = 40


class ComparableGraph(msgspec.Struct):
    """A graph to compare with: its name for commands, and its relation to this graph in words."""

    graph: str
    kind: Kind
    why: str
    nodes: int | None = None
    status: str = ""


def others(graph: SavedGraph, run_name: str) -> list[ComparableGraph]:
    """The candidates, the likeliest first; none for a case folder. `run_name` is the user's name for the run.
    Neighbouring runs that cannot be read are left out."""
    if graph.run is None:
        return []
    candidates = [
        ComparableGraph(f"{run_name}/{row.id}", *relation, row.nodes, row.status)
        for row in graph.run.rows
        if row.saved and (relation := _relation(graph, row)) is not None
    ]
    candidates += _other_runs(graph, Path(run_name))
    return sorted(candidates, key=lambda other: _ORDER.index(other.kind))


def _relation(graph: SavedGraph, row: ListedGraph) -> tuple[Kind, str] | None:
    """The relation of a graph of the same run to this graph; None where they have none."""
    compiled, _, stage = row.local.partition("/")
    mine, _, my_stage = graph.local_id.partition("/")
    if row.process != graph.process:
        return ("other process", "the same graph of another process") if row.local == graph.local_id else None
    if compiled == mine and stage != my_stage:
        side = next((name for name in _PARTNERS if row.stage.endswith(name)), "")
        wanted = row.stage.removesuffix(side) + _PARTNERS.get(side, "")
        if side and graph.stage == wanted and number_of(row.local) == number_of(graph.local_id):
            return "other side", f"its {side}, joined by seq_nr"
        return "stage", "another stage of it"
    if compiled.partition("_")[0] == mine.partition("_")[0] and compiled != mine and stage == my_stage:
        return "recompile", "another compile of the same function"
    return None


def _other_runs(graph: SavedGraph, run: Path) -> list[ComparableGraph]:
    candidates: list[ComparableGraph] = []
    try:
        beside = [path for path in runs(run.parent) if path.name != run.name][:_MOST_RUNS]
    except GraphdbgError:
        return []
    for path in beside:
        try:
            rows = open_run(path).rows
        except GraphdbgError:
            continue
        row = next((row for row in rows if row.saved and row.local == graph.local_id), None)
        if row is not None:
            candidates.append(
                ComparableGraph(f"{path}/{row.id}", "other run", "the same graph of another run", row.nodes, row.status)
            )
    return candidates


def by_seq_nr(stage_a: str, stage_b: str) -> bool:
    """Whether two stages are a forward and its backward, to be joined by seq_nr."""
    sides = {next((name for name in _PARTNERS if stage.endswith(name)), stage) for stage in (stage_a, stage_b)}
    return sides == {"forward", "backward"}
