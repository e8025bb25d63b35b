"""Which nodes of a graph share a box in an overview: by module, where there are none by the user's lines, else by neighbourhood.

Opens as many levels as stay readable; where even the outermost are too many, neighbours share a box. Must not know boxes.

>>> plan = plan_of(graph)
>>> plan.by, plan.depth, len(plan.bundles)
('module', 2, 31)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...dumps.browse.levels import Path, common
from . import grouping
from .grouping import Group
from .source import DrawnGraph

MOST = 150
"""No overview has more boxes."""

WANTED = 70
"""So many boxes are still read at a glance: another level of modules is opened only when they do not become more."""

FEW = 8
"""Fewer boxes tell too little of a graph: a level with too many is opened all the same, and neighbours share boxes."""

BUNDLES = 40
"""Where neighbours share a box there are no more boxes than this: they are much alike."""

MOST_INPUT_BOXES = 12
MOST_GROUPS = MOST - MOST_INPUT_BOXES - 1


@dataclass
class Plan:
    """Which groups there are: `depth` levels of `paths` are shown; `bundles` are the groups that share a box.

    `opened` are the modules inside which other modules are shown.
    """

    depth: int
    by: str
    paths: list[Path]
    bundles: list[list[Group]]
    opened: frozenset[Path] = frozenset()

    def path(self, index: int) -> Path:
        """The levels around a node that are shown."""
        return self.paths[index][: self.depth]


def plan_of(
    graph: DrawnGraph, depth: int | None = None, *, only: Collection[int] | None = None, wanted: int = WANTED
) -> Plan:  # fmt: skip
    """How to group a graph, or only some of its nodes, into boxes."""
    kept = [not node.is_input and node.op != "output" and (only is None or node.index in only) for node in graph.nodes]
    by, paths = _paths(graph, kept)
    inputs = [node.inputs for node in graph.nodes]
    if by == "runs of nodes":
        alone = [index for index, is_kept in enumerate(kept) if is_kept]
        size = _size(len(alone), wanted)
        runs = [Group(0, (), 1, alone[start : start + size]) for start in range(0, len(alone), size)]
        return Plan(0, by, paths, [[run] for run in runs])
    deepest = max(len(path) for path, is_kept in zip(paths, kept, strict=True) if is_kept)
    level, groups = 0, list[Group]()
    for tried in range(1, deepest + 1) if depth is None else [min(depth, deepest)]:
        keys = [path[:tried] if is_kept else None for path, is_kept in zip(paths, kept, strict=True)]
        found = grouping.acyclic(keys, inputs)
        if len(groups) >= FEW and len(found) > wanted:
            break
        level, groups = tried, found
        if len(found) > wanted:
            break
    size = 1 if len(groups) <= (MOST_GROUPS if depth else wanted) else _size(len(groups), BUNDLES)
    ordered = grouping.in_order(groups, inputs) if size > 1 else groups
    opened = {path[:inner] for path in paths for inner in range(1, min(len(path), level))}
    return Plan(level, by, paths, grouping.merged(ordered, size), frozenset(opened))


def _paths(graph: DrawnGraph, kept: Sequence[bool]) -> tuple[str, list[Path]]:
    """What the nodes are grouped by: the levels around each node."""
    computed = [node for node in graph.nodes if kept[node.index]]
    for by, found in (("module", [node.modules for node in graph.nodes]), ("line", [node.frames for node in graph.nodes])):
        known = sum(bool(found[node.index]) for node in computed)
        if computed and 4 * known >= len(computed) and len({found[node.index] for node in computed}) > 1:
            return by, found
    return "runs of nodes", [() for _ in graph.nodes]


def _size(count: int, boxes: int) -> int:
    """How many go into one of at most `boxes` boxes: a number that is easy to count with."""
    least = -(-count // boxes)
    return next((size for size in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50) if size >= least), -(-least // 50) * 50)


def around(plan: Plan, bundle: list[Group]) -> Path:
    """The modules that a box lies in: for a whole module those around it, for what an opened module does itself that one too."""
    path = common([plan.path(group.members[0]) for group in bundle])
    whole = len({plan.path(group.members[0]) for group in bundle}) == 1 and path not in plan.opened
    return path[:-1] if whole else path
