"""Imported, plants a wrong lowering: Inductor's tanh is one per cent too large."""

import torch
from torch._inductor.lowering import lowerings, mul

_right = lowerings[torch.ops.aten.tanh.default]

lowerings[torch.ops.aten.tanh.default] = lambda x: mul(_right(x), 1.01)
