"""Inputs that have to start on 16 bytes: which ones generated kernels rely on, and the copy of those that do not.

>>> inputs_to_check([torch.empty(4, device="cuda")], static_input_idxs=())
[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _torch as t


def inputs_to_check(inputs: Sequence[Any], static_input_idxs: Sequence[int]) -> list[int]:
    """Indices of GPU inputs whose start each call has to look at: kernels assume 16 bytes, and nothing promises them.

    Static inputs that are aligned now stay so; inputs that are known to be unaligned get kernels that assume nothing.
    """
    return list(t.stock.get_input_idxs_to_check(inputs, static_input_idxs))
