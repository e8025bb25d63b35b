"""The rows that are shown, and their order: filter, sorting and folds together, and the row of each node.

A selection never changes; another question gives a new selection. Sorting turns folds off, because a group is a
contiguous range of the graph.

>>> from graphdbg.dumps.browse.filter import parse
>>> shown = selecting(view, Question(parse("op:mul")))
>>> shown.count_text
'3 of 15'
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from ..wording import counted
from .columns import cell
from .filter import VALUE_KEYS, Term, matching, numbers_of
from .table import GraphView, tensors

NUMBERS = ("index", "bytes", "flops", "users", "min", "max", "nan", "inf", "error")
DESCENDING = ("bytes", "flops", "users", "max", "nan", "inf", "error")
"""Columns whose largest values come first by default."""

TEXTS = {"dtype": "dtype", "stride": "stride", "file": "where", "module": "module"}


class Sort(NamedTuple):
    """A column's key, and the direction."""

    key: str
    descending: bool = False

    @property
    def turned(self) -> Sort:
        """The opposite direction."""
        return Sort(self.key, not self.descending)


def usual(key: str) -> Sort:
    """The default direction of a column."""
    return Sort(key, key in DESCENDING)


def sorted_by(view: GraphView, nodes: Sequence[int], sort: Sort) -> list[int]:
    """Sorts the nodes by a column; those without a value come last."""
    rank, sign = _ranks(view, sort), -1 if sort.descending else 1
    places = {node: sign * place for node in nodes if (place := rank(node)) is not None}
    return sorted(places, key=places.__getitem__) + [node for node in nodes if node not in places]


def _ranks(view: GraphView, sort: Sort) -> Callable[[int], int | None]:
    """Returns a function from a node to the rank of its value among all values; None where the node has no value."""
    key = sort.key
    if key in NUMBERS:
        read = numbers_of(view, key)
        if key in ("index", "bytes", "users", "flops"):
            return read  # pyright: ignore[reportReturnType] - whole numbers already
        distinct = {value for node in view.values if (value := read(node)) is not None and not math.isnan(value)}
        places = {value: place for place, value in enumerate(sorted(distinct))}
        return lambda node: None if (value := read(node)) is None else places.get(value, len(places))
    if key in TEXTS or key == "shape":
        texts = view.distinct(TEXTS.get(key, key))
        order = sorted(texts, key=lambda at: _order(view, at, key))
        values = view.column(TEXTS.get(key, key))
        ranks = {at: place for place, at in enumerate(order)}
        return lambda node: ranks[values[node]]
    if key == "name":
        return _name_ranks(view)
    cells = [cell(view, key, node) for node in range(len(view))]
    words = {word: place for place, word in enumerate(sorted(set(cells)))}
    return lambda node: words[cells[node]]


def _name_ranks(view: GraphView) -> Callable[[int], int | None]:
    """Ranks by which mul_2 comes before mul_10: by the text before the number, then by the number."""
    heads: list[str] = []
    numbers: list[int] = []
    for name in view.table.name:
        head, _, tail = name.rpartition("_")
        counted = tail.isdecimal() and tail.isascii() and len(tail) < 10 and bool(head)
        heads.append(head if counted else name)
        numbers.append(int(tail) + 1 if counted else 0)
    words = {word: place * 10**10 for place, word in enumerate(sorted(set(heads)))}
    return lambda node: words[heads[node]] + numbers[node]


def _order(view: GraphView, at: int, key: str) -> tuple[float, str]:
    """The sorting key of a text: modules by the innermost level, shapes by the number of elements, without symbolic
    sizes."""
    if key == "module":
        return 0, (view.levels(at) or ("",))[-1]
    shapes = tensors(view.shape_of(at)) if key == "shape" else []
    return sum(math.prod(dim if isinstance(dim, int) else 1 for dim in shape) for shape in shapes), view.text[at]


INPUTS = "inputs"


