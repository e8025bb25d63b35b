"""Imported, plants a kernel that breaks its promise: silu gives values in another order of memory than its fake kernel
says."""

import torch

_LIBRARY = torch.library.Library("aten", "IMPL")


def _transposed(x: torch.Tensor) -> torch.Tensor:
    value = x * torch.sigmoid(x)
    return value.flip(0).flip(0) if value.dim() < 2 else value.mT.contiguous().mT


_LIBRARY.impl("silu", _transposed, "CPU")
