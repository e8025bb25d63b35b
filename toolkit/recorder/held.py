"""Copies of a graph's inputs in host memory, one per graph, made before each execution and overwritten by the next.

With the policy `last` the copy is in a file that survives the process (`dumps.held`), else in memory. Whole storages
are copied, each once, before the graph may change them; on a GPU the copy is queued before the graph's kernels on the
same stream. No reference to an input is kept, and all copies together stay within the limit.

For example:

    copy = Copy(budget, names, roles)
    copy.take([torch.ones(3)], execution=1); copy.inputs(put=store.put).execution  # -> 1
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps import held
from ...dumps.errors import CannotWriteError
from ...dumps.schema import FORMAT, InputRecord, InputsRecord
from ...dumps.tensors import Bytes
from ...dumps.torchside.live_values import dtype_of, view
from ...dumps.torchside.observed import snapshot
from ...dumps.torchside.values import storage_bytes
from ..live.torch_state import ambient, generators

_ALIGNED = 64
_LARGE_BYTES = 1 << 22
"""torch copies larger storages with several threads; for smaller ones the call costs more than the copy."""


class CopyBudget:
    """The limit in bytes for all copies of a process together, and how many are used."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.most = 0
        self._lock = threading.Lock()

    def grant(self, more: int) -> bool:
        """Reserves `more` bytes (negative: frees them), if that stays within the limit."""
        with self._lock:
            if more > 0 and self.used + more > self.limit:
                return False
            self.used += more
            self.most = max(self.most, self.used)
            return True


