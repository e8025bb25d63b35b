# pyright: basic
"""What a user's kernels take from another module of theirs."""

from __future__ import annotations

import triton
import triton.language as tl

AMOUNT = tl.constexpr(0.5)


@triton.jit
def shifted(x):
    return x + AMOUNT
