"""Imported, plants a decomposition that raises: Inductor's table cannot take silu apart."""

import torch
from torch._inductor.decomposition import decompositions


def _raise(x: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError(f"the planted decomposition of silu takes no tensor of size {tuple(x.shape)}")


decompositions[torch.ops.aten.silu.default] = _raise
