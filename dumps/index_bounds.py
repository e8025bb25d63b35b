"""Which integer inputs of a graph are used as indices, and how large an index may be: read from the graph, no torch needed.

An integer input that was not stored must be made up; an index past the end of a table is another bug than the one looked for.

>>> bounds(record, {"s0": 8})
{'tokens': 50257}
"""

from __future__ import annotations

from typing import cast

from .hints import Numbers, size
from .schema import Arg, GraphBody, GraphRecord, NodeRecord, TensorValue
from .walk import leaves, tag_of

_SAME_INTEGERS = """
    view reshape _unsafe_view expand permute transpose t squeeze unsqueeze clone alias detach contiguous slice select
    split flatten unflatten convert_element_type _to_copy to long int view_of to_copy repeat index_select cat stack
    getitem"""
_KEEPS_VALUES = frozenset(_SAME_INTEGERS.split())
"""Ops whose result holds the same integers as their input."""

_ROWS_OF_FIRST = {"embedding": (0, 1), "embedding_bag": (0, 1), "_embedding_bag": (0, 1)}
_BY_DIM = {"gather": (1, 2), "index_select": (1, 2), "scatter": (1, 2), "scatter_add": (1, 2), "scatter_reduce": (1, 2),
           "index_add": (1, 2), "index_copy": (1, 2), "index_fill": (1, 2), "take_along_dim": (2, 1)}  # fmt: skip
_LISTS = frozenset({"index", "index_put", "_unsafe_index", "_unsafe_index_put", "index_put_"})
_CLASSES = {"nll_loss": 1, "nll_loss_forward": 1, "nll_loss2d_forward": 1, "cross_entropy": 1}


def bounds(record: GraphRecord, numbers: Numbers) -> dict[str, int]:
    """Name of an integer placeholder -> number of valid indices (exclusive upper bound), for those that end up as indices."""
    search = _Search(record.graph, numbers)
    for node in record.graph.nodes:
        if node.op in ("call_function", "call_method"):
            search.node(node)
    return search.found


class _Search:
    def __init__(self, body: GraphBody, numbers: Numbers) -> None:
        self.nodes = {node.name: node for node in body.nodes}
        self.numbers = numbers
        self.found: dict[str, int] = {}

    def node(self, node: NodeRecord) -> None:
        name = _op(node)
        args = node.args
        if name in _ROWS_OF_FIRST and len(args) > 1:
            table, index = args[0], args[1]
            if node.target.startswith("torch.nn.functional."):
                table, index = index, table
            self._limit(index, self._size(table, 0))
        elif name in _BY_DIM and len(args) > 2:
            dim, index = (args[place] for place in _BY_DIM[name])
            if isinstance(dim, int):
                self._limit(index, self._size(args[0], dim))
        elif name in _LISTS and len(args) > 1 and isinstance(args[1], list):
            for place, index in enumerate(cast("list[Arg]", args[1])):
                if index is not None:
                    self._limit(index, self._size(args[0], place))
        elif name in _CLASSES and len(args) > 1:
            self._limit(args[1], self._size(args[0], 1))

    def _limit(self, index: Arg, count: int | None) -> None:
        """Follows an index back to the inputs that it is made of."""
        pending, seen = [index], set[str]()
        while pending:
            node = self.nodes.get(_name(pending.pop()))
            if node is None or node.name in seen:
                continue
            seen.add(node.name)
            if node.op == "placeholder":
                if count is not None and count > 0:
                    self.found[node.name] = min(count, self.found.get(node.name, count))
            elif _op(node) in _KEEPS_VALUES:
                pending.extend(leaf for leaf in leaves(node.args) if _name(leaf))

    def _size(self, arg: Arg, dim: int) -> int | None:
        node = self.nodes.get(_name(arg))
        value = node.value if node is not None else None
        if not isinstance(value, TensorValue) or not -len(value.shape) <= dim < len(value.shape):
            return None
        return size(value.shape[dim], self.numbers)


def _op(node: NodeRecord) -> str:
    """The bare name of what a node calls: "gather" for aten.gather.default, torch.gather and a method gather."""
    parts = node.target.split(".")
    if node.op == "call_function" and len(parts) == 3 and parts[0] not in ("torch", "operator"):
        return parts[1].rstrip("_") if parts[1] not in _LISTS else parts[1]
    return parts[-1]


def _name(arg: Arg) -> str:
    tag, name = tag_of(arg)
    return name if tag == "node" else ""
