# pyright: basic
"""Runs one program again with its values followed: finds where a NaN or an infinity arose, and where an index
overflowed.

Also: collects findings as they occur, one for each kernel, kind, line and argument, with the kernel line being
executed.

Each lane of each value may carry the number of an event. A birth is an operation whose result is not finite though its
operands are (or NaN though no operand is): constants such as -inf, and loaded values, are not born. An event counts
when it reaches a store of a live lane, or the address of a live access: `where` passes on the event of the lane that it
selects, a reduction those of the lanes that it reduces.

For example: `followed(memory, place, collected)` gives `[(Finding(kind='nan', line=14), 'out_ptr0')]`.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl

from ..torch_private import all_replaced
from ..triton.interpreting._triton import Handle
from ..triton.interpreting.builder import BUILDER, Builder, is_float, not_finite, numbers
from ..triton.interpreting.memory import Access, AccessWatch, Memory
from ..triton.interpreting.session import InterpretedLaunch
from .findings import KernelFault, UserLine


@dataclass
class LaunchPlace:
    """The kernel launch being executed, its FX nodes and user lines. `number`: index of the program instance, in
    execution order."""

    launch: InterpretedLaunch
    nodes: list[str] = field(default_factory=list)
    lines: list[UserLine] = field(default_factory=list)
    node_of: dict[str, str] = field(default_factory=dict)
    number: int = 0
    is_empty: Callable[[str], bool] = lambda node: False
    scattering: str = ""
    """A node that may itself write one place twice (a scatter); "" where none does."""

    def __post_init__(self) -> None:
        self.file = self.launch.function.__code__.co_filename
        self.name = self.launch.function.__name__

    @property
    def program(self) -> tuple[int, int, int]:
        """The program's index in the grid."""
        x, y, _ = (int(index) for index in self.launch.grid)
        return self.number % x, self.number // x % y, self.number // (x * y)

    def text(self, line: int) -> str:
        """A line of the kernel's source file."""
        return linecache.getline(self.file, line).strip()

    def line(self) -> int:
        """The line of the kernel itself that is being executed, even inside a function that it calls."""
        frame: Any = sys._getframe(1)
        number = 0
        while frame is not None:
            code = frame.f_code
            if code.co_filename == self.file and code.co_name == self.name:
                return frame.f_lineno
            if code.co_filename == self.file:
                number = number or frame.f_lineno
            frame = frame.f_back
        return number


class Collected:
    """Collects the findings of a run. `KernelFault.programs` counts programs with it, `count` accesses."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, str], KernelFault] = {}
        self._last: dict[tuple[str, str, int, str], tuple[int, int]] = {}

    def all(self) -> list[KernelFault]:
        """All findings in the order in which they came."""
        return list(self._found.values())

    def add(
        self,
        kind: str,
        at: LaunchPlace,
        access: Access | None,
        lanes: np.ndarray,
        *,
        line: int = 0,
        detail: str = "",
        note: bool = False,
    ) -> KernelFault:
        """Adds a finding. `lanes`: a mask of the program's lanes that show it."""
        line = line or at.line()
        text = at.text(line)
        argument = argument_of(at.launch, access, text)
        key = (at.launch.kernel, kind, line, argument)
        program = (at.launch.number, at.number)
        known = self._found.get(key)
        if known is not None:
            known.count += 1
            known.programs += self._last[key] != program
            known.note &= note
            self._last[key] = program
            return known
        fault = KernelFault(kind, at.launch.kernel, at.launch.number, at.program, line, text, note=note, detail=detail)
        fault.nodes, fault.lines = at.nodes, at.lines
        places = np.flatnonzero(lanes)
        fault.lanes = int(places.size)
        if places.size:
            fault.first_lane, fault.last_lane = int(places[0]), int(places[-1])
        _argument(fault, at, access, argument, lanes)
        self._found[key], self._last[key] = fault, program
        return fault


def argument_of(launch: InterpretedLaunch, access: Access | None, text: str) -> str:
    """The kernel's argument that was accessed: of several in one storage, the one named in the line."""
    if access is None or access.zone is None:
        return ""
    storage = access.zone.storage._cdata
    names = [name for name, tensor in launch.tensors.items() if tensor.untyped_storage()._cdata == storage]
    return next((name for name in names if name in text), names[0] if names else "")


