"""Copies of inputs into the memory that a CUDA graph was recorded with: any strides, expanded dimensions, overlapping windows.

What is prepared once is prepared once: a copy in each call is one operation per input, and one for all of those that are plain.

>>> target = Target(given, index=0)
>>> target.buffer.stride() == given.stride()
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....dumps.errors import UsageError
from .. import _torch as t
from ..input_names import name_at
from ..overlap import expanded_dims, overlaps_itself, without_expanded


class Target:
    """Memory of its own for one input, and how values get into it and back.

    Expanded dimensions are written once. What overlaps beyond that is copied as memory, with the strides as they were: element by
    element it would depend on the order.
    """

    def __init__(self, given: torch.Tensor, index: int) -> None:
        self.index = index
        self.size = given.size()
        self.buffer = torch.empty_strided(given.size(), given.stride(), dtype=given.dtype, device=given.device)
        self.dims = expanded_dims(given)
        self.as_memory = overlaps_itself(given, expanded=False)
        self._inside = _flat(self.buffer) if self.as_memory else without_expanded(self.buffer, self.dims)

    @property
    def is_plain(self) -> bool:
        """Whether the whole of an input is copied into the whole of the buffer."""
        return not self.dims and not self.as_memory

    def fill(self, given: torch.Tensor) -> None:
        """Brings an input's values in."""
        self._inside.copy_(self._part(given))

    def hand_back(self, given: torch.Tensor) -> None:
        """Brings what a call has written out to the input."""
        self._part(given).copy_(self._inside)

    def _part(self, given: torch.Tensor) -> torch.Tensor:
        return _flat(given) if self.as_memory else without_expanded(given, self.dims)


class Targets:
    """All inputs that are copied in each call."""

    def __init__(self, targets: Sequence[Target], names: Sequence[Any] = ()) -> None:
        self.all = list(targets)
        self._names = names
        self._special = [target for target in self.all if not target.is_plain]
        plain = [target for target in self.all if target.is_plain]
        self._indices = [target.index for target in plain]
        self._buffers = [target.buffer for target in plain]

    def fill(self, inputs: Sequence[Any]) -> None:
        """Copies every input to its place; plain ones in one operation."""
        if self._indices:
            t.copy_all(self._buffers, [inputs[index] for index in self._indices])
        for target in self._special:
            target.fill(inputs[target.index])

    def check_sizes(self, inputs: Sequence[Any]) -> None:
        """Raises UsageError for an input with other sizes than recorded, or other strides where these matter."""
        for target in self.all:
            given = inputs[target.index]
            if given.size() != target.size or (target.as_memory and given.stride() != target.buffer.stride()):
                raise UsageError(
                    "the recorded CUDA graph cannot be replayed",
                    f"{name_at(self._names, target.index)} has sizes {_layout(given)}, "
                    f"and was recorded with {_layout(target.buffer)}",
                    "call it with inputs of the recorded sizes, or compile it again",
                )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All memory from the first element to the last, as one dimension."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,))


def _layout(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.size())} and strides {tuple(tensor.stride())}"
