"""The same node at other stages of its compile: what Dynamo called it, what it was in the joint graph, after Inductor's
passes.

Graphs belong together by their compile id and process. A node of another graph is the same one if it has the same name
and target, or the same input of the model, or says that it was made from it (`from_node`), or has the same number and
op. Where nothing but the user's line is the same, that is said. Large graphs are joined by the names and numbers in
their tables; the other side of autograd by names (`partner` finds gradients).

>>> [(found.stage, found.name) for found in Related(saved).of(view, view.position("addmm"))]
[('dynamo', 'linear'), ('pre_grad', 'linear'), ('joint', 'addmm'), ('joint_passed', 'addmm'), ('backward', 'addmm'),
('post_grad_forward', 'addmm'), ('post_grad_backward', 'addmm')]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..errors import GraphdbgError
from ..schema import STAGES
from ..short import row_value
from ..sidecar import NodeRow
from ..store import SavedGraph
from .sheet import BAD, DIM, HERE, LINK, TITLE, Line, Sheet, line, span
from .table import GraphView

_TRACED = ("dynamo", "pre_grad")
"""Stages before AOTAutograd, which gives all nodes names of its own."""

_ORDER = {stage: place for place, stage in enumerate(STAGES)}
MOST = 12


@dataclass(frozen=True)
class Counterpart:
    """A node of another stage: its graph's id and stage, its position and name, and how it is known to be the same."""

    graph: str
    stage: str
    index: int
    name: str
    target: str
    value: str
    how: str


class Related:
    """The graphs of one compile, opened once; safe to use from one thread at a time."""

    def __init__(self, saved: SavedGraph) -> None:
        self.saved = saved
        self.unread: dict[str, str] = {}

    @cached_property
    def graphs(self) -> list[SavedGraph]:
        """The other graphs of this compile, in the order in which a compile makes them."""
        saved = self.saved
        if saved.run is None:
            return []
        compiled = saved.local_id.partition("/")[0]
        others = [
            graph
            for graph in saved.run.graphs()
            if graph.process == saved.process and graph.local_id.partition("/")[0] == compiled and graph.id != saved.id
        ]
        return sorted(others, key=lambda graph: _ORDER.get(graph.stage, len(_ORDER)))

    def of(self, view: GraphView, index: int) -> list[Counterpart]:
        """The counterparts of a node in all of them; a graph that cannot be read is named in `unread`."""
        me = _node(self.saved, view.table.row(index))
        counterparts: list[Counterpart] = []
        for graph in self.graphs:
            try:
                places, how = _counterparts(me, graph)
            except (GraphdbgError, OSError) as error:
                self.unread[graph.id] = str(error)
                continue
            for row in map(graph.table.row, places):
                counterparts.append(
                    Counterpart(graph.id, graph.stage, row.index, row.name, row.target, row_value(row), how)
                )
        return counterparts


class _Node(NamedTuple):
    """The facts that a node is recognised by."""

    row: NodeRow
    stage: str
    source: str = ""
    origins: Sequence[str] = ()


def _node(saved: SavedGraph, row: NodeRow) -> _Node:
    if saved.has_table:
        return _Node(row, saved.stage)
    source = next((item.source for item in saved.record.inputs if item.name == row.name), "")
    return _Node(row, saved.stage, source, saved.record.graph.nodes[row.index].from_node)


def _sides(stage: str) -> set[str]:
    return {side for side in ("forward", "backward") if side in stage} or {"forward", "backward"}


