"""Every node of a graph as a box, or the neighbourhood of one node.

>>> from graphdbg.toolkit.drawing.source import of_saved
>>> len(whole(of_saved(saved)).boxes), len(around(of_saved(saved), "mul", hops=1).boxes)
(15, 3)
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...dumps.browse.near import distances
from ...dumps.errors import NoSuchNodeError
from ...dumps.names import Level, Path, common
from ...dumps.short import shorten
from ...dumps.wording import counted
from . import LARGE
from .dot import Box, Cluster, Edge, View
from .source import DrawnGraph, DrawnNode


class Home(NamedTuple):
    """The innermost cluster of a box ("": none), and how many of the box's levels it stands for."""

    cluster: str
    depth: int


def frames(paths: Mapping[str, Path], prefix: str = "c", side: str = "") -> tuple[list[Cluster], dict[str, Home]]:
    """The clusters for boxes with these levels around them, outer ones first, and the innermost cluster of each box.

    `prefix` keeps ids of several graphs apart; `side` is the cluster that all of them lie in.
    """
    members: dict[Path, set[str]] = {}
    for box, path in paths.items():
        for depth in range(1, len(path) + 1):
            members.setdefault(path[:depth], set()).add(box)
    doubled = {path[:-1] for path, inside in members.items() if members.get(path[:-1]) == inside}
    kept: dict[Path, Cluster] = {}
    for path in sorted(members, key=len):
        if len(members[path]) < 2 or path in doubled:
            continue
        parent = _innermost(path[:-1], kept)
        around = kept[parent].id if parent else side
        kept[path] = Cluster(f"{prefix}{len(kept)}", _label(path[-1], parent[-1].path if parent else ""), around)
    homes: dict[str, Home] = {}
    for box, path in paths.items():
        innermost = _innermost(path, kept)
        homes[box] = Home(kept[innermost].id if innermost else side, len(innermost))
    return list(kept.values()), homes


def unframed(path: Path, depth: int) -> str:
    """The module line of a box when only the first `depth` levels have a frame: "up: Linear"; "" when all have."""
    if depth >= len(path):
        return ""
    return _label(path[-1], path[depth - 1].path if depth else "")


def name_within(path: str, around: str) -> str:
    """The path of a module as seen from one around it: "attention" of "blocks.0.attention" in "blocks.0"."""
    return path.removeprefix(f"{around}.") if around else path


def _innermost(path: Path, kept: Mapping[Path, Cluster]) -> Path:
    return next((path[:depth] for depth in range(len(path), 0, -1) if path[:depth] in kept), ())


def _label(level: Level, around: str) -> str:
    name = shorten(name_within(level.path, around), 48)
    return f"{name}: {shorten(level.kind, 40)}" if level.kind else name


MOST_OUTPUT_EDGES = 8
"""A graph with more outputs has them marked on the boxes that make them: so many edges to one box say nothing."""

MOST_SIZE_EDGES = 3
"""A size that more nodes use has no edges: they would cross the whole picture and say little."""

_LONGEST_TITLE, _LONGEST_LINE = 36, 40


@dataclass
class GraphShare:
    """One graph's share of a picture. `home` is the box in which each node lies, by position."""

    boxes: list[Box] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    home: dict[int, str] = field(default_factory=dict)


def whole(graph: DrawnGraph) -> View:
    """The view of all nodes of a graph."""
    part = part_of(graph)
    title = f"{graph.id}: {counted(len(graph.nodes), 'node')}"
    return View(title, "nodes", part.boxes, part.clusters, part.edges, part.notes)


def around(graph: DrawnGraph, name: str, hops: int, most: int = LARGE) -> View:
    """A node with what it uses and what uses it, `hops` steps away both ways; of more than `most` nodes the nearest
    ones.

    Raises UsageError, with names that are alike, for a name that the graph does not have.
    """
    centre = graph.position(name)
    if centre is None:
        names = [node.name for node in graph.nodes]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or [word for word in names if name in word][:3]
        hint = f"names like it are {', '.join(near)}" if near else "graphdbg show lists its nodes"
        raise NoSuchNodeError(f"{graph.id} has no node {name!r}", "", hint)
    beside = lambda index: (*graph.nodes[index].inputs, *graph.nodes[index].users)  # noqa: E731
    distance = distances(centre, hops, beside, lambda index: graph.nodes[index].op == "output")
    chosen = sorted(sorted(distance, key=lambda index: (distance[index], index))[:most])
    part = part_of(graph, chosen, focus=centre)
    if len(chosen) < len(distance):
        near = counted(len(distance), "node is", "nodes are")
        part.notes.append(f"{near} within {counted(hops, 'hop')}; these are the nearest {most}")
    within = f"within {counted(hops, 'hop')} of {name}"
    title = f"{graph.id}: {len(part.boxes)} of {counted(len(graph.nodes), 'node')}, {within}"
    return View(title, "around", part.boxes, part.clusters, part.edges, part.notes)


