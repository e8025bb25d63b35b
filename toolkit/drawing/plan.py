"""Which nodes of a graph share a box in an overview: by module, where there are none by the user's lines, else by
neighbourhood.

Opens as many levels as stay readable; where even the outermost are too many, neighbours share a box. A group is one
call of a module: its second call, which uses what others made of the first one's result, becomes a group of its own
(`acyclic`: greedy, in order of the graph, linear in nodes for the graphs that compilers make). Does not know boxes.

>>> from graphdbg.toolkit.drawing.source import of_saved
>>> plan = plan_of(of_saved(saved))
>>> plan.by, plan.depth, len(plan.bundles)
('module', 1, 3)
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from ...dumps.levels import Path, common
from .source import DrawnGraph


@dataclass
class Group:
    """Nodes that are drawn as one box. `call` counts groups of the same key from 1."""

    number: int
    key: Hashable
    call: int = 1
    members: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)


def acyclic(keys: Sequence[Hashable | None], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """Groups in the order of their first nodes; none depends on itself through others.

    `keys` has one entry for each node, None for one that is not grouped; `inputs` has the positions of those it uses.
    """
    groups: list[Group] = []
    home: dict[int, int] = {}
    latest: dict[Hashable, int] = {}
    before: list[int] = []  # bit k of before[g]: group g needs group k
    for index, key in enumerate(keys):
        if key is None:
            continue
        used = {home[other] for other in inputs[index] if other in home}
        number = latest.get(key)
        if number is None or any(other != number and before[other] >> number & 1 for other in used):
            call = groups[number].call + 1 if number is not None else 1
            number = latest[key] = len(groups)
            groups.append(Group(number, key, call))
            before.append(0)
        groups[number].members.append(index)
        home[index] = number
        needed = before[number]
        for other in used - {number}:
            needed |= 1 << other | before[other]
        if needed != before[number]:
            for other in range(len(groups)):  # an earlier group may need a later one by now
                if other == number or before[other] >> number & 1:
                    before[other] |= needed
    return groups


def homes(groups: Iterable[Group]) -> dict[int, int]:
    """The position in `groups` of the group that each node lies in, its inputs included."""
    return {index: place for place, group in enumerate(groups) for index in (*group.members, *group.inputs)}


def in_order(groups: Sequence[Group], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """The groups ordered so that each comes after those it needs, where that is possible; else as they are."""
    home = homes(groups)
    needs = [
        {home[other] for index in group.members for other in inputs[index] if other in home} - {place}
        for place, group in enumerate(groups)
    ]
    ordered: list[int] = []
    done: set[int] = set()
    for start in range(len(groups)):
        stack = [start]
        while stack:
            place = stack[-1]
            missing = sorted(needs[place] - done) if place not in done else []
            if missing:
                stack.append(missing[0])
                continue
            stack.pop()
            if place not in done:
                done.add(place)
                ordered.append(place)
    return [groups[place] for place in ordered]


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
class GroupPlan:
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
) -> GroupPlan:
    """How to group a graph, or only some of its nodes, into boxes."""
    kept = [not node.is_input and node.op != "output" and (only is None or node.index in only) for node in graph.nodes]
    by, paths = _paths(graph, kept)
    inputs = [node.inputs for node in graph.nodes]
    if by == "runs of nodes":
        alone = [index for index, is_kept in enumerate(kept) if is_kept]
        size = _size(len(alone), wanted)
        runs = [Group(0, (), 1, alone[start : start + size]) for start in range(0, len(alone), size)]
        return GroupPlan(0, by, paths, [[run] for run in runs])
    deepest = max(len(path) for path, is_kept in zip(paths, kept, strict=True) if is_kept)
    level, groups = 0, list[Group]()
    for tried in range(1, deepest + 1) if depth is None else [min(depth, deepest)]:
        keys = [path[:tried] if is_kept else None for path, is_kept in zip(paths, kept, strict=True)]
        grouped = acyclic(keys, inputs)
        if len(groups) >= FEW and len(grouped) > wanted:
            break
        level, groups = tried, grouped
        if len(grouped) > wanted:
            break
    size = 1 if len(groups) <= (MOST_GROUPS if depth else wanted) else _size(len(groups), BUNDLES)
    ordered = in_order(groups, inputs) if size > 1 else groups
    opened = {path[:inner] for path in paths for inner in range(1, min(len(path), level))}
    # in an order in which no group needs a later one, bundles of neighbours need each other in no circle
    bundles = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return GroupPlan(level, by, paths, bundles, frozenset(opened))


def _paths(graph: DrawnGraph, kept: Sequence[bool]) -> tuple[str, list[Path]]:
    """The kind of levels by which nodes are grouped, and the levels around each node."""
    computed = [node for node in graph.nodes if kept[node.index]]
    for by, paths in (
        ("module", [node.modules for node in graph.nodes]),
        ("line", [node.frames for node in graph.nodes]),
    ):
        known = sum(bool(paths[node.index]) for node in computed)
        if computed and 4 * known >= len(computed) and len({paths[node.index] for node in computed}) > 1:
            return by, paths
    return "runs of nodes", [() for _ in graph.nodes]


def _size(count: int, boxes: int) -> int:
    """The number of groups in each of at most `boxes` boxes: a round number."""
    least = -(-count // boxes)
    return next(
        (size for size in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50) if size >= least), -(-least // 50) * 50
    )


def around(plan: GroupPlan, bundle: list[Group]) -> Path:
    """The modules around a box: for a whole module those around it; for what an opened module does itself, that module
    too."""
    path = common([plan.path(group.members[0]) for group in bundle])
    whole = len({plan.path(group.members[0]) for group in bundle}) == 1 and path not in plan.opened
    return path[:-1] if whole else path
