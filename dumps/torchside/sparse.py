# pyright: basic
"""Sparse tensors as one run of bytes: indices, then values. How many there are follows from the length.

Taken are coordinates without dense dimensions (sparse_coo) and compressed rows or columns of a matrix (sparse_csr, sparse_csc);
others keep their shape alone.

>>> unpacked(storage_of(packed(matrix)), TensorValue(dtype="float32", shape=[4, 4], layout="sparse_coo"), torch.float32, "")
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UnreadableError
from ..schema import TensorValue

_INDEX_BYTES = 8


def packable(tensor: torch.Tensor) -> bool:
    """Whether a sparse tensor has such a form."""
    if tensor.layout is torch.sparse_coo:
        return tensor.dense_dim() == 0 and tensor.sparse_dim() > 0
    return tensor.layout in (torch.sparse_csr, torch.sparse_csc) and tensor.dim() == 2


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, on the CPU."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        parts = [tensor.indices(), tensor.values()]
    elif tensor.layout is torch.sparse_csr:
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    else:
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    wide = [*(part.to(torch.int64) for part in parts[:-1]), parts[-1]]
    return torch.cat([part.cpu().contiguous().reshape(-1).view(torch.uint8) for part in wide])


def unpacked(storage: torch.UntypedStorage, value: TensorValue, dtype: torch.dtype, where: str) -> torch.Tensor:
    """The tensor; UnreadableError where the bytes make none, which is checked before it is made."""
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
    shape: list[Any] = list(value.shape)
    lead = 0 if value.layout == "sparse_coo" else shape[0 if value.layout == "sparse_csr" else 1] + 1
    rows = len(shape) if value.layout == "sparse_coo" else 1
    count, rest = divmod(flat.numel() - lead * _INDEX_BYTES, rows * _INDEX_BYTES + dtype.itemsize)
    if rest or count < 0 or not all(isinstance(size, int) for size in shape):
        raise UnreadableError(where, f"{flat.numel()} bytes are no {value.layout} tensor of that shape")
    cuts = [lead * _INDEX_BYTES, rows * count * _INDEX_BYTES, count * dtype.itemsize]
    pointers, indices, values = (part.clone() for part in flat.split(cuts))
    values = values.view(dtype)
    indices = indices.view(torch.int64).reshape(rows, count)
    try:
        if value.layout == "sparse_coo":
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True).coalesce()
        make = torch.sparse_csr_tensor if value.layout == "sparse_csr" else torch.sparse_csc_tensor
        return make(pointers.view(torch.int64), indices[0], values, shape, check_invariants=True)
    except (RuntimeError, TypeError) as error:
        raise UnreadableError(where, f"its indices make no tensor ({str(error).splitlines()[0]})") from error