class Groups:
    """Ranges of nodes that can be folded, in order of their start, outer ones before inner ones. A row that stands for
    group g is written ~g."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.depths: list[int] = []
        self.parents: list[int] = []
        self.labels: list[str] = []

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, start: int, end: int, depth: int, parent: int, label: str) -> None:
        """Appends a group."""
        self.starts.append(start)
        self.ends.append(end)
        self.depths.append(depth)
        self.parents.append(parent)
        self.labels.append(label)

    @property
    def deepest(self) -> int:
        """The nesting depth of the innermost groups."""
        return max(self.depths, default=0)

    def around(self, index: int, folded: Collection[int] = ()) -> int:
        """The innermost group of several nodes that holds a node and is not folded; -1 where there is none."""
        group = bisect_right(self.starts, index) - 1
        while group >= 0 and (self.ends[group] <= index or group in folded):
            group = self.parents[group]
        return group

    def opened_for(self, index: int, folded: Collection[int]) -> frozenset[int]:
        """The groups that stay folded when a node has to be shown."""
        gone: set[int] = set()
        group = self.around(index)
        while group >= 0:
            gone.add(group)
            group = self.parents[group]
        return frozenset(folded) - gone

    def to_depth(self, depth: int) -> frozenset[int]:
        """The groups to fold so that modules are open down to a depth: 0 folds the outermost."""
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


def grouping(view: GraphView) -> Groups:
    """Finds the groups of a graph."""
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
    _turn(groups, open_groups, now, (), len(view))
    return _without_single(groups)


def _turn(groups: Groups, open_groups: list[int], now: tuple[str, ...], path: tuple[str, ...], index: int) -> None:
    """Ends the groups that a node is not in, and begins the groups that it is in."""
    common = 0
    while common < min(len(now), len(path)) and now[common] == path[common]:
        common += 1
    while len(open_groups) > common:
        groups.ends[open_groups.pop()] = index
    for depth in range(common, len(path)):
        groups.add(index, groups.count, depth + 1, open_groups[-1] if open_groups else -1, path[depth])
        open_groups.append(len(groups) - 1)


def _without_single(groups: Groups) -> Groups:
    """Drops groups of a single node: folding them would hide a node and save no row."""
    kept = Groups(groups.count)
    numbers: dict[int, int] = {-1: -1}
    for group, (start, end) in enumerate(zip(groups.starts, groups.ends, strict=True)):
        parent = numbers[groups.parents[group]]
        if end - start < 2:
            numbers[group] = parent
            continue
        numbers[group] = len(kept)
        kept.add(start, end, groups.depths[group], parent, groups.labels[group])
    return kept


@dataclass(frozen=True)
class Question:
    """The requested filter, order and folds."""

    terms: tuple[Term, ...] = ()
    sort: Sort | None = None
    folded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Selection:
    """The rows that answer a question. `rows`: a node, or ~g for a folded group. `nodes`: the nodes that pass the
    filter, in graph order (None: all)."""

    view: GraphView
    question: Question
    rows: Sequence[int]
    nodes: Sequence[int] | None
    groups: Groups | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def matched(self) -> int:
        """The number of nodes that pass the filter."""
        return len(self.view) if self.nodes is None else len(self.nodes)

    @property
    def count_text(self) -> str:
        """The number of matching nodes, and of all nodes."""
        total = len(self.view)
        return counted(total, "node", form=",") if self.nodes is None else f"{self.matched:,} of {total:,}"

    def node(self, row: int) -> int:
        """The (first) node of a row; -1 where there is no such row."""
        if not 0 <= row < len(self.rows):
            return -1
        group_or_node = self.rows[row]
        return group_or_node if group_or_node >= 0 or self.groups is None else self.groups.starts[~group_or_node]

    def place(self, node: int) -> int:
        """The row that shows a node, or the folded group that contains it; -1 where the filter hides the node."""
        if not len(self.rows):
            return -1
        if self._places is not None:
            return self._places.get(node, -1)
        place = bisect_left(self.rows, node, key=self._first)
        if place < len(self.rows) and self._first(self.rows[place]) == node:
            if self.rows[place] >= 0 or self.nodes is None or self.shows(node):
                return place
            return -1
        before = self.rows[place - 1] if place else 0
        if before < 0 and self.groups is not None and self.groups.ends[~before] > node and self.shows(node):
            return place - 1
        return -1

    def nearest(self, node: int) -> int:
        """The row of a node, else the row nearest to its position."""
        place_of_node = self.place(node)
        if place_of_node >= 0 or not len(self.rows) or self._places is not None:
            return max(place_of_node, 0)
        return min(bisect_left(self.rows, node, key=self._first), len(self.rows) - 1)

    def shows(self, node: int) -> bool:
        """Whether a node passes the filter."""
        if self.nodes is None:
            return True
        at = bisect_left(self.nodes, node)
        return at < len(self.nodes) and self.nodes[at] == node

    def inside(self, group: int) -> Sequence[int]:
        """The nodes of a group that pass the filter."""
        assert self.groups is not None
        start, end = self.groups.starts[group], self.groups.ends[group]
        if self.nodes is None:
            return range(start, end)
        return self.nodes[bisect_left(self.nodes, start) : bisect_left(self.nodes, end)]

    def _first(self, row: int) -> int:
        return row if row >= 0 or self.groups is None else self.groups.starts[~row]

    @cached_property
    def _places(self) -> dict[int, int] | None:
        """Node -> row, where rows are sorted by a column; else None."""
        return {node: place for place, node in enumerate(self.rows)} if self.question.sort is not None else None


def selecting(
    view: GraphView, question: Question, groups: Groups | None = None, before: Selection | None = None
) -> Selection:
    """Computes the rows, reusing an earlier selection with the same filter. Raises FilterError."""
    seen = any(term.key in VALUE_KEYS for term in question.terms)  # values may have changed
    if before is not None and before.view is view and before.question.terms == question.terms and not seen:
        nodes = before.nodes
    else:
        nodes = matching(view, question.terms)
    if question.sort is not None:
        rows: Sequence[int] = sorted_by(view, range(len(view)) if nodes is None else nodes, question.sort)
    elif groups is not None and question.folded:
        rows = groups.rows(question.folded, nodes)
    else:
        rows = range(len(view)) if nodes is None else nodes
    return Selection(view, question, rows, nodes, groups)