class OverLimit(Exception):
    """A copy does not fit; `needed` bytes were wanted."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class Copy:
    """The inputs of one graph's newest execution. `whole`: False before the first copy and while one is being made."""

    def __init__(
        self, budget: CopyBudget, names: Sequence[str], roles: Sequence[InputRecord], paths: Sequence[Path] = ()
    ) -> None:
        self.budget = budget
        self.names = list(names)
        self.roles = {role.name: role for role in roles}
        self.paths = list(paths)
        self.whole = False
        self.execution = 0
        self.lock = threading.RLock()
        self._file: held.HeldFile | None = None
        self._host: torch.Tensor | None = None
        self._record: held.HeldRecord | None = None
        self._events: list[Any] = []
        self._pinned = False

    @property
    def size_bytes(self) -> int:
        """The bytes that the copy takes on the host."""
        return 0 if self._host is None else self._host.numel()

    def take(self, inputs: Sequence[Any], execution: int) -> None:
        """Copies the inputs. Raises OverLimit, or EnvironmentLackError for a full disk."""
        with self.lock:
            self.whole = False
            items, storages = snapshot(self.names, inputs)
            for item in items:
                if item.name in self.roles:
                    item.role, item.source = self.roles[item.name].role, self.roles[item.name].source
            states = generators()
            sizes = [storage.nbytes() for storage in storages] + [state.numel() for _, state in states]
            places, size = _laid_out(sizes)
            seen = InputsRecord(format=FORMAT, policy="last", inputs=items, ambient=ambient(), execution=execution)
            spans = places[: len(storages)]
            named = [(name, *place) for (name, _), place in zip(states, places[len(storages) :], strict=True)]
            self._record = held.HeldRecord(inputs=seen, spans=spans, generators=named)
            text = msgspec.json.encode(self._record) if self.paths else b""
            self._reserve(size + len(text))
            if self._file is not None:
                self._file.tear(execution)
            self._copy([*storages, *(state.untyped_storage() for _, state in states)], places)
            if self._file is not None:
                self._file.buffer[size : size + len(text)] = text
                self._file.finish(execution, size, len(text))
            self.execution, self.whole = execution, True

    def _reserve(self, size: int) -> None:
        had = self.size_bytes
        if size <= had:
            return
        size += size // 8 if had else 0  # leaves room for sizes that grow a little each time
        pinned = not self.paths and torch.cuda.is_available() and torch.cuda.is_initialized()
        if pinned:
            size = 1 << (size - 1).bit_length()  # rounds up as torch's pinned allocator does
        if not self.budget.grant(size - had):
            raise OverLimit(size)
        try:
            if not self.paths:
                self._host = None
                self._host, self._pinned = _empty(size, pinned)
                return
            if self._file is None:
                self._file = held.HeldFile(self.paths)
            self._file.reserve(size)
            self._host = torch.frombuffer(self._file.buffer, dtype=torch.uint8)
        except (OSError, RuntimeError) as error:
            self.budget.grant(had - size)
            raise CannotWriteError("cannot hold inputs", str(error), "give --held-limit a smaller size") from error

    def _copy(self, storages: Sequence[torch.UntypedStorage], places: Sequence[tuple[int, int]]) -> None:
        host = self._host
        assert host is not None
        start, pinned, devices = host.data_ptr(), self._pinned, set[torch.device]()
        for storage, (at, size) in zip(storages, places, strict=True):
            if size == 0:
                continue
            on_cpu = storage.device.type == "cpu"
            if on_cpu and size < _LARGE_BYTES:
                ctypes.memmove(start + at, storage.data_ptr(), size)
                continue
            flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            host[at : at + size].copy_(flat, non_blocking=pinned and not on_cpu)
            if pinned and storage.device.type == "cuda":
                devices.add(storage.device)
        for device in devices:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)

    def finish(self) -> None:
        """Waits until what was queued on devices has arrived."""
        with self.lock:
            while self._events:
                self._events.pop().synchronize()

    def tensors(self) -> list[torch.Tensor | None]:
        """Views of the held inputs on the host, None for an input that is no plain tensor. Use them before the next
        `take`."""
        with self.lock:
            self.finish()
            assert self._record is not None and self._host is not None
            views: list[torch.Tensor | None] = []
            for item in self._record.inputs.inputs:
                if item.stored is None or not item.stored.storage or item.stored.value.quantizer:
                    views.append(None)
                    continue
                at, size = self._record.spans[int(item.stored.storage[1:])]
                value = item.stored.value
                storage = (self._host[at : at + size] if size else self._host[:0]).clone().untyped_storage()
                views.append(view(storage, value, dtype_of(value.dtype, item.name), item.name))
            return views

    def inputs(self, put: Callable[[Bytes], str]) -> InputsRecord:
        """The record of the held inputs, their storages passed to `put`. For a copy that is `whole` only."""
        with self.lock:
            self.finish()
            assert self._record is not None and self._host is not None
            data = storage_bytes(self._host.untyped_storage())
            parts = [data[at : at + size] for at, size in self._record.spans]
            states = [(name, data[at : at + size]) for name, at, size in self._record.generators]
            return held.settled(held.HeldContents(self.execution, self._record.inputs, list(parts), list(states)), put)

    def drop(self) -> None:
        """Frees the memory, and deletes the file."""
        with self.lock:
            self.budget.grant(-self.size_bytes)
            # torch aborts where it cannot free pinned memory: keep it to the end
            if self._pinned and _device_failed():
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._host))
            self.whole, self._host, self._record = False, None, None
            self._events.clear()
            if self._file is not None:
                self._file.remove()
                self._file = None


def _device_failed() -> bool:
    try:
        torch.cuda.current_stream().query()
    except RuntimeError:
        return True
    return False


def _empty(size: int, pinned: bool) -> tuple[torch.Tensor, bool]:
    """Uninitialised host memory, and whether it is pinned (if the system allows); raises RuntimeError when there is
    none."""
    if pinned:
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True, device="cpu"), True
        except RuntimeError:  # above the limit for pinned memory
            pass
    return torch.empty(size, dtype=torch.uint8, device="cpu"), False


def _laid_out(sizes: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of each part after the file's head, and the end of the last part."""
    places: list[tuple[int, int]] = []
    at = held.DATA_AT
    for size in sizes:
        places.append((at, size))
        at += -(-size // _ALIGNED) * _ALIGNED
    return places, at
