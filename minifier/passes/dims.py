"""Dims: replaces sizes by smaller ones, in the shapes of inputs and in size arguments.

Equal sizes change together; a size that is a product of others follows them (24 = 2 * 12). What eager refuses is not
proposed. First all sizes go to 2, then to 1, which changes broadcasting; then they are halved. Then the same with the
sizes of windows (kernels, strides, paddings, results) as further sizes: an image cannot become smaller than the window
that moves over it.

>>> propose(case)
[['dims 2 1']]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...dumps.torchside.history import Base, bases_of, computed
from ...dumps.torchside.values import fake_of
from ...toolkit import torch_private as t
from ...toolkit.cutting.atoms import is_symbolic
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from ...toolkit.live.gpu_only import is_tied
from . import Pass
from .forms import fitting
from .symbolic import renewed

SMALL = (2, 1)
MOST_SIZES = 24
WINDOWS = "windows"
"""Ends an edit that holds for the sizes of windows too."""
_WINDOW_ARGUMENTS = frozenset({"kernel_size", "stride", "padding", "dilation", "output_size", "output_padding"})
_SIZE_METHODS = frozenset(
    {"view", "reshape", "expand", "split", "chunk", "unflatten", "new_zeros", "new_empty", "new_full", "repeat"}
)


def propose(case: Live) -> list[list[str]]:
    """Rounds of "dims FROM TO": to 2, to 1, halves. A round has all its edits where eager takes all at once, else those
    that it takes alone."""
    if is_tied(case.gm):
        return []
    sizes = _sizes(case)
    return fitting(case, [*_rounds(sizes, 4), *_with_windows(case, sizes)], apply)


def _rounds(sizes: list[int], least: int, more: str = "") -> list[list[str]]:
    """Rounds of edits: sizes to 2, to 1, and halves of those larger than `least`."""
    smaller = [[f"dims {size} {small}{more}" for size in sizes if size > small] for small in SMALL]
    return [*smaller, [f"dims {size} {size // 2}{more}" for size in sizes if size > least]]


def _with_windows(case: Live, sizes: list[int]) -> list[list[str]]:
    """The rounds of `_rounds` over sizes of inputs and of windows (kernel sizes, strides), which change together.

    Smallest first: 8 to 4 before 4 to 2 would make 2 of both.
    """
    windows = {size for node in case.gm.graph.nodes for size in _window_sizes(node) if size > 1}
    if not windows:
        return []
    return _rounds(sorted({*sizes, *windows})[:MOST_SIZES], 1, f" {WINDOWS}")


def _window_sizes(node: fx.Node) -> list[int]:
    """Sizes of windows in an operator's arguments; in those of a plain function, which names no types, all numbers in a
    list."""
    if node.op != "call_function":
        return []
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        listed = [item for item in (*node.args, *node.kwargs.values()) if isinstance(item, (list, tuple))]
        return [size for item in listed for size in item if type(size) is int]
    names = [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    windows = [given[name] for name in _WINDOW_ARGUMENTS if name in given]
    return [size for size in t.tree_leaves(windows) if type(size) is int]


def _sizes(case: Live) -> list[int]:
    """The distinct sizes of inputs above 1, largest first, without those that are products of others."""
    sizes = _all_sizes(case)
    products = {left * other for left in sizes for other in sizes}
    return sorted(sizes - products, reverse=True)[:MOST_SIZES]


def _all_sizes(case: Live) -> set[int]:
    return {size for value in case.inputs if isinstance(value, torch.Tensor) for size in value.shape if size > 1}


def apply(case: Live, edit: str) -> Live:
    """The case with one size replaced everywhere. Inputs are cut, not made again; indices wrap round."""
    _, old_text, new_text, *more = edit.split(" ")
    old, new, windows = int(old_text), int(new_text), WINDOWS in more

    sizes = _all_sizes(case)

    def substitute(size: int) -> int:
        if size == old:
            return new
        rest, remainder = divmod(size, old)
        if remainder or rest < 2 or rest not in sizes:
            return size
        return new * (new if rest == old else rest)

    inputs = list(case.inputs)
    for place, node in enumerate(case.gm.graph.find_nodes(op="placeholder")):
        if isinstance(inputs[place], torch.Tensor):
            inputs[place] = _cut(inputs[place], substitute, old, new)
        elif type(inputs[place]) is int and is_symbolic(fake_of(node)):
            inputs[place] = substitute(inputs[place])
    gm = copy_graph(case.gm)
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method"):
            resize_arguments(node, substitute, windows=windows)
    gm.recompile()
    return renewed(case, gm, inputs)


def _cut(value: torch.Tensor, substitute: Any, old: int, new: int) -> torch.Tensor:
    if value.layout is not torch.strided:
        return value
    shape = [substitute(size) for size in value.shape]
    small = value.detach()
    for dim, size in enumerate(shape):
        small = small.narrow(dim, 0, min(size, small.shape[dim]))
    return laid(within(small, old, new), value, shape)


def within(flat: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """Whole numbers below the size `old`, which may be indices, stay below `new`."""
    whole = not flat.is_floating_point() and not flat.is_complex() and flat.dtype is not torch.bool
    if whole and flat.numel() and not isinstance(flat, t.FakeTensor) and new <= int(flat.max()) < old:
        return flat % new
    return flat


def laid(flat: torch.Tensor, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of `shape` with the values of `flat`; its dimensions lie in memory in the same order as those of `like`,
    and it is a view where that is one."""
    strides, step = [0] * like.dim(), 1
    for dim in sorted(range(like.dim()), key=lambda dim: (like.stride(dim), -dim)):
        strides[dim] = 0 if like.stride(dim) == 0 and like.shape[dim] > 1 else step
        step *= shape[dim] if strides[dim] else 1
    out = torch.empty_strided(tuple(shape), strides, dtype=like.dtype, device=like.device)
    if not isinstance(flat, t.FakeTensor):
        out.copy_(flat)
    bases = {at: Base(out.dtype, (step,), (1,), 0, *base[-2:]) for at, base in bases_of([like]).items()}
    return computed([out.requires_grad_(like.requires_grad)], (), bases)[0]


def resize_arguments(node: fx.Node, substitute: Any, *, windows: bool) -> None:
    """Replaces sizes where the operator's schema declares a size (SymInt), or anywhere in a method that takes sizes;
    those of `windows` too."""

    def resized(value: Any) -> Any:
        return map_aggregate(value, lambda part: substitute(part) if type(part) is int else part)

    schema = getattr(node.target, "_schema", None)
    if schema is None:
        if node.op == "call_function" or node.target in _SIZE_METHODS:
            node.args, node.kwargs = resized(node.args), resized(node.kwargs)
        return
    sized = {argument.name for argument in schema.arguments if "SymInt" in argument.real_type.str()}
    sized |= _WINDOW_ARGUMENTS if windows else frozenset()
    named = zip([argument.name for argument in schema.arguments], node.args, strict=False)
    node.args = tuple(resized(value) if name in sized else value for name, value in named)
    node.kwargs = {name: resized(value) if name in sized else value for name, value in node.kwargs.items()}


PASS = Pass(
    order=40,
    words="smaller shapes",
    edits={"dims * * *": "sizes of {1} made {2}, those of windows too", "dims * *": "sizes of {1} made {2}"},
    unneeded={"dims": "the original sizes"},
)