def _argument(fault: KernelFault, at: LaunchPlace, access: Access | None, argument: str, lanes: np.ndarray) -> None:
    if access is None or access.zone is None:
        return
    tensor = at.launch.tensors.get(argument)
    fault.argument = argument
    fault.buffer = at.launch.buffers.get(argument, "")
    fault.node = at.node_of.get(fault.buffer, "")
    fault.storage = access.zone.data.nbytes // access.dtype.itemsize
    if tensor is not None:
        fault.dtype, fault.shape = str(tensor.dtype).removeprefix("torch."), [int(size) for size in tensor.shape]
    chosen = np.broadcast_to(access.index, lanes.shape)[lanes]
    if chosen.size:
        fault.element = int(chosen.reshape(-1)[0])


_SIGNED = (np.dtype(np.int32), np.dtype(np.int64))
_FITS = 1 << 30
_MOST = float(1 << 63)


def _noting_overflow(name: str, overflow: Callable[[Any, Any, Any], Any]) -> Any:
    """An operation on two integers that reports the lanes where signed integers overflow."""
    usual = getattr(Builder, name)

    def call(self: Any, lhs: Any, rhs: Any) -> Any:
        output = usual(self, lhs, rhs)
        if output.data.dtype in _SIGNED:
            lanes = overflow(lhs.data, rhs.data, output.data)
            if lanes.any():
                self.eye.overflowed(output, lanes)
        return output

    return call


def _product_overflows(left: np.ndarray, right: np.ndarray, product: np.ndarray) -> Any:
    if product.dtype == np.int32:
        return np.multiply(left, right, dtype=np.int64) != product
    ends = [abs(int(end)) for side in (left, right) if side.size for end in (side.min(), side.max())]
    if len(ends) < 4 or max(ends) < _FITS:
        return np.False_
    return np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _MOST


class CheckingBuilder(Builder):
    """A builder that reports overflows and failed assertions to `eye.overflowed(output, lanes)` and
    `eye.asserted(lanes, message)`. It replaces only the class of Triton's builder object."""

    eye: Any = None
    create_add = _noting_overflow("create_add", lambda a, b, output: ((a ^ output) & (b ^ output)) < 0)
    create_sub = _noting_overflow("create_sub", lambda a, b, output: ((a ^ b) & (a ^ output)) < 0)
    create_mul = _noting_overflow("create_mul", _product_overflows)
    create_shl = _noting_overflow(
        "create_shl", lambda a, b, output: output.astype(float) != a.astype(float) * np.exp2(b.astype(float))
    )

    def create_int_cast(self, src: Any, dst_type: Any, is_signed: Any) -> Any:
        output = super().create_int_cast(src, dst_type, is_signed)
        narrow, wide = output.data.dtype, src.data.dtype
        if narrow.kind == "i" and wide.kind == "i" and narrow.itemsize < wide.itemsize:
            lanes = output.data != src.data
            if lanes.any():
                self.eye.overflowed(output, lanes)
        return output

    def create_assert(self, condition: Any, message: Any) -> None:
        data = np.asarray(getattr(condition, "data", condition))
        if not data.all():
            self.eye.asserted(~data.astype(bool), str(getattr(message, "value", message)))


class LenientBuilder(Builder):
    """A builder that ignores failed assertions."""

    def create_assert(self, condition: Any, message: Any) -> None:
        """Does nothing: the assertion was reported when it first ran."""


@contextlib.contextmanager
def checking_builder(eye: Any, kind: type[Builder] = CheckingBuilder) -> Iterator[None]:
    """Within the block, kernels compute with this builder class; after it, with the plain Builder again."""
    before, eye_before = type(BUILDER), CheckingBuilder.eye
    BUILDER.__class__ = kind
    CheckingBuilder.eye = eye
    try:
        yield
    finally:
        BUILDER.__class__ = before
        CheckingBuilder.eye = eye_before


CAME_IN = -1
"""Event number of a lane that was not finite when it was loaded."""
_MOVED = frozenset(
    f"create_{name}"
    for name in ("expand_dims", "broadcast", "reshape", "trans", "splat", "unsplat", "cat", "join", "split", "gather")
)
"""Operations that only move lanes: they move event numbers in the same way."""
_LOADS = ("create_load", "create_masked_load", "create_atomic_rmw", "create_atomic_cas")


class KernelEvent(NamedTuple):
    """A birth or an overflow, with its line in the kernel."""

    kind: str
    line: int


