"""Imported, plants wrong code for a symbolic size: tanh of a tensor whose first size is a symbol is of twice its
input."""

from typing import Any

import torch
from torch._inductor.lowering import lowerings

_right = lowerings[torch.ops.aten.tanh.default]


def tanh(x: Any) -> Any:
    """What it was, where the first size is a number."""
    sizes = x.get_size()
    if sizes and not getattr(sizes[0], "is_number", True):
        x = lowerings[torch.ops.aten.mul.Tensor](x, 2)
    return _right(x)


lowerings[torch.ops.aten.tanh.default] = tanh
