# pyright: basic
"""Triton kernels as users write them, for tests; a file of its own because Triton reads their source."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language import float32 as f32

from . import triton_parts
from .triton_parts import shifted

SCALE = tl.constexpr(3)
LIMIT = tl.constexpr(1e30)
INFINITY = tl.constexpr(float("-inf"))


@triton.constexpr_function
def half_of(number):
    return number // 2


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.jit
def scaled(x):
    return relu(x) * SCALE


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16}, num_warps=2), triton.Config({"BLOCK": 32}, num_warps=4, num_stages=2)],
    key=["n"],
    restore_value=["out"],
)
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask).to(DTYPE)
    value = scaled(value) + shifted(value) + half_of(4)
    tl.store(out + at, tl.minimum(value, LIMIT).to(tl.float32), mask)


@triton.jit
def aliased(x):
    """What Inductor's own form of a kernel has no right words for: an infinity, a dtype by another name, another
    module's."""
    tl.store(x, triton_parts.shifted(INFINITY).to(f32))


@triton.jit
def add(a, b, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(a + at, mask) + tl.load(b + at, mask), mask)


class Tuned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), DTYPE=tl.float32)
        added = torch.empty_like(x)
        add[(triton.cdiv(x.numel(), 32),)](x, out, added, x.numel(), BLOCK=32)
        return added.sin()

    @staticmethod
    def expected(x: torch.Tensor) -> torch.Tensor:
        return (x + (x.relu() * 3 + x + 0.5 + 2)).sin()
