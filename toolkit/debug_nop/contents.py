"""What a tensor holds, kept for a comparison by bits: a copy, or for a large one two sums over its bits.

Version counters do not tell: kernels of custom ops write below them, and tensors of inference mode have none. Two sums miss a
change that leaves both the same; that takes a large tensor and a great coincidence. Must not change the tensor.

>>> before = contents(x); x.add_(1); before.same(x)
False
"""

from __future__ import annotations

import torch

COPIED_BYTES = 16 * 2**20
"""Up to this size a copy is made; above, sums are kept, which need no memory."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Contents:
    """The bits of one tensor at one time."""

    def __init__(self, bits: torch.Tensor) -> None:
        self.copied = bits.numel() * bits.element_size() <= COPIED_BYTES
        self.kept = bits.clone() if self.copied else _sums(bits)

    def same(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor still holds the same bits; one whose shape was changed in place is looked at as far as it can be."""
        bits = _bits(tensor)
        if bits is None:
            return True
        now = bits if self.copied else _sums(bits)
        return now.shape == self.kept.shape and now.dtype == self.kept.dtype and bool(torch.equal(now, self.kept))


def contents(tensor: torch.Tensor) -> Contents | None:
    """What a tensor holds; None for one without readable data (meta, sparse, quantised)."""
    bits = _bits(tensor)
    return None if bits is None else Contents(bits)


def _bits(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.is_quantized or 0 in tensor.shape:
        return None
    with torch.no_grad():
        plain = tensor.detach()
        if plain.is_conj() or plain.is_neg():
            plain = plain.resolve_conj().resolve_neg()
        if plain.element_size() > 8:
            plain = torch.view_as_real(plain)
        return plain.view(_INTEGERS[plain.element_size()])


def _sums(bits: torch.Tensor) -> torch.Tensor:
    """The sum of all bits as integers, and that of the first half along the longest dimension."""
    longest = max(range(bits.dim()), key=bits.size)
    half = bits.narrow(longest, 0, (bits.size(longest) + 1) // 2)
    return torch.stack([bits.sum(dtype=torch.int64), half.sum(dtype=torch.int64)])
