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

_MADE = ("inference", "forward", "backward")
_FORWARD = ("forward", "joint", "joint_passed")


def siblings(saved: SavedGraph) -> list[SavedGraph]:
    """Of a graph from before AOTAutograd, the graphs of the same compile that Inductor was given; else nothing."""
    if saved.stage not in FULL_STAGES:
        return []
    return sorted((graph for graph in _same_compile(saved) if graph.stage in _MADE), key=lambda one: _MADE.index(one.stage))


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
    if saved.run is None:
        return []
    mine = saved.local_id.partition("/")[0]
    return [
        graph for graph in saved.run.graphs() if graph.process == saved.process and graph.local_id.partition("/")[0] == mine
    ]


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
