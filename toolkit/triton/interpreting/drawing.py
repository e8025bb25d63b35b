# pyright: basic
"""Makes kernels draw random numbers as Inductor's C++ kernels do, so that a graph judged on the CPU has one reference
for both.

Triton's functions derive other numbers from the same Philox words. The functions that Inductor's kernels call are
replaced for the time of a judgement; everything else runs unchanged. A kernel that calls `tl.philox` itself is not
affected.

For example:

    with interpreted(), drawing_like_cpu():
        run(kernel, arguments, constants, grid, memory)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from ...live import eager
from ...torch_private import all_replaced, triton_helpers
from ._triton import Handle

_LOW = 0xFFFFFFFF


def drawing_like_cpu() -> contextlib.AbstractContextManager[None]:
    """Within the block, kernels draw as Inductor's C++ kernels do; to be used inside `interpreted()`."""
    functions: list[tuple[Any, str, Callable[..., Any]]] = [
        (tl, "rand", _rand),
        (tl, "randn", _randn),
        (triton_helpers, "rand4x", _rand),
        (triton_helpers, "randn4x", _randn),
        (triton_helpers, "randint64", _randint),
    ]
    return all_replaced(row for row in functions if hasattr(*row[:2]))


def _rand(seed: Any, offset: Any, *_: Any) -> Any:
    return _tensor(eager.rand_at(_index(offset), _seed(seed)), tl.float32)


def _randn(seed: Any, offset: Any, *_: Any) -> Any:
    return _tensor(eager.randn_at(_index(offset), _seed(seed)), tl.float32)


def _randint(seed: Any, offset: Any, low: Any, high: Any) -> Any:
    return _tensor(eager.randint_at(_number(low), _number(high), _index(offset), _seed(seed)), tl.int64)


def _index(offset: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(offset.handle.data, np.int64) & _LOW)


def _seed(seed: Any) -> torch.Tensor:
    return torch.tensor(_number(seed))


def _number(value: Any) -> int:
    return int(value.handle.data.flat[0]) if isinstance(value, tl.tensor) else int(value)


def _tensor(numbers: torch.Tensor, kind: Any) -> Any:
    return tl.tensor(Handle(numbers.numpy(), kind), tl.block_type(kind, list(numbers.shape)))
