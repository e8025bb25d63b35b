"""Which rows are shown and in which order: filter, sorting and folds together, and where a node is among them.

A selection never changes; another question gives another one. Under sorting folds are off: a group is a stretch of the
graph.

>>> from graphdbg.dumps.browse.filter import parse
>>> shown = finish(selecting(view, Question(parse("op:mul"))))
>>> shown.count_text
'3 of 15'
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..wording import counted
from .filter import VALUE_KEYS, Term
from .folding import Groups
from .matching import matching
from .slices import Steps
from .sorting import Sort, sorted_by
from .table import GraphView


@dataclass(frozen=True)
class Question:
    """The filter, order and folds that are asked for."""

    terms: tuple[Term, ...] = ()
    sort: Sort | None = None
    folded: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Selection:
    """`rows`: a node, or ~g for a folded group. `nodes`: those that fit the filter in order of the graph (None:
    all)."""

    view: GraphView
    question: Question
    rows: Sequence[int]
    nodes: Sequence[int] | None
    groups: Groups | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def matched(self) -> int:
        """How many nodes fit the filter."""
        return len(self.view) if self.nodes is None else len(self.nodes)

    @property
    def count_text(self) -> str:
        """The number of nodes shown, of how many."""
        total = len(self.view)
        return counted(total, "node", form=",") if self.nodes is None else f"{self.matched:,} of {total:,}"

    def node(self, row: int) -> int:
        """The (first) node of a row; -1 where there is no such row."""
        if not 0 <= row < len(self.rows):
            return -1
        group_or_node = self.rows[row]
        return group_or_node if group_or_node >= 0 or self.groups is None else self.groups.starts[~group_or_node]

    def place(self, node: int) -> int:
        """The row where a node is, or the folded group that holds it; -1 where the filter hides it."""
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
        """The row of a node, else the row next to where it would be."""
        place_of_node = self.place(node)
        if place_of_node >= 0 or not len(self.rows) or self._places is not None:
            return max(place_of_node, 0)
        return min(bisect_left(self.rows, node, key=self._first), len(self.rows) - 1)

    def shows(self, node: int) -> bool:
        """Whether the filter lets a node through."""
        if self.nodes is None:
            return True
        at = bisect_left(self.nodes, node)
        return at < len(self.nodes) and self.nodes[at] == node

    def inside(self, group: int) -> Sequence[int]:
        """The nodes of a group that are let through."""
        assert self.groups is not None
        start, end = self.groups.starts[group], self.groups.ends[group]
        if self.nodes is None:
            return range(start, end)
        return self.nodes[bisect_left(self.nodes, start) : bisect_left(self.nodes, end)]

    def _first(self, row: int) -> int:
        return row if row >= 0 or self.groups is None else self.groups.starts[~row]

    @cached_property
    def _places(self) -> dict[int, int] | None:
        """Node -> row, where rows are not in the order of the graph; else None."""
        return {node: place for place, node in enumerate(self.rows)} if self.question.sort is not None else None


def selecting(
    view: GraphView, question: Question, groups: Groups | None = None, before: Selection | None = None
) -> Steps[Selection]:
    """Finds the rows in slices, starting from an earlier selection with the same filter. Raises FilterError."""
    seen = any(term.key in VALUE_KEYS for term in question.terms)  # values may have changed
    if before is not None and before.view is view and before.question.terms == question.terms and not seen:
        nodes = before.nodes
    else:
        nodes = yield from matching(view, question.terms)
    if question.sort is not None:
        rows: Sequence[int] = yield from sorted_by(view, range(len(view)) if nodes is None else nodes, question.sort)
    elif groups is not None and question.folded:
        rows = groups.rows(question.folded, nodes)
    else:
        rows = range(len(view)) if nodes is None else nodes
    return Selection(view, question, rows, nodes, groups)
