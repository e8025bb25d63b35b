# pyright: basic
"""Writes whose order torch leaves open: when `index_put`, `scatter` or `index_copy` put several values into one place,
any of them may be the last. `Reversed` makes them write in reverse order, so that results that depend on the order
differ.

>>> x, at, values = torch.zeros(2), torch.tensor([0, 1, 1]), torch.tensor([1.0, 2.0, 3.0])
>>> with Reversed():
...     x.index_put((at,), values)
tensor([1., 2.])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from .. import torch_private as t
from .eager import nodes_in


class Reversed(t.TorchDispatchMode):
    """Within the block, these operators write their last value first; without repeated places nothing changes. Loops,
    branches and flex attention run as usual."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet, named = getattr(func, "overloadpacket", None), kwargs or {}
        turned = packet and _TURNED.get(f"{packet.__name__.strip('_')}.{func._overloadname}")
        if turned is not None:
            given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | named
            return func(**(given | turned(given)))
        return func(*args, **named)


def may_write_twice(gm: fx.GraphModule) -> bool:
    """Whether a graph, or a graph inside it, calls one of these operators, under any of their names."""
    return any(name in str(node.target) for node in nodes_in(gm) if node.op.startswith("call_") for name in _NAMES)


def _along_dim(given: dict[str, Any]) -> dict[str, Any]:
    """`scatter` and `index_copy`: index and source are flipped along the indexed dimension."""
    source = "src" if "src" in given else "source"
    index, values = given["index"], given[source]
    if not index.dim() or not values.dim():
        return {}
    dim = given["dim"]
    if source == "source":
        return {"index": index.flip(0), source: values.flip(dim)}
    part = values[tuple(slice(size) for size in index.shape)]
    return {"index": index.flip(dim), source: part.flip(dim)}


def _indexed(given: dict[str, Any]) -> dict[str, Any]:
    """`index_put`: all indices and the values are flipped along each dimension that the indices have in common."""
    there = [at for at, index in enumerate(given["indices"]) if index is not None]
    given_indices = [given["indices"][at] for at in there]
    if given.get("accumulate") or any(index.dtype in (torch.bool, torch.uint8) for index in given_indices):
        return {}
    first, *_ = indices = torch.broadcast_tensors(*given_indices)
    dims, shape = list(range(first.dim())), given["self"].shape
    rest = [size for dim, size in enumerate(shape) if dim not in there]
    at = there[0] if there[-1] - there[0] + 1 == len(there) else 0
    values = given["values"].expand(*rest[:at], *first.shape, *rest[at:]).flip([at + dim for dim in dims])
    put = dict(zip(there, (index.flip(dims) for index in indices), strict=True))
    return {"indices": [put.get(place) for place in range(len(given["indices"]))], "values": values}


_TURNED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "scatter.src": _along_dim,
    "index_copy.default": _along_dim,
    "index_put.default": _indexed,
    "unsafe_index_put.default": _indexed,
    "index_put_impl.default": _indexed,
}
_NAMES = ("scatter", "index_copy", "index_put", "setitem")
