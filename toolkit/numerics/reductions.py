"""How many terms the reductions of a graph add up, per node and the longest on the way to each output; the coarsest
rounding on that way.

The length is the number of input elements per output element, for a product of matrices its inner dimension. It comes from
recorded metadata alone (`meta["val"]`), with symbols at their hints; without metadata it is 1, and the fixed part of a
tolerance is all there is. Must not run anything.

>>> reduction_length(node)        # aten.sum.dim_IntList of (8, 4096) over dimension 1
4096
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..execution import leaves

_REDUCING = frozenset({
    "sum", "mean", "var", "std", "var_mean", "std_mean", "prod", "cumsum", "cumprod", "logsumexp", "norm", "linalg_vector_norm",
    "nansum", "nanmean", "logcumsumexp", "trace",
})  # fmt: skip
_NORMALISING = frozenset({
    "softmax", "_softmax", "log_softmax", "_log_softmax", "native_layer_norm", "layer_norm", "native_group_norm",
    "_native_batch_norm_legit", "native_batch_norm", "_softmax_backward_data", "_log_softmax_backward_data",
    "native_layer_norm_backward",
})  # fmt: skip
_PRODUCT = frozenset({
    "mm", "bmm", "matmul", "linear", "addmm", "baddbmm", "addmv", "mv", "dot", "vdot", "einsum", "_addmm_activation",
})  # fmt: skip
_CONVOLUTION = frozenset({
    "convolution", "conv1d", "conv2d", "conv3d", "_convolution", "convolution_backward", "conv_transpose2d",
})  # fmt: skip
_ATTENTION = ("scaled_dot_product",)


def reduction_length(node: fx.Node) -> int:
    """How many terms go into one element of this node's value: 1 for what reduces nothing or is not known."""
    name = _base_name(node)
    shapes = [shape for arg in node.all_input_nodes for shape in _shapes(arg)]
    if not shapes:
        return 1
    if name in _PRODUCT:
        return _inner(node, name)
    if name in _CONVOLUTION:
        return max((_product(shape[1:]) for shape in shapes if len(shape) > 2), default=1)
    if any(word in name for word in _ATTENTION):
        return max((max(shape[-2:]) for shape in shapes if len(shape) >= 2), default=1)
    largest = max(_product(shape) for shape in shapes)
    if name in _NORMALISING:
        return max(max(shape, default=1) for shape in shapes)
    if name not in _REDUCING:
        return 1
    out = max((_product(shape) for shape in _shapes(node)), default=1)
    if name.startswith(("cum", "logcum")):
        return max(max(shape, default=1) for shape in shapes)
    return max(1, largest // max(1, out))


def output_lengths(gm: fx.GraphModule) -> list[int]:
    """For each flat output the longest reduction among what it is computed from."""
    return _on_the_way(gm, lambda node: reduction_length(node) if node.op in ("call_function", "call_method") else 1, 1)


def output_grains(gm: fx.GraphModule) -> list[float]:
    """For each flat output the largest eps of a floating-point value that is computed on the way to it; 0 where nothing is known.

    A float32 result behind a region in bfloat16 is as good as bfloat16.
    """
    return _on_the_way(gm, lambda node: 0.0 if node.op in ("placeholder", "get_attr") else _grain(node), 0.0)


def _on_the_way(gm: fx.GraphModule, own: Callable[[fx.Node], Any], least: Any) -> list[Any]:
    """For each flat output the largest of `own` among what it is computed from; `least` where nothing is known."""
    largest: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            return [largest.get(getattr(leaf, "name", ""), least) for leaf in leaves(node.args[0])]
        largest[node.name] = max([own(node), *(largest.get(arg.name, least) for arg in node.all_input_nodes)])
    return []


def _grain(node: fx.Node) -> float:
    dtypes = [one.dtype for one in _tensors(node) if one.is_floating_point() or one.is_complex()]
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def _inner(node: fx.Node, name: str) -> int:
    """The inner dimension: the last one of the first factor."""
    factors = [shape for arg in node.args if isinstance(arg, fx.Node) for shape in _shapes(arg)]
    if name in ("addmm", "baddbmm", "addmv", "_addmm_activation"):
        factors = factors[1:]
    return max(1, factors[0][-1]) if factors and factors[0] else 1


def _base_name(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    return name.partition(".")[0]


def _shapes(node: fx.Node) -> list[tuple[int, ...]]:
    return [tuple(_number(size) for size in one.shape) for one in _tensors(node)]


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val", node.meta.get("example_value"))
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in parts if isinstance(one, torch.Tensor)]


def _number(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)  # int(size) would guard on it
    return hint if isinstance(hint, int) else 1


def _product(sizes: tuple[int, ...]) -> int:
    return math.prod(max(1, size) for size in sizes)
