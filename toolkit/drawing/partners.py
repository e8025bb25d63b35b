"""Forward and backward side by side, joined by the tensors that one saves for the other.

Two graphs belong together by their ids (`0_0/forward`, `0_0/backward`); a saved tensor is an output of one and an input
of the other with the same name; else the saved outputs and the inputs that are not tangents are paired in order. A box
of the backward graph says by `seq_nr` of which forward op it is the gradient. A joint graph is its own partner.

>>> drawn = side_by_side(*of(saved))
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...dumps.browse.captured_backward import facts
from ...dumps.browse.partner import JOINT, graph_of
from ...dumps.errors import NoPartnerError
from ...dumps.schema import GraphRecord
from ...dumps.short import shorten
from ...dumps.tables import plain
from ...dumps.wording import counted
from . import LARGE, nodes, overview
from .dot import Cluster, Edge, View, family, heaviest
from .nodes import GraphShare
from .source import DrawnGraph, DrawnNode, of_saved

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph


_SIDES = (("f", "forward"), ("b", "backward"))


@dataclass
class PictureHalf:
    """One half of the picture: a graph, and which of its nodes."""

    graph: DrawnGraph
    chosen: Collection[int]


Link = tuple[int, int]
"""Positions of a forward node and of the backward node that stands for it or uses it."""


def of(saved: SavedGraph) -> tuple[PictureHalf, PictureHalf, list[Link]]:
    """The two halves of a saved graph and its partner, whichever of them is given, or of a joint graph.

    Raises UsageError for a graph of another stage, or whose partner was not recorded.
    """
    if saved.stage in JOINT:
        return halves(of_saved(saved))
    if saved.stage == "compiled_autograd":
        backward = of_saved(saved)
        forward, joined = _autograd_forward(saved.record, backward)
        if not forward.nodes:
            why = "it was not noted when the backward was captured"
            raise NoPartnerError(f"{saved.id} has no forward beside it", why, "draw it alone")
    else:
        other = graph_of(saved)
        pair = {saved.stage: of_saved(saved), other.stage: of_saved(other)}
        forward = next(graph for stage, graph in pair.items() if "forward" in stage)
        backward = next(graph for stage, graph in pair.items() if "backward" in stage)
        joined = links(forward, backward)
    return PictureHalf(forward, range(len(forward.nodes))), PictureHalf(backward, range(len(backward.nodes))), joined


def halves(joint: DrawnGraph) -> tuple[PictureHalf, PictureHalf, list[Link]]:
    """The two halves of a joint graph."""
    kept = [node for node in joint.nodes if node.op != "output"]
    forward = [node.index for node in kept if not node.backward]
    backward = [node.index for node in kept if node.backward]
    crossing = [
        (used, index) for index in backward for used in joint.nodes[index].inputs if not joint.nodes[used].backward
    ]
    return PictureHalf(joint, forward), PictureHalf(joint, backward), crossing


def links(forward: DrawnGraph, backward: DrawnGraph) -> list[Link]:
    """The forward node behind each saved input of the backward graph."""
    inputs = [node for node in backward.nodes if node.op == "placeholder" and node.family != "tangent"]
    index_of = {node.name: node.index for node in forward.nodes if node.op != "output"}
    sources = {node.index: index_of[node.name] for node in inputs if node.name in index_of}
    saved = [item.node for item in forward.outputs if item.saved]
    if len(sources) < len(inputs) == len(saved):
        for node, index in zip(inputs, saved, strict=True):
            sources.setdefault(node.index, index)
    return [(index, position) for position, index in sources.items()]


def side_by_side(
    forward: PictureHalf,
    backward: PictureHalf,
    joined: list[Link],
    *,
    by_module: bool = False,
    depth: int | None = None,
) -> View:
    """Both halves in one picture, the backward one upside down, so that partners lie at the same height."""
    collapsed = by_module or depth is not None or len(forward.chosen) + len(backward.chosen) > LARGE
    parts = [
        _part(side, prefix, depth, collapsed=collapsed)
        for side, (prefix, _) in zip((forward, backward), _SIDES, strict=True)
    ]
    _name_gradients(forward, backward, parts[1])
    for edge in parts[1].edges:
        edge.against = True
    saved: dict[tuple[str, str], set[int]] = {}
    for maker, user in joined:
        if maker in parts[0].home and user in parts[1].home:
            saved.setdefault((parts[0].home[maker], parts[1].home[user]), set()).add(maker)
    edges = [Edge(*ends, f"{len(pairs)} saved" if len(pairs) > 1 else "", saved=True) for ends, pairs in saved.items()]
    frames = [Cluster(f"{prefix}side", name, kind="side") for prefix, name in _SIDES]
    count = len({maker for maker, _ in joined})
    what = f"{counted(count, 'tensor')} of the forward graph used by the backward graph: dashed"
    both = forward.graph.id
    if forward.graph is not backward.graph:
        both += f" and {backward.graph.id.rpartition('/')[2]}"
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    total = len(forward.chosen) + len(backward.chosen)
    return View(
        f"{both}: {counted(total, 'node')}" + (" by module" if collapsed else ""),
        "by-module" if collapsed else "nodes",
        [box for part in parts for box in part.boxes],
        frames + [cluster for part in parts for cluster in part.clusters],
        [edge for part in parts for edge in part.edges] + edges,
        [what, *notes],
    )


def _part(side: PictureHalf, prefix: str, depth: int | None, *, collapsed: bool) -> GraphShare:
    if not collapsed:
        return nodes.part_of(side.graph, side.chosen, prefix=prefix, side=f"{prefix}side")
    groups = overview.plan_of(side.graph, depth, only=side.chosen, wanted=overview.WANTED // 2)
    return overview.part_of(side.graph, groups, prefix=prefix, side=f"{prefix}side", only=side.chosen)


def _name_gradients(forward: PictureHalf, backward: PictureHalf, part: GraphShare) -> None:
    """Adds to each box of a backward node which forward op it is a gradient of."""
    parts: dict[int, list[DrawnNode]] = {}  # of one op that autograd saw, which may have been decomposed into several
    for index in forward.chosen:
        node = forward.graph.nodes[index]
        if node.seq_nr >= 0 and not node.is_input and node.base != "copy_":
            parts.setdefault(node.seq_nr, []).append(node)
    names = {
        number: next(node.name for node in members if node.family == heaviest([node.family for node in members]))
        for number, members in parts.items()
    }
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


_NUMBER = re.compile(r"\(NodeCall (\d+)\)")


def _autograd_forward(record: GraphRecord, backward: DrawnGraph) -> tuple[DrawnGraph, list[tuple[int, int]]]:
    """The forward of a backward that compiled autograd recorded, as its autograd nodes record it (no graph of the
    forward exists): one node for each operation that autograd saw and each parameter, in the forward's order; and which
    of them each saved input of the backward graph is, by the number of its autograd node ("MulBackward0 (NodeCall 3)").
    Empty where the record does not contain it."""
    places: dict[int, int] = {}
    nodes: list[DrawnNode] = []
    for row in facts(record).get("forward", []):
        name, number, made_from, sizes = row
        index = places[number] = len(nodes)
        parameter = not made_from and not _is_operator(name)
        base = name if parameter else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        op, target = ("placeholder", name) if parameter else ("call_function", f"aten.{base}.default")
        inputs = [places[other] for other in made_from if other in places]
        kind = family(op, target, "parameter" if parameter else "")
        node = DrawnNode(
            index,
            plain(f"{base}_{number}"),
            op,
            plain(target),
            plain(base),
            kind,
            f"[{', '.join(map(str, sizes))}]",
            inputs,
            source=plain(name) if parameter else "",
        )
        nodes.append(node)
        for used in inputs:
            nodes[used].users.append(index)
    _lend(record, backward, nodes, places)
    linked = [
        (places[number], node.index)
        for node in backward.nodes
        if node.op == "placeholder" and (number := _number(node.source)) in places
    ]
    return DrawnGraph(f"the forward of {record.id}", "forward", nodes), linked


def _lend(record: GraphRecord, backward: DrawnGraph, nodes: list[DrawnNode], places: dict[int, int]) -> None:
    """Copies the user's lines to the backward's nodes, with a common number by which a box says whose gradient it
    is."""
    for node, recorded in zip(backward.nodes, record.graph.nodes, strict=True):
        index = places.get(_number(str(recorded.meta.get("autograd_node", ""))))
        if index is not None:
            nodes[index].where, nodes[index].code, nodes[index].frames = node.where, node.code, node.frames
            nodes[index].seq_nr = node.seq_nr = 1 + index


def _is_operator(name: str) -> bool:
    return name[:1].isupper() and "." not in name and name.isidentifier()


def _number(text: str) -> int:
    match = _NUMBER.search(text)
    return int(match[1]) if match else -1
