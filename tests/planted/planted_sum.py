"""Imported, plants a wrong sum: of what was computed for it alone, element by element, it is 5 per cent too large."""

from typing import Any

import torch
from torch._inductor.ir import StorageBox, TensorBox
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
_right = lowerings[aten.sum.dim_IntList]


def wrong_sum(x: Any, *args: Any, **kwargs: Any) -> Any:
    """What it was, where its argument lies in memory."""
    inside = x.data.data if isinstance(x, TensorBox) and isinstance(x.data, StorageBox) else None
    value = _right(x, *args, **kwargs)
    return lowerings[aten.mul.Tensor](value, 1.05) if type(inside).__name__ == "Pointwise" else value


lowerings[aten.sum.dim_IntList] = wrong_sum