class Tracker(AccessWatch):
    """Follows events through memory accesses and every operation of the builder."""

    def __init__(self, place: LaunchPlace, collected: Collected) -> None:
        self.place, self.collected = place, collected
        self.events: list[KernelEvent] = [KernelEvent("", 0)]
        self.found: list[tuple[KernelFault, str]] = []
        self.paused = False

    # the memory

    def access(self, access: Access) -> bool:
        both = access.pointer if isinstance(access.pointer, tuple) else (access.pointer, None)
        for handle in both:
            if handle is None or (known := events_of(handle)) is None:
                continue
            reached = np.broadcast_to(known, access.live.shape)
            for number in sorted({int(index) for index in reached[access.live & (reached > 0)]}):
                event = self.events[number]
                if (event.kind == "overflow") == (handle is both[0]):
                    self._found(event, access, access.live & (reached == number))
        return True

    def _found(self, event: KernelEvent, access: Access, lanes: np.ndarray) -> None:
        here = self.place.line()
        does = f"the address of line {here}" if event.kind == "overflow" else f"stored by line {here}"
        fault = self.collected.add(event.kind, self.place, access, lanes, line=event.line, detail=does)
        self.found.append((fault, fault.argument))

    # the builder

    def overflowed(self, output: Any, lanes: np.ndarray) -> None:
        """Records that integers of some lanes have wrapped."""
        if not self.paused:
            output.events = np.where(lanes, self._event("overflow"), 0).astype(np.int32)

    def asserted(self, lanes: np.ndarray, message: str) -> None:
        """Does nothing: the assertion was reported when it first ran."""

    def done(self, builder: Any, name: str, usual: Any, given: tuple[Any, ...], output: Any) -> None:
        """Propagates events through an operation that was just computed."""
        if self.paused or output is None:
            return
        if name in _MOVED:
            self._moved(builder, usual, given, output)
        elif not isinstance(output, Handle):
            return
        elif name in _LOADS:
            self._loaded(name, given, output)
        elif name == "create_select":
            _chosen(given, output)
        else:
            self._computed(name, _handles(given), output)

    def _moved(self, builder: Any, usual: Any, given: tuple[Any, ...], output: Any) -> None:
        if all(events_of(handle) is None for handle in _handles(given)):
            return
        twins = [Handle(_full(handle), tl.int32) if isinstance(handle, Handle) else handle for handle in given]
        moved = usual(builder, *twins)
        for part, twin in zip(*((output, moved) if isinstance(output, tuple) else ((output,), (moved,))), strict=True):
            part.events = twin.data

    def _loaded(self, name: str, given: tuple[Any, ...], output: Any) -> None:
        bad = not_finite(output)
        if bad is None:
            return
        events = np.where(bad, CAME_IN, 0).astype(np.int32)
        if name == "create_masked_load" and given[1] is not None:
            other = events_of(given[2]) if given[2] is not None else None
            events = np.where(np.broadcast_to(given[1].data, events.shape), events, 0 if other is None else other)
        output.events = events

    def _computed(self, name: str, operands: list[Any], output: Any) -> None:
        if not is_float(output):
            self._passed_on(operands, output)
            return
        bad = not_finite(output)
        if bad is None:
            return
        if name == "create_dot":
            output.events = self._of_dot(operands, bad)
            return
        events = np.zeros(output.data.shape, np.int32)
        worse, nans = np.zeros(output.data.shape, bool), np.zeros(output.data.shape, bool)
        for operand in operands:
            wrong = not_finite(operand)
            if wrong is None:
                continue
            wrong = np.broadcast_to(wrong, events.shape)
            known = events_of(operand)
            if known is not None:
                events = np.where((events == 0) & wrong, np.broadcast_to(known, events.shape), events)
            worse, nans = worse | wrong, nans | np.broadcast_to(np.isnan(numbers(operand)), events.shape)
        if name != "create_bitcast":
            self._born(output, bad, events, worse, nans)
        output.events = np.where(bad, events, 0).astype(np.int32)

    def _passed_on(self, operands: list[Any], output: Any) -> None:
        """Propagates events of integer operands to the result, also into addresses."""
        events = events_of(output)
        for operand in operands:
            known = None if is_float(operand) else events_of(operand)
            if known is not None and output.data.dtype != bool:
                known = np.broadcast_to(known, output.data.shape)
                events = known if events is None else np.where(events == 0, known, events)
        if events is not None:
            output.events = events

    def _of_dot(self, operands: list[Any], bad: np.ndarray) -> np.ndarray:
        known = [events for handle in operands if (events := events_of(handle)) is not None]
        if known:
            return np.where(bad, max((int(events.max()) or int(events.min())) for events in known), 0).astype(np.int32)
        if any(not_finite(operand) is not None for operand in operands):
            return np.zeros(bad.shape, np.int32)
        return np.where(bad, self._event("inf"), 0).astype(np.int32)

    def _born(self, output: Any, bad: np.ndarray, events: np.ndarray, worse: np.ndarray, nans: np.ndarray) -> None:
        """Gives event numbers to lanes that are not finite though their operands are, in `events`."""
        is_nan = np.isnan(numbers(output))
        fresh = bad & (events == 0) & np.where(is_nan, ~nans, ~worse)
        for kind, lanes in (("nan", fresh & is_nan), ("inf", fresh & ~is_nan)):
            if lanes.any():
                events[lanes] = self._event(kind)

    def folded(self, usual: Any, input: Any, axis: Any, combine: Any, *more: Any, **named: Any) -> Any:
        """Treats a reduction or a scan as one operation."""
        outer, self.paused = self.paused, True
        try:
            result = usual(input, axis, combine, *more, **named)
        finally:
            self.paused = outer
        if not self.paused:
            given = [tensor.handle for tensor in (input if isinstance(input, (tuple, tl.tuple)) else (input,))]
            for tensor in result if isinstance(result, tuple) else (result,):
                self._fold(given, getattr(axis, "value", axis), tensor.handle)
        return result

    def _fold(self, given: list[Any], axis: int | None, output: Any) -> None:
        bad = not_finite(output)
        known = [_full(handle) for handle in given if events_of(handle) is not None]
        if bad is None and (not known or is_float(output)):
            return
        shape = output.data.shape
        events = np.zeros(shape, np.int32)
        for full in known:
            most, least = full.max(axis), full.min(axis)
            events = np.where(events == 0, _as(np.where(most != 0, most, least), shape), events)
        if bad is not None:
            worse, nans = np.zeros(shape, bool), np.zeros(shape, bool)
            for handle in given:
                if (wrong := not_finite(handle)) is not None:
                    worse |= _as(wrong.any(axis), shape)
                    nans |= _as(np.isnan(numbers(handle)).any(axis), shape)
            self._born(output, bad, events, worse, nans)
            events = np.where(bad, events, 0).astype(np.int32)
        output.events = events

    def _event(self, kind: str) -> int:
        event = KernelEvent(kind, self.place.line())
        if event not in self.events:
            self.events.append(event)
        return self.events.index(event)