def _counterparts(me: _Node, graph: SavedGraph) -> tuple[list[int], str]:
    """The positions in another graph, by the surest way that finds any."""
    table = graph.table
    text = table.strings
    aot = me.stage not in _TRACED and graph.stage not in _TRACED
    same = [
        at
        for at, name in enumerate(table.name)
        if name == me.row.name and (aot or text[table.target[at]] == me.row.target)
    ]
    if same and me.row.op != "placeholder":
        return same, "same name"
    if _sides(me.stage) & _sides(graph.stage) == set():
        return same, "same name"
    if not graph.has_table:
        nodes = graph.record.graph.nodes
        if me.row.op == "placeholder":
            sources = {item.name for item in graph.record.inputs if me.source and item.source == me.source}
            places_there = [at for at, node in enumerate(nodes) if node.op == "placeholder" and node.name in sources]
            return (places_there, "same input") if places_there else (same, "same name")
        made_from_me = [
            at for at, node in enumerate(nodes) if me.row.name in node.from_node[:1] and node.op.startswith("call")
        ]
        made_of = [at for at, node in enumerate(nodes) if node.name in me.origins[:1] and node.op.startswith("call")]
        if made_from_me or made_of:
            return (made_from_me, "made from it") if made_from_me else (made_of, "it was made from this")
        if me.origins:
            places_there = [at for at, node in enumerate(nodes) if node.from_node[:1] == me.origins[:1]]
            if places_there:
                return places_there, "made from the same"
    elif me.row.op == "placeholder":
        return same, "same name"
    if me.row.seq_nr >= 0:
        places_there = [
            at
            for at, number in enumerate(table.seq_nr)
            if number == me.row.seq_nr
            and text[table.target[at]] == me.row.target
            and text[table.op[at]].startswith("call")
        ]
        if places_there:
            return places_there, "same seq_nr and op"
    if me.row.code and me.row.op.startswith("call"):
        line = (me.row.where, me.row.code)
        places_there = [at for at in range(len(table.name)) if (text[table.where[at]], text[table.code[at]]) == line]
        return [at for at in places_there if text[table.op[at]].startswith("call")], "same line of code"
    return [], ""


def sheet_of(related: Related, view: GraphView, index: int, counterparts: Sequence[Counterpart]) -> Sheet:
    """The stages as a sheet: one heading for each graph, this one among them, below it the node there."""
    lines: list[Line] = []
    marked: list[range] = []
    mine = view.table.row(index)
    everywhere = sorted([*related.graphs, related.saved], key=lambda graph: _ORDER.get(graph.stage, len(_ORDER)))
    width = max((len(graph.stage) for graph in everywhere), default=0)
    for graph in everywhere:
        here = graph.id == related.saved.id
        if here:
            marked.append(range(len(lines), len(lines) + 1))
            label = f"{graph.stage:<{width}}  "
            lines.append(line((label, HERE), (mine.name, HERE), f"  {row_value(mine)}", (f"  {mine.target}", DIM)))
            continue
        nodes = [counterpart for counterpart in counterparts if counterpart.graph == graph.id]
        if graph.id in related.unread:
            lines.append(line((f"{graph.stage:<{width}}  ", TITLE), (related.unread[graph.id], BAD)))
        elif not nodes:
            lines.append(line((f"{graph.stage:<{width}}  ", TITLE), (_why_none(related.saved.stage, graph.stage), DIM)))
        for place, counterpart in enumerate(nodes[:MOST]):
            label = f"{graph.stage if place == 0 else '':<{width}}  "
            how_text = f"  {counterpart.target if counterpart.target != counterpart.name else ''}" + (
                f"  ({counterpart.how})" if place == 0 else ""
            )
            lines.append(
                line(
                    (label, TITLE),
                    span(counterpart.name, LINK, counterpart.name, counterpart.graph),
                    f"  {counterpart.value}",
                    (how_text, DIM),
                )
            )
        if len(nodes) > MOST:
            lines.append(line(" " * (width + 2), (f"and {len(nodes) - MOST} more", DIM)))
    return Sheet("the same node at the other stages", lines, 0, marked)


def _why_none(mine: str, stage: str) -> str:
    if not _sides(mine) & _sides(stage):
        return "the other side of autograd: its partners are told with the detail"
    return "nothing there is known to be this node"