def part_of(
    graph: DrawnGraph,
    chosen: Collection[int] | None = None,
    *,
    focus: int | None = None,
    prefix: str = "",
    side: str = "",
) -> GraphShare:
    """The boxes of the chosen nodes (all: None) with frames around them; `prefix` and `side` as for `frames`."""
    part = GraphShare()
    shown = set(range(len(graph.nodes)) if chosen is None else chosen)
    marks = _marks(graph, shown, focus, part)
    paths: dict[str, Path] = {}
    for node in (graph.nodes[index] for index in sorted(shown)):
        part.home[node.index] = f"{prefix}n{node.index}"
        paths[part.home[node.index]] = path_of(graph, node, shown)
    part.clusters, homes = frames(paths, f"{prefix}c", side)
    for index, box_id in part.home.items():
        node = graph.nodes[index]
        home = homes[box_id]
        lines = [*describe(node), unframed(paths[box_id], home.depth), *marks.get(index, [])]
        lines = [shorten(line, _LONGEST_LINE) for line in lines if line]
        box = Box(box_id, shorten(node.name, _LONGEST_TITLE), lines, node.family, home.cluster, nodes=[node.name])
        box.hidden = len(({*node.inputs, *node.users} - shown) - _output_of(graph, node, marks))
        box.focus, box.detail = index == focus, node.detail
        part.boxes.append(box)
    sizes = [index for index in part.home if graph.nodes[index].scalar and index != focus]
    spread = {index for index in sizes if len(graph.nodes[index].users) > MOST_SIZE_EDGES}
    if spread:
        part.notes.append(f"sizes that more than {MOST_SIZE_EDGES} nodes use are drawn without edges to them")
    for index in part.home:
        for used in graph.nodes[index].inputs:
            if used in part.home and used not in spread:
                label = _edge_text(graph.nodes[used], graph.nodes[index])
                part.edges.append(Edge(part.home[used], part.home[index], label))
    return part


def describe(node: DrawnNode) -> list[str]:
    """The lines of a node under its name: its target with its arguments, or where an input comes from and what it
    is."""
    if node.op == "placeholder":
        return [line for line in (node.source, node.value if not node.users else "") if line]
    if node.op == "output":
        return []
    target = node.target.removesuffix(".default").replace("torch.nn.functional.", "F.")
    return [f"{target} {node.arguments}".strip()]


def path_of(graph: DrawnGraph, node: DrawnNode, shown: Collection[int] | None = None) -> Path:
    """The modules around a node; for an input those that all its users have in common."""
    if not node.is_input:
        return node.modules
    users = [graph.nodes[user] for user in node.users if graph.nodes[user].op != "output"]
    return common([user.modules for user in users if shown is None or user.index in shown])


def _edge_text(maker: DrawnNode, user: DrawnNode) -> str:
    """The text along an edge: the value that it carries; for a getitem of several values, the one taken."""
    return user.value if user.base == "getitem" and user.value else maker.value


def _marks(graph: DrawnGraph, shown: set[int], focus: int | None, part: GraphShare) -> dict[int, list[str]]:
    """Lines for boxes that make outputs, where edges to the output would hide the picture; takes the output out of
    `shown`."""
    output = next((node for node in reversed(graph.nodes) if node.op == "output"), None)
    if output is None or output.index not in shown or output.index == focus or len(output.inputs) <= MOST_OUTPUT_EDGES:
        return {}
    shown.discard(output.index)
    marks: dict[int, list[str]] = {}
    saved = sum(item.saved for item in graph.outputs)
    for item in graph.outputs:
        mark = "saved for backward" if item.saved else f"output {item.number}"
        if mark not in marks.setdefault(item.node, []):
            marks[item.node].append(mark)
    if len(shown) + 1 < len(graph.nodes):
        return marks
    single, many = "output is marked on the box that makes it", "outputs are marked on the boxes that make them"
    said = counted(len(graph.outputs), single, many)
    part.notes.append(f"{said}; {saved} of them are there for the backward graph" if saved else said)
    return marks


def _output_of(graph: DrawnGraph, node: DrawnNode, marks: dict[int, list[str]]) -> set[int]:
    return {user for user in node.users if marks and graph.nodes[user].op == "output"}
