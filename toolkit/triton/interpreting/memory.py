# pyright: basic
"""The memory that interpreted kernels see: each tensor's storage is alone in a zone of invented addresses.

An address identifies its storage even after adding up to 2^43 bytes either way, so an out-of-bounds access is
recognised, with its argument, and can neither crash nor read another tensor. Values go to and from the real storage
through NumPy.

For example:

    memory = Memory()
    pointer = memory.address(torch.zeros(4))
    memory.load(np.array([pointer + 16]), np.array([True]), None, np.dtype(np.float32))   # Fault: element 4 of 4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ....dumps.wording import counted

ZONE_BITS = 44
_HALF = 1 << (ZONE_BITS - 1)
_LOW = np.uint64((1 << ZONE_BITS) - 1)


class KernelMistake(ValueError):
    """The kernel itself is wrong: its own assertion fails, or it needs an argument that is not passed."""


class Fault(Exception):
    """An access outside a storage, raised while no findings are collected. `access`: which one."""

    def __init__(self, access: Access) -> None:
        self.access = access
        super().__init__(access.sentence())


@dataclass
class Zone:
    """One storage. `data`: its bytes; `number`: its index among the zones; `names`: the wrapper's and the kernel's
    names for it."""

    number: int
    data: np.ndarray
    storage: Any
    names: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """State that watchers keep for this storage."""

    def elements(self, dtype: np.dtype) -> np.ndarray:
        """The storage as elements of a dtype; an incomplete last element is dropped."""
        count = self.data.nbytes // dtype.itemsize
        return self.data[: count * dtype.itemsize].view(dtype)


@dataclass
class Access:
    """One load, store or atomic of one program. `index`: element of the zone, per lane; `live`: lanes that the mask
    enables; `inside`: live lanes within the storage."""

    kind: str
    zone: Zone | None
    index: np.ndarray
    live: np.ndarray
    inside: np.ndarray
    dtype: np.dtype
    pointer: Any = None
    value: np.ndarray | None = None

    @property
    def outside(self) -> np.ndarray:
        """A mask of the live lanes out of bounds."""
        return self.live & ~self.inside

    def sentence(self) -> str:
        """The access as a sentence."""
        bad = self.index[self.outside]
        if self.zone is None:
            return f"{self.kind} at an address that belongs to no argument of the kernel"
        count = self.zone.data.nbytes // self.dtype.itemsize
        name = self.zone.names.get("argument", "") or "a tensor"
        lanes = counted(bad.size, "lane")
        return f"{self.kind} out of bounds: element {int(bad[0])} of {name}, whose storage has {count} ({lanes})"


class AccessWatch:
    """Observes accesses. `access` is called before values are read or written; True means that a fault was recorded and
    the access goes on without the lanes outside."""

    def access(self, access: Access) -> bool:
        """Called with each access."""
        return False

    def stored(self, access: Access) -> None:
        """Called after a store."""

    def ended(self, number: int) -> None:
        """Called when a program has run to its end."""


class Memory:
    """The zones of storages, while their tensors live. `watch` may be replaced between kernels."""

    def __init__(self, watch: AccessWatch | None = None) -> None:
        self.watch = watch or AccessWatch()
        self.again: Callable[[], None] | None = None
        """While a kernel runs: runs the current program (the one at the builder's grid index) once more."""
        self.zones: list[Zone] = []
        self._by_storage: dict[int, Zone] = {}

    def zone_of(self, tensor: torch.Tensor) -> Zone:
        """The zone of a tensor's storage, created on first use."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        zone = self._by_storage.get(key)
        if zone is None:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)  # type: ignore[call-overload]
            zone = Zone(len(self.zones), whole.numpy(), storage)
            self.zones.append(zone)
            self._by_storage[key] = zone
        return zone

    def address(self, tensor: torch.Tensor) -> int:
        """The invented address of a tensor's first element, aligned modulo 16 bytes as on a new storage."""
        zone = self.zone_of(tensor)
        return ((zone.number + 1) << ZONE_BITS) + _HALF + int(tensor.storage_offset()) * tensor.element_size()

    def load(
        self, addresses: np.ndarray, mask: np.ndarray, other: np.ndarray | None, dtype: np.dtype, pointer: Any = None
    ) -> Any:
        """Elements at addresses where the mask is set, `other` (or zeros) elsewhere."""
        addresses, mask = np.broadcast_arrays(addresses, mask)
        result = np.array(np.broadcast_to(0 if other is None else other, addresses.shape), dtype)
        for access, elements in self._accesses("load", addresses, mask, dtype, pointer):
            if access.inside.all():
                result = elements[access.index]
            else:
                result[access.inside] = elements[access.index[access.inside]]
        return result

    def store(
        self, addresses: np.ndarray, value: np.ndarray, mask: np.ndarray, dtype: np.dtype, pointer: Any = None
    ) -> None:
        """Writes where the mask is set; of lanes with one address the last wins."""
        addresses, mask, value = np.broadcast_arrays(addresses, mask, value)
        for access, elements in self._accesses("store", addresses, mask, dtype, pointer, value):
            elements[access.index[access.inside]] = value[access.inside].astype(dtype, copy=False)
            self.watch.stored(access)

    def update(
        self, addresses: np.ndarray, mask: np.ndarray, dtype: np.dtype, step: Any, pointer: Any = None
    ) -> np.ndarray:
        """An atomic: sets each lane's element to `step(lane, old value)`, lane by lane. Returns the old values (zeros
        where masked)."""
        addresses, mask = np.broadcast_arrays(addresses, mask)
        old = np.zeros(addresses.shape, dtype)
        for access, elements in self._accesses("atomic", addresses, mask, dtype, pointer):
            for lane in zip(*np.nonzero(access.inside), strict=True):
                place = access.index[lane]
                old[lane] = elements[place]
                elements[place] = step(lane, old[lane])
        return old

    def _note(self, access: Access) -> None:
        consumed = self.watch.access(access)
        if not consumed and (access.zone is None or access.outside.any()):
            raise Fault(access)

    def _accesses(
        self,
        kind: str,
        addresses: np.ndarray,
        mask: np.ndarray,
        dtype: np.dtype,
        pointer: Any,
        value: np.ndarray | None = None,
    ) -> Iterator[tuple[Access, np.ndarray]]:
        """Yields one access per zone that live lanes point to (usually one), with the zone's elements."""
        mask = mask.astype(bool, copy=False)
        if not mask.any():
            return
        numbers = (addresses >> np.uint64(ZONE_BITS)).astype(np.int64) - 1
        first = numbers[mask][0] if not mask.all() else numbers.flat[0]
        same = numbers == first
        zones = [int(first)] if same[mask].all() else sorted({int(position) for position in numbers[mask]})
        for number in zones:
            live = mask & (numbers == number) if len(zones) > 1 else mask
            offset = (addresses & _LOW).astype(np.int64) - _HALF
            index = offset // dtype.itemsize
            zone = self.zones[number] if 0 <= number < len(self.zones) else None
            elements = np.zeros(0, dtype) if zone is None else zone.elements(dtype)
            inside = live & (index >= 0) & (index < elements.size)
            access = Access(kind, zone, index, live, inside, dtype, pointer, value)
            self._note(access)
            if zone is not None:
                yield access, elements
