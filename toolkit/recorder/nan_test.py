"""Which tensors of a list hold a NaN: one reduction each and one wait for the device, whatever their number.

On the CPU a sum shows it: a NaN anywhere makes it NaN. So does +inf beside -inf, hence a second look then; the -inf of
a mask alone does not. On accelerators the norms of all tensors are one fused reduction, and no infinity makes them NaN.
Keeps no tensor.

>>> test = NanTest(); test.add([torch.ones(2), torch.tensor([1.0, float("nan")])]); test.places()
{1}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..live.torch_state import norms

_TESTED = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.complex128)
"""Dtypes with arithmetic; smaller floats have none, and their NaN shows in what is computed from them."""


class NanTest:
    """A test in progress: `add` starts it, `places` waits for it."""

    def __init__(self) -> None:
        self._found: set[int] = set()
        self._waiting: list[tuple[list[int], torch.Tensor]] = []

    def add(self, values: Sequence[Any], first: int = 0) -> None:
        """Tests the tensors among the values; their places count from `first`."""
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        for place, value in enumerate(values, first):
            kind = type(value)
            plain = kind is torch.Tensor or kind is torch.nn.Parameter
            if plain and value.dtype in _TESTED and value.layout is torch.strided and not value.is_meta:
                groups.setdefault((value.device, value.dtype), []).append((place, value))
        for (device, _), members in groups.items():
            places, tensors = [place for place, _ in members], [tensor for _, tensor in members]
            if device.type == "cpu":
                self._on_cpu(places, tensors)
            else:
                self._waiting.append((places, torch.stack(norms(tensors))))

    def _on_cpu(self, places: list[int], tensors: list[torch.Tensor]) -> None:
        sums = torch.stack([tensor.sum() for tensor in tensors])
        if not bool(torch.isnan(sums).any()):
            return
        for place, tensor in zip(places, tensors, strict=True):
            if bool(torch.isnan(tensor.sum())) and bool(torch.isnan(tensor).any()):
                self._found.add(place)

    def places(self) -> set[int]:
        """The places of the values with a NaN; waits for the devices."""
        for places, flags in self._waiting:
            nan = torch.isnan(flags).tolist()
            self._found.update(place for place, is_nan in zip(places, nan, strict=True) if is_nan)
        self._waiting.clear()
        return self._found
