"""Relatives of a graph in its run: the graphs made of it, and the forward node whose gradient a backward node computes.

AOTAutograd numbers the operations of the forward (`seq_nr`) and gives each node of the backward the number of the operation
that it belongs to. Read from records; imports no torch.

>>> forward_partner(load_graph("myrun/0_0/backward"), "mul_7").name
'gelu_2'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dumps.sidecar import user_frame
from ..spec import FULL_STAGES
from .localized import NodeFound

if TYPE_CHECKING:
    from ...dumps.schema import GraphRecord, NodeRecord
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
    """Of a graph from before AOTAutograd, the graphs of the same compile that Inductor was given, in order; else nothing."""
    return sorted(inner_graphs(saved), key=lambda one: _INNER.index(one.stage)) if saved.stage in FULL_STAGES else []


def forward_partner(saved: SavedGraph, name: str) -> NodeFound | None:
    """The forward node whose gradient this node of a backward or joint graph computes; None where there is none or no record."""
    record = saved.record
    node = next((one for one in record.graph.nodes if one.name == name), None)
    if node is None or node.seq_nr < 0:
        return None
    if saved.stage.startswith("joint"):
        behind = _behind_tangents(record)
        return _with_number(record, node.seq_nr, behind) if name in behind else None
    if not saved.stage.endswith("backward"):
        return None
    number = saved.local_id.rpartition("/")[2].partition(".")[2]
    for stage in _FORWARD:
        for graph in _same_compile(saved):
            if graph.stage == stage and graph.local_id.rpartition("/")[2].partition(".")[2] == number:
                behind = _behind_tangents(graph.record)
                if found := _with_number(graph.record, node.seq_nr, behind):
                    return found
    return None


def _same_compile(saved: SavedGraph) -> list[SavedGraph]:
    return [] if saved.run is None else [graph for graph in saved.run.graphs() if compile_of(graph) == compile_of(saved)]


def _with_number(record: GraphRecord, number: int, without: Sequence[str] | set[str]) -> NodeFound | None:
    """The last forward node of that number: the one that gives the operation's value."""
    made = [
        node for node in record.graph.nodes if node.seq_nr == number and node.op.startswith("call_") and node.name not in without
    ]
    wanted = [node for node in made if not node.target.endswith("getitem")] or made
    return None if not wanted else NodeFound(wanted[-1].name, wanted[-1].target, line_of(record, wanted[-1]))


def line_of(record: GraphRecord, node: NodeRecord) -> str:
    """The user's line of a node, "model.py:12", or empty."""
    return user_frame(record.strings[node.stack])[0] if 0 <= node.stack < len(record.strings) else ""


def _behind_tangents(record: GraphRecord) -> set[str]:
    from ...dumps.walk import given, references

    behind: set[str] = set()
    for node in record.graph.nodes:
        if node.op == "placeholder":
            if "tangents" in node.name:
                behind.add(node.name)
        elif any(name in behind for name in references(given(node))):
            behind.add(node.name)
    return behind
