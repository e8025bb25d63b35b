# pyright: basic
"""Watches every access of every kernel of a run and collects faults.

Also: keeps the state of each storage while kernels run: which elements were ever written, and by which program of this
launch.

Bounds are those of the real storage. Events of values (overflowed indices, NaN and infinities) are only noticed here;
the program then runs once more, with values followed (`tracking`).

For example:

    checking = Checking(wrappers)
    Session(checking)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...dumps.wording import counted
from ..live.eager import clone_inputs
from ..triton.interpreting.builder import not_finite
from ..triton.interpreting.memory import Access, AccessWatch, Zone
from ..triton.interpreting.session import InterpretedLaunch, LaunchObserver
from .findings import KernelFault
from .tracking import Collected, LaunchPlace, followed
from .wrapper import Wrapper, Wrappers

SEVERAL = -1


class StorageShadow:
    """The state of one storage, in grains of `grain` bytes. `written`: None where all of it has values. `writer`,
    `reader`: per grain, program + 1 in this launch, 0 for none, SEVERAL for several readers; None before the first
    access."""

    def __init__(self, size_bytes: int, grain: int, reference: Any, *, holds: bool) -> None:
        self.size_bytes, self.grain, self.reference = size_bytes, grain, reference
        self.written: np.ndarray | None = None if holds else np.zeros(self.count, bool)
        self.launch = -1
        self.writer: np.ndarray | None = None
        self.reader: np.ndarray | None = None
        self.read = self.wrote = False
        self.by: tuple[str, int, str] | None = None
        """The kernel that wrote to it last, with the line's number and text."""

    @property
    def count(self) -> int:
        """The number of grains."""
        return -(-self.size_bytes // self.grain)

    def begin(self, launch: int) -> None:
        """Clears writers and readers, at a launch's first access."""
        self.launch, self.writer, self.reader, self.read, self.wrote = launch, None, None, False, False
        if self.written is not None and self.written.all():
            self.written = None

    def places(self, index: np.ndarray, width: int) -> np.ndarray:
        """Converts indices of elements with `width` bytes to grains; with one more dimension where an element has
        several."""
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
    """The states of all storages of one run."""

    def __init__(self) -> None:
        self._known: dict[int, StorageShadow] = {}

    def clear(self) -> None:
        """Clears everything at the start of a wrapper: all of its inputs have values."""
        self._known.clear()

    def allocated(self, tensor: torch.Tensor) -> None:
        """Records a new, uninitialised storage."""
        if len(self._known) % 64 == 63:
            self._known = {key: shadow for key, shadow in self._known.items() if not shadow.reference.expired()}
        storage = tensor.untyped_storage()
        weak = StorageWeakRef(storage)
        self._known[storage._cdata] = StorageShadow(storage.nbytes(), tensor.element_size(), weak, holds=False)

    def filled(self, tensor: torch.Tensor) -> None:
        """Records that something other than a kernel wrote all elements of a tensor."""
        shadow = self._known.get(tensor.untyped_storage()._cdata)
        if shadow is not None and shadow.written is not None:
            _elements(shadow, tensor)[...] = True

    def holes(self, tensor: torch.Tensor) -> tuple[int, tuple[str, int, str] | None]:
        """How many elements of a tensor were never written, and the kernel that wrote the others."""
        shadow = self._known.get(tensor.untyped_storage()._cdata)
        if shadow is None or shadow.written is None or not tensor.numel():
            return 0, None
        return int((~_elements(shadow, tensor)).sum()), shadow.by

    def of(self, zone: Zone) -> StorageShadow:
        """The state of a memory zone's storage."""
        if "shadow" not in zone.facts:
            key = zone.storage._cdata
            if key not in self._known:
                self._known[key] = StorageShadow(zone.data.nbytes, 16, StorageWeakRef(zone.storage), holds=True)
            zone.facts["shadow"] = self._known[key]
        return zone.facts["shadow"]


def _elements(shadow: StorageShadow, tensor: torch.Tensor) -> np.ndarray:
    """A writable view of `written` in the tensor's shape (one more dimension where an element has several grains)."""
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


_OWN = "{}, whose index names a place twice, does so in the graph itself"


class WrapperCall(NamedTuple):
    """One call of a wrapper, with copies of its inputs."""

    call: Callable[..., Any]
    wrapper: Wrapper | None
    inputs: list[Any]


class Checking(LaunchObserver):
    """Checks the launches of a run. `only`: the kernel to report on; `active`: False while a run is not to be
    checked."""

    def __init__(self, wrappers: Wrappers, only: str | None = None) -> None:
        self.wrappers, self.only = wrappers, only
        self.collected = Collected()
        self.shadows = Shadows()
        self.runs: list[WrapperCall] = []
        self.kernels: set[str] = set()
        self.launches = self.calls = 0
        self.operators: Counter[str] = Counter()
        self.born: list[tuple[KernelFault, LaunchPlace, str, torch.Tensor]] = []
        """Findings about values, each with a mask of the buffer's non-finite elements after the kernel has run."""
        self.outside: dict[tuple[str, int], KernelFault] = {}
        self.watch: LaunchWatch | None = None
        self.active = True
        self._again: Counter[tuple[str, int]] = Counter()
        self._launched: Counter[str] = Counter()
        self._inside = False

    # reported by the builder

    def overflowed(self, output: Any, lanes: np.ndarray) -> None:
        """Records that a signed integer overflowed in some lanes."""
        if self.watch is not None and self.active:
            self.watch.overflowed(output, lanes)

    def asserted(self, lanes: np.ndarray, message: str) -> None:
        """Records that `tl.device_assert` failed."""
        if self.watch is not None and self.active:
            self.watch.asserted(lanes, message)

    # reported by the session

    def began(self, call: Callable[..., Any], inputs: list[Any]) -> None:
        if not self.active:
            return
        self.shadows.clear()
        self._launched.clear()
        self.runs.append(WrapperCall(call, self.wrappers.of(call), clone_inputs(list(inputs))))

    def before(self, launch: InterpretedLaunch) -> AccessWatch | None:
        if not self.active:
            return None
        self._inside = True
        if self.only is not None and launch.kernel != self.only:
            return _Lenient()
        self.kernels.add(launch.kernel)
        self.launches += 1
        wrapper = self.runs[-1].wrapper if self.runs else None
        place = wrapper.place(launch, self._launched[launch.kernel]) if wrapper is not None else LaunchPlace(launch)
        self._launched[launch.kernel] += 1
        self.watch = LaunchWatch(self, place)
        return self.watch

    def after(self, launch: InterpretedLaunch) -> None:
        if not self.active:
            return
        self._inside = False
        if self.watch is None:
            for tensor in launch.tensors.values():
                self.shadows.filled(tensor)
        else:
            self.watch.finish()
            self.watch = None

    def allocated(self, tensor: torch.Tensor) -> None:
        if self.active:
            self.shadows.allocated(tensor)

    def called(self, operator: Any, read: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        if not self.active or self._inside or not (read or written):
            return
        self.calls += 1
        self.operators[str(operator)] += 1
        given = {written_tensor.untyped_storage()._cdata for written_tensor in written}
        for tensor in read:
            if tensor.untyped_storage()._cdata not in given:
                self._unread(tensor, f"{operator} reads")
        for tensor in written:
            self.shadows.filled(tensor)

    def ended(self, outputs: Any) -> None:
        if not self.active or self.only is not None:
            return
        wrapper = self.runs[-1].wrapper
        names = wrapper.outputs if wrapper is not None else []
        for place, tensor in enumerate(outputs):
            node = names[place] if place < len(names) else ""
            if isinstance(tensor, torch.Tensor) and not (wrapper is not None and wrapper.is_empty(node)):
                self._unread(tensor, f"the graph returns as output {place}", node)

    def _unread(self, tensor: torch.Tensor, who: str, node: str = "") -> None:
        """Records a read of uninitialised memory outside of kernels as a fault of the kernel that wrote the rest."""
        holes, by = self.shadows.holes(tensor)
        if not holes or by is None:
            return
        kernel, line, text = by
        detail = f"it leaves out {holes} of {counted(tensor.numel(), 'element')} of what {who}"
        fault = KernelFault("uninitialised", kernel, max(0, self.launches - 1), line=line, text=text, detail=detail)
        fault.lanes, fault.node, fault.programs = holes, node, 0
        fault.shape, fault.dtype = [int(size) for size in tensor.shape], str(tensor.dtype).removeprefix("torch.")
        wrapper = self.runs[-1].wrapper
        if wrapper is not None:
            fault.nodes, fault.lines = wrapper.behind(kernel, max(0, self._launched[kernel] - 1))
        self.outside.setdefault((kernel, line), fault)

    def findings(self) -> list[KernelFault]:
        """All findings, notes among them."""
        return [*self.collected.all(), *self.outside.values()]

    def may_run_again(self, kernel: str, line: int) -> bool:
        """Whether to run a program again with its values followed: at the 1st, 2nd, 4th, 8th and so on suspicion of a
        line."""
        self._again[kernel, line] += 1
        return self._again[kernel, line].bit_count() == 1


class _Lenient(AccessWatch):
    def access(self, access: Access) -> bool:
        return True


class LaunchWatch(AccessWatch):
    """Checks the accesses of one launch."""

    def __init__(self, checking: Checking, place: LaunchPlace) -> None:
        self.checking, self.place = checking, place
        self.launch = place.launch
        x, y, z = (int(index) for index in self.launch.grid)
        self.alone = x * y * z == 1
        self.suspects: dict[int, None] = {}
        """Lines that stored a non-finite value, or computed an integer that overflowed, in this program."""
        self.undo: list[tuple[Zone, np.dtype, np.ndarray, np.ndarray]] = []
        self.synchronised: set[int] = set()
        """Programs that executed an atomic: what they wrote before it may be read by programs after an atomic of their
        own."""
        self.read_only = self._read_only()
        self.births: list[tuple[KernelFault, str]] = []

    def _read_only(self) -> set[int]:
        """Storages that generated code only reads, so that their readers need not be recorded."""
        changed = set(getattr(self.launch.autotuner, "inductor_meta", {}).get("mutated_arg_names", ()))
        storages: dict[int, bool] = {}
        for name, tensor in self.launch.tensors.items():
            key = tensor.untyped_storage()._cdata
            storages[key] = storages.get(key, True) and name.startswith("in_ptr") and name not in changed
        return {key for key, only in storages.items() if only}

    # reported by the memory

    def access(self, access: Access) -> bool:
        zone = access.zone
        if zone is None:
            self._add(access.kind, access, access.live, detail="the address belongs to no argument of the kernel")
            return True
        if np.count_nonzero(access.live) != np.count_nonzero(access.inside):
            self._add(access.kind, access, access.outside)
        shadow = self.checking.shadows.of(zone)
        if shadow.launch != self.launch.number:
            shadow.begin(self.launch.number)
        {"load": self._load, "store": self._store}.get(access.kind, self._atomic)(access, zone, shadow)
        return True

    def _load(self, access: Access, zone: Zone, shadow: StorageShadow) -> None:
        shadow.read = True
        private = self.alone or zone.storage._cdata in self.read_only
        if shadow.written is None and private:
            return
        places = self._places(access, shadow)
        if shadow.written is not None:
            self._unwritten(access, shadow.written[places])
        if private:
            return
        me = self.place.number + 1
        if shadow.writer is not None:
            self._others(access, shadow.writer[places], "read-write")
        if shadow.reader is None:
            shadow.reader = np.zeros(shadow.count, np.int32)
            shadow.reader[places] = me
        else:
            before = shadow.reader[places]
            shadow.reader[places] = np.where((before == 0) | (before == me), me, SEVERAL)

    def _store(self, access: Access, zone: Zone, shadow: StorageShadow) -> None:
        places = self._places(access, shadow)
        if shadow.read:
            self._remember(access, zone)
        if not self.alone:
            if shadow.writer is None:
                shadow.writer = np.zeros(shadow.count, np.int32)
            else:
                self._others(access, shadow.writer[places], "write-write", same=zone)
            if shadow.reader is not None:
                self._others(access, shadow.reader[places], "read-write")
            shadow.writer[places] = self.place.number + 1
        if shadow.written is not None:
            shadow.written[places] = True
            if not shadow.wrote:
                self._by(shadow)
        self._not_finite(access)

    def _by(self, shadow: StorageShadow) -> None:
        shadow.wrote, line = True, self.place.line()
        shadow.by = self.launch.kernel, line, self.place.text(line)

    def _atomic(self, access: Access, zone: Zone, shadow: StorageShadow) -> None:
        places = self._places(access, shadow)
        self._remember(access, zone)
        if shadow.written is not None:
            self._unwritten(access, shadow.written[places])
            shadow.written[places] = True
        self.synchronised.add(self.place.number)
        if shadow.writer is not None:
            self._others(access, shadow.writer[places], "write-write")
        self._not_finite(access)

    def stored(self, access: Access) -> None:
        """Finds two lanes of one store that write different values to one place."""
        assert access.zone is not None and access.value is not None
        kept = access.zone.elements(access.dtype)[access.index[access.inside]]
        wanted = access.value[access.inside].astype(access.dtype, copy=False)
        differ = _bits(kept) != _bits(wanted)
        if differ.any():
            own = self.place.scattering
            self._add("lanes", access, _spread(access.inside, differ), detail=own and _OWN.format(own), note=bool(own))

    def ended(self, number: int) -> None:
        again = [self.checking.may_run_again(self.launch.kernel, line) for line in self.suspects]  # each is counted
        if any(again):
            self._again()
        self.suspects.clear()
        self.undo.clear()
        self.place.number = number + 1

    def finish(self) -> None:
        """After the kernel has run, keeps for each finding about values which elements of its buffer are not finite."""
        for finding, argument in self.births:
            tensor = self.launch.tensors.get(argument)
            if tensor is not None and tensor.is_floating_point():
                self.checking.born.append((finding, self.place, argument, ~torch.isfinite(tensor)))

    # reported by the builder

    def overflowed(self, output: Any, lanes: np.ndarray) -> None:
        """Records that a signed integer overflowed in some lanes."""
        self.suspects[self.place.line()] = None

    def asserted(self, lanes: np.ndarray, message: str) -> None:
        """Records that `tl.device_assert` failed."""
        self.checking.collected.add("assert", self.place, None, lanes, detail=message)

    # helpers

    def _add(self, kind: str, access: Access, lanes: np.ndarray, **more: Any) -> KernelFault:
        return self.checking.collected.add(kind, self.place, access, lanes, **more)

    def _places(self, access: Access, shadow: StorageShadow) -> np.ndarray:
        index = access.index
        return shadow.places(index if access.inside.all() else index[access.inside], access.dtype.itemsize)

    def _unwritten(self, access: Access, written: np.ndarray) -> None:
        if written.all():
            return
        missing = ~written
        if missing.size != np.count_nonzero(access.inside):
            missing = missing.any(-1)
        lanes = _spread(access.inside, missing)
        fault = self._add("uninitialised", access, lanes, detail=_by_whom(self.checking.shadows, access))
        fault.note = self.place.is_empty(fault.node)  # a kernel of the user's

    def _others(self, access: Access, before: np.ndarray, kind: str, same: Zone | None = None) -> None:
        """Finds places that another program of this launch wrote or read, unless atomics order the accesses."""
        other = (before != 0) & (before != self.place.number + 1)
        if not other.any():
            return
        if self.place.number in self.synchronised and self.synchronised.issuperset((before[other] - 1).tolist()):
            return
        by = int(before[other].reshape(-1)[0]) - 1
        if other.size != np.count_nonzero(access.inside):
            other = other.any(-1)
        lanes = _spread(access.inside, other)
        who = f"program {by} of the launch" if by >= 0 else "several programs"
        verb = "wrote" if kind == "write-write" or access.kind == "load" else "read"
        detail, note = f"{who} {verb} it before", False
        if same is not None and access.value is not None:
            held = same.elements(access.dtype)[access.index[lanes]]
            given = access.value[lanes].astype(access.dtype, copy=False)
            if (_bits(held) == _bits(given)).all():
                detail, note = f"{detail}, the same value", True
            elif own := self.place.scattering:
                detail, note = f"{detail}; {_OWN.format(own)}", True
        self._add(kind, access, lanes, detail=detail, note=note)

    def _remember(self, access: Access, zone: Zone) -> None:
        index = access.index[access.inside]
        self.undo.append((zone, access.dtype, index, zone.elements(access.dtype)[index]))

    def _not_finite(self, access: Access) -> None:
        bad = not_finite(access.pointer[1]) if isinstance(access.pointer, tuple) else None
        if bad is not None and (np.broadcast_to(bad, access.live.shape) & access.live).any():
            self.suspects[self.place.line()] = None

    def _again(self) -> None:
        memory = self.launch.memory
        assert memory is not None and memory.again is not None
        for zone, dtype, index, old in reversed(self.undo):
            zone.elements(dtype)[index] = old
        for finding, argument in followed(memory, self.place, self.checking.collected):
            if finding.kind in ("nan", "inf"):
                self.births.append((finding, argument))


def _by_whom(shadows: Shadows, access: Access) -> str:
    by = shadows.of(access.zone).by if access.zone is not None else None
    return f"{by[0]}, line {by[1]}, wrote the rest of it" if by is not None else "nothing wrote to it"


def _bits(data: np.ndarray) -> np.ndarray:
    if data.dtype.kind != "f":
        return data
    return np.ascontiguousarray(data).view(np.dtype(f"u{data.dtype.itemsize}"))


def _spread(inside: np.ndarray, chosen: Any) -> np.ndarray:
    """Expands a mask over the in-bounds lanes to all lanes."""
    if chosen.shape == inside.shape:
        return chosen & inside
    mask = np.zeros(inside.shape, bool)
    mask[inside] = chosen
    return mask
