"""Sorting nodes by a column in slices: as fast as one sort, and never long at a time.

Nodes without a number come last either way; nodes that are equal stay in the order of the graph.

>>> finish(sorted_by(view, range(len(view)), Sort("bytes", descending=True)))[:3]
[0, 5, 3]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .columns import cell
from .flops import tensors
from .matching import numbers_of
from .slices import Steps, pieces, spans
from .table import GraphView

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


def sorted_by(view: GraphView, nodes: Sequence[int], sort: Sort) -> Steps[list[int]]:
    """The nodes in the order of a column."""
    rank = yield from _ranks(view, sort)
    count = len(view)
    packed: list[int] = []
    sign = -1 if sort.descending else 1
    missing: list[int] = []
    for piece in pieces(nodes):
        part: list[int] = []
        for node in piece:
            place = rank(node)
            if place is None:
                missing.append(node)
            else:
                part.append(sign * place * count + node)
        part.sort()
        packed.extend(part)
        yield
    packed.sort()  # runs that are sorted already: merged in one go
    yield
    in_order: list[int] = []
    for piece in pieces(packed, 4 * 8192):
        in_order.extend(number % count for number in piece)
        yield
    return in_order + missing


def _ranks(view: GraphView, sort: Sort) -> Steps[Callable[[int], int | None]]:
    """Node -> place of its value among all values, a whole number; None where it has none."""
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
        yield
        order = sorted(texts, key=lambda at: _order(view, at, key))
        values = view.column(TEXTS.get(key, key))
        ranks = {at: place for place, at in enumerate(order)}
        return lambda node: ranks[values[node]]
    if key == "name":
        return (yield from _name_ranks(view))
    cells: list[str] = []
    known: dict[tuple[int, int], str] = {}
    ops, targets = view.table.op, view.table.target
    for piece in pieces(range(len(view)), 4096):
        if key == "op":
            for node in piece:
                pair = (ops[node], targets[node])
                if pair not in known:
                    known[pair] = cell(view, key, node)
                cells.append(known[pair])
        else:
            cells.extend(cell(view, key, node) for node in piece)
        yield
    words = {word: place for place, word in enumerate(sorted(set(cells)))}
    return lambda node: words[cells[node]]


def _name_ranks(view: GraphView) -> Steps[Callable[[int], int | None]]:
    """Orders mul_2 before mul_10: by the text before the number, then by the number."""
    heads: list[str] = []
    numbers: list[int] = []
    for start, end in spans(len(view), 4096):
        for name in view.table.name[start:end]:
            head, _, tail = name.rpartition("_")
            counted = tail.isdecimal() and tail.isascii() and len(tail) < 10 and bool(head)
            heads.append(head if counted else name)
            numbers.append(int(tail) + 1 if counted else 0)
        yield
    words = {word: place * 10**10 for place, word in enumerate(sorted(set(heads)))}
    return lambda node: words[heads[node]] + numbers[node]


def _order(view: GraphView, at: int, key: str) -> tuple[float, str]:
    """Modules by the innermost, shapes by how many elements they have, as far as that is known."""
    if key == "module":
        return 0, (view.levels(at) or ("",))[-1]
    shapes = tensors(view.shape_of(at)) if key == "shape" else []
    return sum(math.prod(dim if isinstance(dim, int) else 1 for dim in shape) for shape in shapes), view.text[at]
