"""Imported, plants a wrong decomposition: Inductor's table gives silu one per cent too much."""

import torch
from torch._inductor.decomposition import decompositions

decompositions[torch.ops.aten.silu.default] = lambda x: 1.01 * (x * torch.sigmoid(x))