def followed(memory: Memory, place: LaunchPlace, collected: Collected) -> list[tuple[KernelFault, str]]:
    """Runs the current program of a kernel again; returns findings about values, each with the argument that it
    reached."""
    assert memory.again is not None
    tracker = Tracker(place, collected)
    before, memory.watch = memory.watch, tracker
    try:
        with checking_builder(tracker, FollowingBuilder):
            names = ("reduce", "associative_scan")
            folded = {name: functools.partial(tracker.folded, getattr(tl.core, name)) for name in names}
            with all_replaced((home, name, folded[name]) for home in (tl, tl.core) for name in names):
                memory.again()
    finally:
        memory.watch = before
    return tracker.found


def events_of(handle: Any) -> np.ndarray | None:
    """The event numbers of a value's lanes; None where it has none."""
    return getattr(handle, "events", None)


def _full(handle: Any) -> np.ndarray:
    known = events_of(handle)
    return np.array(np.broadcast_to(np.int32(0) if known is None else known, handle.data.shape))


def _as(reduced: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A reduced array broadcast to the result's shape; for a scan, the largest value in all lanes."""
    reduced = np.asarray(reduced)
    if reduced.size == int(np.prod(shape)):
        return reduced.reshape(shape)
    return np.broadcast_to(reduced.any() if reduced.dtype == bool else reduced.max(), shape)


def _handles(given: Any) -> list[Any]:
    handles: list[Any] = []
    for entry in given:
        if isinstance(entry, Handle):
            handles.append(entry)
        elif isinstance(entry, (list, tuple)):
            handles += _handles(entry)
    return handles


def _chosen(given: tuple[Any, ...], output: Any) -> None:
    condition, left, right = given[:3]
    if events_of(left) is not None or events_of(right) is not None:
        output.events = np.broadcast_to(np.where(condition.data, _full(left), _full(right)), output.data.shape)


def _following(name: str) -> Any:
    usual = getattr(CheckingBuilder, name)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        output = usual(self, *given, **named)
        self.eye.done(self, name, usual, given, output)
        return output

    return call


FollowingBuilder = type(
    "FollowingBuilder",
    (CheckingBuilder,),
    {name: _following(name) for name in dir(type(BUILDER)) if name.startswith("create_") and name != "create_assert"},
)
"""The checking builder that also reports every operation."""
