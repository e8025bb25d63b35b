"""Forward and backward side by side, joined by the tensors that one saves for the other.

Two graphs belong together by their ids (`0_0/forward`, `0_0/backward`); a saved tensor is an output of the one and an input of
the other of the same name, else the saved outputs and the inputs that are no tangents belong together in order. A box of the
backward graph says by `seq_nr` of which forward op it is the gradient. A joint graph is its own partner.

>>> view = side_by_side(*of(saved))
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...dumps.browse.partner import JOINT, graph_of
from ...dumps.browse.short import shorten
from ...dumps.errors import UsageError
from ...dumps.wording import counted
from . import LARGE, autograd_forward, nodes, overview, plan
from .families import heaviest
from .model import Cluster, Edge, View
from .nodes import Part
from .source import DrawnGraph, DrawnNode, of_saved

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

_SIDES = (("f", "forward"), ("b", "backward"))


@dataclass
class Side:
    """One half of the picture: a graph, and which of its nodes."""

    graph: DrawnGraph
    chosen: Collection[int]


Link = tuple[int, int]
"""Positions of a forward node and of the backward node that stands for it or uses it."""


def of(saved: SavedGraph) -> tuple[Side, Side, list[Link]]:
    """The two halves of a saved graph and its partner, whichever of them is given, or of a joint graph.

    Raises UsageError for a graph of another stage, or whose partner was not recorded.
    """
    if saved.stage in JOINT:
        return halves(of_saved(saved))
    if saved.stage == "compiled_autograd":
        return _with_its_autograd_nodes(saved)
    other = graph_of(saved)
    pair = {saved.stage: of_saved(saved), other.stage: of_saved(other)}
    forward = next(graph for stage, graph in pair.items() if "forward" in stage)
    backward = next(graph for stage, graph in pair.items() if "backward" in stage)
    return Side(forward, range(len(forward.nodes))), Side(backward, range(len(backward.nodes))), links(forward, backward)


def _with_its_autograd_nodes(saved: SavedGraph) -> tuple[Side, Side, list[Link]]:
    backward = of_saved(saved)
    forward, found = autograd_forward.of(saved.record, backward)
    if not forward.nodes:
        why = "it was not noted when the backward was captured"
        raise UsageError(f"{saved.id} has no forward beside it", why, "draw it alone")
    return Side(forward, range(len(forward.nodes))), Side(backward, range(len(backward.nodes))), found


def halves(joint: DrawnGraph) -> tuple[Side, Side, list[Link]]:
    """The two halves of a joint graph."""
    kept = [node for node in joint.nodes if node.op != "output"]
    forward = [node.index for node in kept if not node.backward]
    backward = [node.index for node in kept if node.backward]
    found = [(used, index) for index in backward for used in joint.nodes[index].inputs if not joint.nodes[used].backward]
    return Side(joint, forward), Side(joint, backward), found


def links(forward: DrawnGraph, backward: DrawnGraph) -> list[Link]:
    """Which forward node each saved input of the backward graph is."""
    inputs = [node for node in backward.nodes if node.op == "placeholder" and node.family != "tangent"]
    made = {node.name: node.index for node in forward.nodes if node.op != "output"}
    found = {node.index: made[node.name] for node in inputs if node.name in made}
    saved = [item.node for item in forward.outputs if item.saved]
    if len(found) < len(inputs) == len(saved):
        for node, index in zip(inputs, saved, strict=True):
            found.setdefault(node.index, index)
    return [(index, position) for position, index in found.items()]


def side_by_side(forward: Side, backward: Side, joined: list[Link], *, by_module: bool = False, depth: int | None = None) -> View:
    """Both halves in one picture, the backward one upside down, so that what belongs together lies at the same height."""
    collapsed = by_module or depth is not None or len(forward.chosen) + len(backward.chosen) > LARGE
    make = _collapsed if collapsed else _whole
    parts = [make(side, prefix, depth) for side, (prefix, _) in zip((forward, backward), _SIDES, strict=True)]
    _name_gradients(forward, backward, parts[1])
    for edge in parts[1].edges:
        edge.against = True
    saved: dict[tuple[str, str], set[int]] = {}
    for maker, user in joined:
        if maker in parts[0].home and user in parts[1].home:
            saved.setdefault((parts[0].home[maker], parts[1].home[user]), set()).add(maker)
    edges = [Edge(*ends, f"{len(made)} saved" if len(made) > 1 else "", saved=True) for ends, made in saved.items()]
    frames = [Cluster(f"{prefix}side", name, kind="side") for prefix, name in _SIDES]
    count = len({maker for maker, _ in joined})
    what = f"{counted(count, 'tensor')} of the forward graph used by the backward graph: dashed"
    both = forward.graph.id
    if forward.graph is not backward.graph:
        both += f" and {backward.graph.id.rpartition('/')[2]}"
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    total = len(forward.chosen) + len(backward.chosen)
    return View(
        f"{both}: {counted(total, 'node')}" + (" by module" if collapsed else ""), "by-module" if collapsed else "nodes",
        [box for part in parts for box in part.boxes], frames + [cluster for part in parts for cluster in part.clusters],
        [edge for part in parts for edge in part.edges] + edges, [what, *notes],
    )  # fmt: skip


def _whole(side: Side, prefix: str, depth: int | None) -> Part:
    return nodes.part_of(side.graph, side.chosen, prefix=prefix, side=f"{prefix}side")


def _collapsed(side: Side, prefix: str, depth: int | None) -> Part:
    groups = plan.plan_of(side.graph, depth, only=side.chosen, wanted=plan.WANTED // 2)
    return overview.part_of(side.graph, groups, prefix=prefix, side=f"{prefix}side", only=side.chosen)


def _name_gradients(forward: Side, backward: Side, part: Part) -> None:
    """Adds to each box of a backward node which forward op it is a gradient of."""
    parts: dict[int, list[DrawnNode]] = {}  # of one op that autograd saw, which may have been decomposed into several
    for index in forward.chosen:
        node = forward.graph.nodes[index]
        if node.seq_nr >= 0 and not node.is_input and node.base != "copy_":
            parts.setdefault(node.seq_nr, []).append(node)
    names = {number: next(node.name for node in made if node.family == heaviest([node.family for node in made]))
             for number, made in parts.items()}  # fmt: skip
    homes = {f"bn{index}": backward.graph.nodes[index] for index in backward.chosen}
    for box in part.boxes:
        node = homes.get(box.id)
        if node is None or node.is_input:
            continue
        if node.recomputed:
            box.lines.append("recomputed")
        elif node.summed:
            box.lines.append("sum of gradients")
        elif node.seq_nr in names:
            box.lines.append(f"gradient of {shorten(names[node.seq_nr], 28)}")
