"""Operators that a CUDA graph cannot hold, each with the user's line and the reason. Only reads the graph.

The operators, tags and the mask rule are those by which Inductor decides where it splits a graph; what runs on the CPU
it splits off, too.

>>> [str(one) for one in unfit_nodes(gm)]
['aten.nonzero.default (model.py:12): its size is known on the GPU alone']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from ....dumps.sidecar import user_frame
from .. import _torch as t

_PUTS = ("aten.index_put.default", "aten.index_put_.default", "aten._unsafe_index_put.default")


class Unfit(NamedTuple):
    """A node that splits a graph, or keeps it from being recorded."""

    node: str
    op: str
    line: str
    why: str

    def __str__(self) -> str:
        return f"{self.op} ({self.line}): {self.why}" if self.line else f"{self.op}: {self.why}"


def unfit_nodes(gm: Any, *, with_cpu: bool = True) -> list[Unfit]:
    """All such nodes in order, none of what is no graph; without those that run on the CPU if `with_cpu` is False."""
    found: list[Unfit] = []
    for node in gm.graph.nodes if hasattr(gm, "graph") else ():
        if node.op == "call_function" and (why := _why(node) or (_on_cpu(node) if with_cpu else "")):
            found.append(Unfit(node.name, str(node.target), user_frame(node.meta.get("stack_trace") or "")[0], why))
    return found


def _why(node: Any) -> str:
    target = node.target
    if str(target) in t.cudagraph_unsafe_ops():
        return "it waits for the GPU or keeps state on the CPU"
    if torch.Tag.cudagraph_unsafe in getattr(target, "tags", ()):  # overloads have tags
        return "its author has marked it cudagraph_unsafe"
    if str(target) in _PUTS:
        indices = node.kwargs.get("indices", node.args[1] if len(node.args) > 1 else ())
        masks = [
            index for index in indices if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8)
        ]
        if masks:
            return "how many elements a mask picks is known on the GPU alone"
    values = list(_values(node))
    if any(isinstance(value, torch.Tensor) and value.is_sparse for value in values):
        return "it makes a sparse tensor"
    if any(t.free_unbacked_symbols(value) for value in values):
        return "its size is known on the GPU alone"
    return ""


def _on_cpu(node: Any) -> str:
    devices = {value.device.type for value in _values(node) if isinstance(value, torch.Tensor)}
    taken = {
        value.device.type
        for one in node.all_input_nodes
        for value in _values(one)
        if isinstance(value, torch.Tensor) and value.dim()
    }
    if "cpu" in devices:
        return "it copies to the CPU" if "cuda" in taken else "it runs on the CPU"
    return "it copies from the CPU" if "cpu" in taken and "cuda" in devices else ""


def _values(node: Any) -> Iterator[Any]:
    yield from t.pytree.tree_leaves(node.meta.get("val"))
