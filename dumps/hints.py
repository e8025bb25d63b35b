"""A number for every symbol of a graph, so that inputs can be made and sizes shown: as seen in an execution, else the hint.

>>> numbers(record)["s0"], size("2*s0 + 1", {"s0": 8})
(8, 17)
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .errors import GraphdbgError, UnreadableError
from .expr_values import evaluate
from .schema import Dim, GraphRecord, InputRecord, InputsRecord, NodeRecord, SymValue, TensorValue, Value

Numbers = Mapping[str, int | float | bool]

UNKNOWN_SIZE = 4
"""What a symbol without hint gets where its range allows it: neither 0 nor 1, which would be special."""


def numbers(record: GraphRecord, seen: InputsRecord | None = None) -> dict[str, int | float | bool]:
    """Symbol name -> number. An observed input wins over the hint; a symbol with neither gets a number inside its range."""
    found: dict[str, int | float | bool] = {}
    for symbol in record.symbols:
        if symbol.hint is not None:
            found[symbol.name] = symbol.hint
        else:
            wanted = max(symbol.lower if symbol.lower is not None else 0, UNKNOWN_SIZE)
            found[symbol.name] = wanted if symbol.upper is None else min(wanted, symbol.upper)
    known = {item.name: item for item in seen.inputs} if seen is not None else {}
    for node in record.graph.nodes:
        if node.op == "placeholder" and node.name in known:
            _learn(node, known[node.name], found)
    return found


def _learn(node: NodeRecord, item: InputRecord, found: dict[str, int | float | bool]) -> None:
    if isinstance(node.value, SymValue):
        if node.value.expr in found and item.scalar is not None:
            found[node.value.expr] = item.scalar
    elif isinstance(node.value, TensorValue) and isinstance(item.value, TensorValue):
        for symbolic, real in zip(node.value.shape, item.value.shape, strict=False):
            if isinstance(symbolic, str) and symbolic in found and isinstance(real, int):
                found[symbolic] = real


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
    kinds: dict[str, type[int] | type[float] | type[bool]] = {"int": int, "float": float, "bool": bool}
    return kinds[value.kind](number)


def concrete(value: TensorValue, known: Numbers, where: str) -> TensorValue:
    """The same tensor with numbers for all expressions; UnreadableError where one has none."""

    def number(dim: Dim) -> int:
        found = size(dim, known)
        if found is None:
            raise UnreadableError(where, f"its size {dim!r} has no number")
        return found

    return msgspec.structs.replace(
        value,
        shape=[number(dim) for dim in value.shape],
        stride=[number(dim) for dim in value.stride],
        offset=number(value.offset),
        storage_bytes=None if value.storage_bytes is None else number(value.storage_bytes),
    )


def spanned(value: TensorValue, where: str) -> int:
    """How many elements a concrete tensor spans in its storage, its offset included; 0 for an empty one."""
    dims = (*value.shape, *value.stride, value.offset)
    if not all(isinstance(dim, int) and dim >= 0 for dim in dims) or len(value.shape) != len(value.stride):
        raise UnreadableError(where, "its sizes and strides are not whole numbers")
    if 0 in value.shape:
        return 0
    pairs = zip(value.shape, value.stride, strict=True)
    return int(value.offset) + 1 + sum((int(extent) - 1) * int(step) for extent, step in pairs)


def value_of_input(node: NodeRecord, item: InputRecord | None) -> Value | None:
    """What is known of an input: as observed, else as recorded in the graph."""
    return item.value if item is not None and item.value is not None else node.value
