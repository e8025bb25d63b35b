"""A number for every symbol of a graph, to synthesise inputs and show sizes: the number seen in an execution, else the
hint.

Also: which integer inputs are used as indices, and how large an index may be (an index out of range would be another
bug than the one searched for). Read from the graph, no torch needed.

>>> numbers(run.graph("0_1/forward").record), size("2*s0 + 1", {"s0": 8})
({'s77': 3}, 17)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from .errors import DamagedError, ExpressionError, GraphdbgError
from .expr import evaluate
from .schema import (
    Arg,
    Dim,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    SymValue,
    TensorValue,
    Value,
)
from .walk import leaves, tag_of

Numbers = Mapping[str, int | float | bool]

UNKNOWN_SIZE = 4
"""The number of a symbol without a hint, where its range allows: neither 0 nor 1, which are special."""

_SAME_INTEGERS = """
    view reshape _unsafe_view expand permute transpose t squeeze unsqueeze clone alias detach contiguous slice select
    split flatten unflatten convert_element_type _to_copy to long int view_of to_copy repeat index_select cat stack
    getitem"""
_KEEPS_VALUES = frozenset(_SAME_INTEGERS.split())
"""Ops whose result holds the same integers as their input."""

_ROWS_OF_FIRST = ("embedding", "embedding_bag", "_embedding_bag")
_BY_DIM = {
    **dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "index_fill"), (1, 2)),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), (1, 2)),
    "take_along_dim": (2, 1),
}
"""Op -> positions of the dimension and of the index among its arguments."""
_LISTS = frozenset({"index", "index_put", "_unsafe_index", "_unsafe_index_put", "index_put_"})
_CLASSES = ("nll_loss", "nll_loss_forward", "nll_loss2d_forward", "cross_entropy")


def numbers(record: GraphRecord, seen: InputsRecord | None = None) -> dict[str, int | float | bool]:
    """Symbol name -> number. An observed input wins over the hint; a symbol with neither gets a number inside its
    range."""
    by_symbol: dict[str, int | float | bool] = {}
    for symbol in record.symbols:
        if symbol.hint is not None:
            by_symbol[symbol.name] = symbol.hint
        else:
            wanted = max(symbol.lower if symbol.lower is not None else 0, UNKNOWN_SIZE)
            by_symbol[symbol.name] = wanted if symbol.upper is None else min(wanted, symbol.upper)
    known = {item.name: item for item in seen.inputs} if seen is not None else {}
    for node in record.graph.nodes:
        if node.op == "placeholder" and node.name in known:
            _learn(node, known[node.name], by_symbol)
    return by_symbol


def _learn(node: NodeRecord, item: InputRecord, by_symbol: dict[str, int | float | bool]) -> None:
    if isinstance(node.value, SymValue):
        if node.value.expr in by_symbol and item.scalar is not None:
            by_symbol[node.value.expr] = item.scalar
    elif isinstance(node.value, TensorValue) and isinstance(item.value, TensorValue):
        for symbolic, real in zip(node.value.shape, item.value.shape, strict=False):
            if isinstance(symbolic, str) and symbolic in by_symbol and isinstance(real, int):
                by_symbol[symbolic] = real


def size(dim: Dim, known: Numbers) -> int | None:
    """The number of a size, stride or offset; None when a symbol in it has none."""
    if isinstance(dim, int):
        return dim
    try:
        return int(evaluate(dim, known))
    except (GraphdbgError, ValueError, OverflowError):
        return None


def scalar(value: SymValue, known: Numbers) -> int | float | bool:
    """The number of a symbolic scalar."""
    try:
        number = evaluate(value.expr, known)
    except GraphdbgError:
        number = value.hint if value.hint is not None else UNKNOWN_SIZE
    return {"int": int, "float": float, "bool": bool}[value.kind](number)


def concrete(value: TensorValue, known: Numbers, where: str) -> TensorValue:
    """A tensor with numbers for all expressions; raises UnreadableError where an expression has no value."""

    def number(dim: Dim) -> int:
        known_size = size(dim, known)
        if known_size is None:
            raise ExpressionError(where, f"its size {dim!r} has no known value")
        return known_size

    return msgspec.structs.replace(
        value,
        shape=[number(dim) for dim in value.shape],
        stride=[number(dim) for dim in value.stride],
        offset=number(value.offset),
        storage_bytes=None if value.storage_bytes is None else number(value.storage_bytes),
    )


def spanned(value: TensorValue, where: str) -> int:
    """The `extent` of a concrete tensor; raises DamagedError for impossible sizes."""
    dims = (*value.shape, *value.stride, value.offset)
    if not all(isinstance(dim, int) and dim >= 0 for dim in dims) or len(value.shape) != len(value.stride):
        raise DamagedError(where, "its sizes and strides are not whole numbers")
    return extent(value.shape, value.stride, value.offset)


def extent(shape: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    """The number of elements that a view needs in its storage, offset included; 0 for an empty view."""
    return 0 if 0 in shape else offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def value_of_input(node: NodeRecord, item: InputRecord | None) -> Value | None:
    """The record of an input: as observed, else as recorded in the graph."""
    return item.value if item is not None and item.value is not None else node.value


def inputs_known(
    record: GraphRecord, seen: InputsRecord | None = None
) -> tuple[dict[str, InputRecord], dict[str, int | float | bool], dict[str, int]]:
    """The record of each input, by name: as seen in an execution, with the statistics from the graph's own record where
    the observed one has none (see `names`); the numbers of the symbols; and, for each integer placeholder that is used
    as an index, the number of valid indices (exclusive upper bound)."""
    inputs = {item.name: item for item in record.inputs}
    for item in seen.inputs if seen is not None else ():
        statistics = inputs[item.name].statistics if item.name in inputs else None
        inputs[item.name] = msgspec.structs.replace(item, statistics=item.statistics or statistics)
    known = numbers(record, seen)
    search = _HintSearch(record.graph, known)
    for node in record.graph.nodes:
        if node.op in ("call_function", "call_method"):
            search.node(node)
    return inputs, known, search.bounds


class _HintSearch:
    def __init__(self, body: GraphBody, known: Numbers) -> None:
        self.nodes = {node.name: node for node in body.nodes}
        self.known = known
        self.bounds: dict[str, int] = {}

    def node(self, node: NodeRecord) -> None:
        name = _op(node)
        args = node.args
        if name in _ROWS_OF_FIRST and len(args) > 1:
            table, index = args[0], args[1]
            if node.target.startswith("torch.nn.functional."):
                table, index = index, table
            self._limit(index, self._size(table, 0))
        elif name in _BY_DIM and args:
            places = zip(_BY_DIM[name], ("dim", "index"), strict=True)
            dim, index = (args[place] if place < len(args) else node.kwargs.get(word) for place, word in places)
            if isinstance(dim, int):
                self._limit(node.kwargs.get("indices", index), self._size(args[0], dim))
        elif name in _LISTS and len(args) > 1 and isinstance(args[1], list):
            for place, index in enumerate(cast("list[Arg]", args[1])):
                if index is not None:
                    self._limit(index, self._size(args[0], place))
        elif name in _CLASSES and len(args) > 1:
            self._limit(args[1], self._size(args[0], 1))

    def _limit(self, index: Arg, count: int | None) -> None:
        """Limits the integer placeholders from which an index is computed to `count`."""
        pending, seen = [index], set[str]()
        while pending:
            node = self.nodes.get(_name(pending.pop()))
            if node is None or node.name in seen:
                continue
            seen.add(node.name)
            if node.op == "placeholder":
                if count is not None and count > 0:
                    self.bounds[node.name] = min(count, self.bounds.get(node.name, count))
            elif _op(node) in _KEEPS_VALUES:
                pending.extend(leaf for leaf in leaves(node.args) if _name(leaf))

    def _size(self, arg: Arg, dim: int) -> int | None:
        node = self.nodes.get(_name(arg))
        value = node.value if node is not None else None
        if not isinstance(value, TensorValue) or not -len(value.shape) <= dim < len(value.shape):
            return None
        return size(value.shape[dim], self.known)


def _op(node: NodeRecord) -> str:
    """The bare op name of a node: "gather" for aten.gather.default, torch.gather and the method gather."""
    parts = node.target.split(".")
    of_a_library = node.op == "call_function" and len(parts) == 3 and parts[0] not in ("torch", "operator")
    name = parts[1] if of_a_library else parts[-1]
    return name if name in _LISTS else name.rstrip("_")


def _name(arg: Arg) -> str:
    tag, name = tag_of(arg)
    return name if tag == "node" else ""
