# pyright: basic
"""What is known of each storage while kernels run: which elements were ever written, and by which program of this
launch.

A storage without a shadow holds values everywhere: inputs, results of library calls. Shadows go with their storage, not
with its address: a weak reference keeps the address from being given to another.

For example:

    shadows = Shadows()
    shadows.allocated(torch.empty(4))
    shadows.of(zone).written  # -> array([False, False, False, False])
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..triton.interpreting.memory import Zone

SEVERAL = -1


class Shadow:
    """Of one storage, in grains of `grain` bytes. `written`: None where all of it holds values. `writer` and `reader`:
    program + 1 of this launch, 0 for none, SEVERAL readers; None before the first."""

    def __init__(self, size_bytes: int, grain: int, reference: Any, *, holds: bool) -> None:
        self.size_bytes, self.grain, self.reference = size_bytes, grain, reference
        self.written: np.ndarray | None = None if holds else np.zeros(self.count, bool)
        self.launch = -1
        self.writer: np.ndarray | None = None
        self.reader: np.ndarray | None = None
        self.read = self.wrote = False
        self.by: tuple[str, int, str] | None = None
        """The kernel that wrote to it last, its line and what stands there."""

    @property
    def count(self) -> int:
        """How many grains there are."""
        return -(-self.size_bytes // self.grain)

    def begin(self, launch: int) -> None:
        """Forgets who wrote and read, at the first access of a launch."""
        self.launch, self.writer, self.reader, self.read, self.wrote = launch, None, None, False, False
        if self.written is not None and self.written.all():
            self.written = None

    def places(self, index: np.ndarray, width: int) -> np.ndarray:
        """Elements of `width` bytes -> grains, a last dimension more where an element has several."""
        if width == self.grain:
            return index
        if width < self.grain:
            self._refine(width)
            return index
        times = width // self.grain
        return index[..., None] * times + np.arange(times)

    def _refine(self, width: int) -> None:
        times = self.grain // width
        self.grain = width
        for name in ("written", "writer", "reader"):
            known = getattr(self, name)
            if known is not None:
                setattr(self, name, np.repeat(known, times)[: self.count])


class Shadows:
    """The shadows of one run."""

    def __init__(self) -> None:
        self._known: dict[int, Shadow] = {}

    def clear(self) -> None:
        """Forgets everything at the start of a wrapper: all that it gets holds values."""
        self._known.clear()

    def allocated(self, tensor: torch.Tensor) -> None:
        """Records a fresh storage that holds nothing."""
        if len(self._known) % 64 == 63:
            self._known = {key: shadow for key, shadow in self._known.items() if not shadow.reference.expired()}
        storage = tensor.untyped_storage()
        self._known[storage._cdata] = Shadow(
            storage.nbytes(), tensor.element_size(), StorageWeakRef(storage), holds=False
        )

    def filled(self, tensor: torch.Tensor) -> None:
        """Records that something outside of kernels wrote all elements of a tensor."""
        shadow = self._known.get(tensor.untyped_storage()._cdata)
        if shadow is not None and shadow.written is not None:
            _elements(shadow, tensor)[...] = True

    def holes(self, tensor: torch.Tensor) -> tuple[int, tuple[str, int, str] | None]:
        """How many elements of a tensor nothing wrote, and the kernel that wrote the others."""
        shadow = self._known.get(tensor.untyped_storage()._cdata)
        if shadow is None or shadow.written is None or not tensor.numel():
            return 0, None
        return int((~_elements(shadow, tensor)).sum()), shadow.by

    def of(self, zone: Zone) -> Shadow:
        """The shadow of a zone of memory."""
        shadow = zone.facts.get("shadow")
        if shadow is None:
            shadow = self._known.get(zone.storage._cdata)
            if shadow is None:
                shadow = Shadow(zone.data.nbytes, 16, StorageWeakRef(zone.storage), holds=True)
                self._known[zone.storage._cdata] = shadow
            zone.facts["shadow"] = shadow
        return shadow


def _elements(shadow: Shadow, tensor: torch.Tensor) -> np.ndarray:
    """A writable view of `written` with the tensor's own shape (a last dimension more for several grains an
    element)."""
    assert shadow.written is not None
    width = tensor.element_size()
    if width < shadow.grain:
        shadow._refine(width)
    times = width // shadow.grain
    steps = [stride * times for stride in tensor.stride()]
    shape = tuple(tensor.shape)
    if times > 1:
        shape, steps = (*shape, times), [*steps, 1]
    base = shadow.written[tensor.storage_offset() * times :]
    return np.lib.stride_tricks.as_strided(base, shape, steps, writeable=True)
