"""Imported, plants a crash of the compiler: Inductor's lowering of tanh raises."""

import torch
from torch._inductor.lowering import lowerings


def _crash(*args: object) -> None:
    raise ZeroDivisionError("the planted lowering of tanh")


lowerings[torch.ops.aten.tanh.default] = _crash
