"""Imported, plants a decomposition of another dtype: that of silu gives float64."""

import torch
from torch._inductor.decomposition import decompositions

decompositions[torch.ops.aten.silu.default] = lambda x: (x * torch.sigmoid(x)).double()
