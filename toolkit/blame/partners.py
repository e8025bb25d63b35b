"""Relatives of a graph in its run: the graphs made of it, and the forward node whose gradient a backward node computes.

AOTAutograd numbers the operations of the forward (`seq_nr`) and gives each node of the backward the number of the
operation that it belongs to. Read from records; imports no torch.

>>> forward_partner(load_graph("myrun/0_0/backward"), "mul_7").name
'mul_2'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dumps.browse.partner import behind_tangents, numbered
from ..live.spec import FULL_STAGES
from .node_found import NodeFound

if TYPE_CHECKING:
    from ...dumps.sidecar import Table
    from ...dumps.store import SavedGraph

_INNER = ("inference", "forward", "backward")
_FORWARD = ("forward", "joint", "joint_passed")


def compile_of(saved: SavedGraph) -> tuple[str | None, str]:
    """The compile that a graph belongs to: its process, and its number there."""
    return saved.process, saved.local_id.partition("/")[0]


def inner_graphs(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs inside a wide one that the inner compiler was given; none for a graph that is one of them."""
    if saved.stage in _INNER or saved.stage.startswith("post_grad"):
        return []
    return [graph for graph in _same_compile(saved) if graph.stage in _INNER]


def siblings(saved: SavedGraph) -> list[SavedGraph]:
    """The graphs of the same compile that Inductor was given, in order, for a graph from before AOTAutograd; none for
    others."""
    return (
        sorted(inner_graphs(saved), key=lambda graph: _INNER.index(graph.stage)) if saved.stage in FULL_STAGES else []
    )


def forward_partner(saved: SavedGraph, name: str) -> NodeFound | None:
    """The forward node whose gradient this node of a backward or joint graph computes; None where there is none or no
    record."""
    table = saved.table
    index = table.name.index(name) if name in table.name else None
    if index is None or table.seq_nr[index] < 0:
        return None
    graphs: list[SavedGraph] = []
    if saved.stage.startswith("joint"):
        graphs = [saved] if index in behind_tangents(table) else []
    elif saved.stage.endswith("backward"):
        number = saved.local_id.rpartition("/")[2].partition(".")[2]
        there = [
            graph for graph in _same_compile(saved) if graph.local_id.rpartition("/")[2].partition(".")[2] == number
        ]
        graphs = [graph for stage in _FORWARD for graph in there if graph.stage == stage]
    return next((partner for graph in graphs if (partner := _with_number(graph.table, table.seq_nr[index]))), None)


def _same_compile(saved: SavedGraph) -> list[SavedGraph]:
    return (
        [] if saved.run is None else [graph for graph in saved.run.graphs() if compile_of(graph) == compile_of(saved)]
    )


def _with_number(table: Table, number: int) -> NodeFound | None:
    """The last forward node of that number: the one that gives the operation's value."""
    behind = set(behind_tangents(table))
    rows = [table.row(at) for at in numbered(table, number) if at not in behind]
    wanted = [row for row in rows if not row.target.endswith("getitem")] or rows
    return NodeFound(wanted[-1].name, wanted[-1].target, wanted[-1].where) if wanted else None
