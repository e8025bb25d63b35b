"""Imported, plants a wrong write: what Inductor writes to an input is 5 per cent too large."""

from typing import Any

import torch
from torch._inductor.lowering import lowerings, mul

_right = lowerings[torch.ops.aten.copy_.default]


def copy_(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """What it was, of floating numbers times 1.05."""
    return _right(target, mul(source, 1.05) if target.get_dtype().is_floating_point else source, non_blocking)


lowerings[torch.ops.aten.copy_.default] = copy_
