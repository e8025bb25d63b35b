"""Imported, plants a decomposition that makes NaN: that of silu divides nothing by nothing."""

import torch
from torch._inductor.decomposition import decompositions

decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) + (x - x) / (x - x)
