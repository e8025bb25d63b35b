"""Statistics of every value of a graph while it runs eagerly: range, mean, spread, counts of what is odd. No value is
kept.

A tensor is read in blocks; mean and variance of blocks are joined by the update of Chan, Golub and LeVeque (Updating
Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979; the block form of Welford's), which loses
nothing to a large mean. NaN and Inf are counted and left out of the rest. The values stay as they are.

>>> rows = list(node_statistics(gm, inputs))
>>> rows[6].name, rows[6].nan
('addmm', 0)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch
from torch import fx

from ..live.eager import each_node
from ..live.execution import as_bytes, tensors_in

BLOCK = 1 << 20


class NodeStatistics(msgspec.Struct, omit_defaults=True):
    """One row: a node's tensor (`part` numbers those of a node with several). min, max, mean and std are of the finite
    elements; None where there are none.
    """

    name: str
    target: str
    part: int | None
    shape: list[int]
    dtype: str
    count: int
    min: float | None = None
    max: float | None = None
    mean: float | None = None
    std: float | None = None
    nan: int = 0
    inf: int = 0
    subnormal: int = 0
    zeros: int = 0


class Streamed:
    """Statistics accumulated block by block; `mean`, `std` (divided by the count), `min` and `max` are of finite
    elements, None where there are none."""

    def __init__(self) -> None:
        self.count = self.nan = self.inf = self.subnormal = self.zeros = 0
        self.min: float | None = None
        self.max: float | None = None
        self.mean: float | None = None
        self.std: float | None = None
        self._finite, self._m2 = 0, 0.0

    def add(self, tensor: torch.Tensor) -> None:
        """Adds the elements of a tensor of any dtype and layout; complex numbers count by their magnitude, packed ones
        as bytes."""
        plain = as_bytes(tensor.detach())
        if plain.layout != torch.strided:
            plain = plain.to_dense()
        if plain.is_quantized:
            plain = plain.dequantize()
        tiny = torch.finfo(plain.dtype).tiny if plain.is_floating_point() or plain.is_complex() else 0.0
        for block in _blocks(plain):
            self._take(block.abs() if block.is_complex() else block, tiny)

    def _take(self, block: torch.Tensor, tiny: float) -> None:
        values = block.to(torch.float64)
        self.count += values.numel()
        self.nan += int(torch.isnan(values).sum())
        self.inf += int(torch.isinf(values).sum())
        finite = values[torch.isfinite(values)]
        if not finite.numel():
            return
        size = finite.abs()
        self.zeros += int((size == 0).sum())
        self.subnormal += int(((size > 0) & (size < tiny)).sum())
        least, most = float(finite.min()), float(finite.max())
        self.min = least if self.min is None else min(self.min, least)
        self.max = most if self.max is None else max(self.max, most)
        count, mean, known = finite.numel(), float(finite.mean()), self.mean or 0.0
        m2 = float((finite - mean).square().sum())
        total, gap = self._finite + count, mean - known
        self._m2 += m2 + gap * gap * self._finite * count / total
        self.mean, self.std = known + gap * count / total, math.sqrt(self._m2 / total)
        self._finite = total


def described(tensors: Iterable[torch.Tensor]) -> Streamed:
    """The statistics of all elements of some tensors."""
    streamed = Streamed()
    for tensor in tensors:
        streamed.add(tensor)
    return streamed


def node_statistics(gm: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[NodeStatistics]:
    """Runs a graph eagerly on `inputs` (which it may change: pass clones) and yields a row for each tensor as soon as
    its node ran. Raises GraphRunError where a node fails.
    """
    for node, value in each_node(gm, inputs):
        if node.op == "output":
            return
        tensors = tensors_in(value)
        for part, tensor in enumerate(tensors):
            yield _row(node, tensor, part if len(tensors) > 1 else None)


def _row(node: fx.Node, tensor: torch.Tensor, part: int | None) -> NodeStatistics:
    statistics = described([tensor])
    target = node.op if node.op in ("placeholder", "get_attr") else str(getattr(node.target, "__name__", node.target))
    numbers = {name: getattr(statistics, name) for name in NodeStatistics.__struct_fields__[5:]}
    dtype = str(tensor.dtype).removeprefix("torch.")
    return NodeStatistics(node.name, target, part, list(tensor.shape), dtype, **numbers)


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the elements in flat blocks, without copying the whole."""
    if tensor.dim() == 0 or tensor.is_contiguous():
        flat = tensor.reshape(-1)
        yield from flat.split(BLOCK)
    elif tensor.numel() <= BLOCK:
        yield tensor.reshape(-1)
    else:
        for slab in tensor.unbind(0):
            yield from _blocks(slab)
