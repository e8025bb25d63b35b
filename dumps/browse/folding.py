"""Folding by module: which nodes in a row belong to one module, and the rows that are left where some are folded.

A group is a stretch of consecutive nodes of one module, so that the order of the graph stays what it is; a module whose
nodes lie in several stretches has several groups. All inputs together are a group of their own.

>>> groups = finish(grouping(view))
>>> groups.labels[groups.around(6)], list(groups.rows({groups.around(6)}))[:8]
('up', [0, 1, 2, 3, 4, -2, 7, 8])
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from .slices import Steps
from .table import GraphView

INPUTS = "inputs"
NODES = 16384


class Groups:
    """Stretches in order of their start, an outer one before those inside it. A row that stands for group g is written
    ~g."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.depths: list[int] = []
        self.parents: list[int] = []
        self.labels: list[str] = []

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def deepest(self) -> int:
        """How deep groups are nested."""
        return max(self.depths, default=0)

    def around(self, index: int, folded: Collection[int] = ()) -> int:
        """The innermost group of several nodes that holds a node and is not folded; -1 where there is none."""
        group = bisect_right(self.starts, index) - 1
        while group >= 0 and (self.ends[group] <= index or group in folded):
            group = self.parents[group]
        return group

    def opened_for(self, index: int, folded: Collection[int]) -> frozenset[int]:
        """The groups that stay folded when a node gets a row of its own."""
        gone: set[int] = set()
        group = self.around(index)
        while group >= 0:
            gone.add(group)
            group = self.parents[group]
        return frozenset(folded) - gone

    def to_depth(self, depth: int) -> frozenset[int]:
        """The groups that are folded when modules are open down to a depth: 0 folds the outermost."""
        return frozenset(group for group, at in enumerate(self.depths) if at >= depth + 1)

    def rows(self, folded: Collection[int], nodes: Sequence[int] | None = None) -> Sequence[int]:
        """Nodes in order, each folded stretch as one row ~group. `nodes`: only these (a group without any has no
        row)."""
        if not folded:
            return range(self.count) if nodes is None else nodes
        listed: list[int] = []
        at, reached = 0, 0
        for group in sorted(folded):
            start, end = self.starts[group], self.ends[group]
            if start < reached:
                continue
            if nodes is None:
                listed.extend(range(reached, start))
                listed.append(~group)
            else:
                first = bisect_left(nodes, start, at)
                last = bisect_left(nodes, end, first)
                listed.extend(nodes[at:first])
                if last > first:
                    listed.append(~group)
                at = last
            reached = end
        listed.extend(range(reached, self.count) if nodes is None else nodes[at:])
        return listed


def grouping(view: GraphView) -> Steps[Groups]:
    """Finds the groups of a graph in slices."""
    groups = Groups(len(view))
    open_groups: list[int] = []
    now: tuple[str, ...] = ()
    before: int | None = None
    ops, modules, placeholder = view.table.op, view.table.module, view.placeholder
    for index in range(len(view)):
        key = -1 if ops[index] == placeholder else modules[index]
        if key != before:
            path = (INPUTS,) if key == -1 else view.levels(key)
            _turn(groups, open_groups, now, path, index)
            now, before = path, key
        if not index % NODES:
            yield
    _turn(groups, open_groups, now, (), len(view))
    return _without_single(groups)


def _turn(groups: Groups, open_groups: list[int], now: tuple[str, ...], path: tuple[str, ...], index: int) -> None:
    """Ends the groups that a node is not in, and begins those that it is in."""
    common = 0
    while common < min(len(now), len(path)) and now[common] == path[common]:
        common += 1
    while len(open_groups) > common:
        groups.ends[open_groups.pop()] = index
    for depth in range(common, len(path)):
        groups.starts.append(index)
        groups.ends.append(groups.count)
        groups.depths.append(depth + 1)
        groups.parents.append(open_groups[-1] if open_groups else -1)
        groups.labels.append(path[depth])
        open_groups.append(len(groups.starts) - 1)


def _without_single(groups: Groups) -> Groups:
    """Leaves out stretches of one node: folding them would hide a node and save nothing."""
    kept = Groups(groups.count)
    numbers: dict[int, int] = {-1: -1}
    for group, (start, end) in enumerate(zip(groups.starts, groups.ends, strict=True)):
        parent = numbers[groups.parents[group]]
        if end - start < 2:
            numbers[group] = parent
            continue
        numbers[group] = len(kept.starts)
        kept.starts.append(start)
        kept.ends.append(end)
        kept.depths.append(groups.depths[group])
        kept.parents.append(parent)
        kept.labels.append(groups.labels[group])
    return kept
