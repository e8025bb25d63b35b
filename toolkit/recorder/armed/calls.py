"""Holds the arguments of each compiled graph's last call: by reference, with evidence of whether they were written to
since, and as copies where they are small.

Also: checks whether a tensor is still what a call was given: its version counter, its address, and a fingerprint of 64
elements.

Strong references hold what the program passes in, until the graph runs again or 64 calls of other graphs have passed;
weak references hold parameters and buffers, which their model keeps alive, and outputs of compiled code (an activation
that is passed on after a graph break). Small inputs from the program, and small inputs that the graph writes to, are
copied before each call into a file that outlives the process. Keeps no activation alive, and never raises into the
program.

For example:

    session.watch = calls.watch
    calls.last_step()  # -> [<ArmedGraph 0_0/dynamo>]
"""

from __future__ import annotations

import ctypes
import operator
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from ....dumps import held, live
from ....dumps.schema import GraphRecord, InputRecord, InputsRecord
from ....dumps.torchside.observed import snapshot, statistics
from ....dumps.wording import raised_line
from ...live.torch_state import ambient, generators, is_capturing, is_fake, undisturbed
from ...torch_private.unseen import seen, unseen
from ..flight import Graph, failure_fields
from ..observe import inputs_only, instead_of
from . import rings

if TYPE_CHECKING:
    from .entry import Armed

SHARE = 0.002
"""The share of the process's time that checks of inputs may take."""
_MOST_S = 0.001
_CHUNKS, _ELEMENTS = 4, 16
_versions = operator.attrgetter("_version")
_address = torch.Tensor.data_ptr


class Allowance:
    """The time budget of checks that need not be made at every call."""

    def __init__(self) -> None:
        self._left = _MOST_S
        self._last = time.perf_counter()
        self._costs: dict[str, float] = {}

    def may(self, what: str) -> bool:
        """Whether the budget allows a check, which is assumed to take as long as last time."""
        now = time.perf_counter()
        self._left = min(self._left + (now - self._last) * SHARE, _MOST_S)
        self._last = now
        cost = self._costs.get(what, 0.0)
        return self._left >= min(cost, _MOST_S)

    def took(self, what: str, seconds: float) -> None:
        """Records how long a check took."""
        self._costs[what] = seconds
        self._left -= seconds


class TensorStates(NamedTuple):
    """State of one call's tensors before the call: version counters (-1: none), addresses, and fingerprints if there
    was time. All empty where there was no time at all."""

    versions: tuple[int, ...]
    addresses: tuple[int, ...]
    prints: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, pick: Callable[[Any], tuple[torch.Tensor, ...]], inputs: Sequence[Any], allowance: Allowance, key: str
    ) -> TensorStates:
        """Looks at the tensors that `pick` selects from the inputs. `key`: the name under which the check's time is
        budgeted."""
        if not allowance.may(key):
            return NOT_SEEN
        start = time.perf_counter()
        tensors = pick(inputs)
        try:
            versions = tuple(map(_versions, tensors))
            addresses = tuple(map(_address, tensors))
        except RuntimeError:  # an inference tensor has no counter, a fake or sparse one no address
            versions, addresses = tuple(map(_version, tensors)), tuple(map(_where, tensors))
        between = time.perf_counter()
        allowance.took(key, between - start)
        if not allowance.may(prints_key := f"{key} prints"):
            return cls(versions, addresses)
        prints = tuple(map(fingerprint, tensors, addresses))
        allowance.took(prints_key, time.perf_counter() - between)
        return cls(versions, addresses, prints)

    def word(self, place: int, tensor: torch.Tensor) -> str:
        """What happened to a tensor since, as text; "" where all evidence says that it is unchanged."""
        before, now = self.versions[place], _version(tensor)
        where = _where(tensor)
        if where == 0 and self.addresses[place] != 0:
            return "has released its memory"
        if before != now:
            return f"was written to (version {before}, now {now})"
        print_then = self.prints[place] if self.prints else None
        print_now = fingerprint(tensor, where)
        if print_then is not None and print_now is not None and not _same(print_then, print_now):
            return "was written to without its version counter (a fingerprint of 64 elements differs)"
        if self.addresses[place] != where:
            return "has another storage than at the call"
        if before < 0 and (print_then is None or print_now is None):
            return "has no version counter, and there was no time for a fingerprint: it may have changed"
        return ""


NOT_SEEN = TensorStates((), ())
"""The value where there was no time to look."""


def _version(tensor: torch.Tensor) -> int:
    try:
        return _versions(tensor)
    except RuntimeError:
        return -1


def _where(tensor: torch.Tensor) -> int:
    try:
        return _address(tensor)
    except RuntimeError:
        return 0


def fingerprint(tensor: torch.Tensor, address: int) -> Any:
    """64 elements, evenly spread over the tensor: as bytes of four runs of 16 on the CPU, as a tensor on other devices;
    None where they cannot be read now."""
    if address == 0 or not tensor.is_contiguous():
        return None
    size, count = tensor.element_size(), tensor.numel()
    if tensor.device.type != "cpu":
        if is_capturing():
            return None
        flat = tensor.detach().view(-1)
        return flat[:: max(count // (_CHUNKS * _ELEMENTS), 1)].clone()
    run = _ELEMENTS * size
    if count * size <= _CHUNKS * run:
        return ctypes.string_at(address, count * size)
    gap = (count - _ELEMENTS) // (_CHUNKS - 1) * size
    return b"".join([ctypes.string_at(address + index * gap, run) for index in range(_CHUNKS)])


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, bytes) or isinstance(other, bytes):
        return value == other
    return torch.equal(value.view(torch.uint8), other.view(torch.uint8))


SMALL_BYTES = 1 << 16
"""The largest input in bytes that is copied before each call; _ALL_BYTES is the limit for one graph."""
_ALL_BYTES = 1 << 18
_FREE_BYTES = 3 * held.DATA_AT
"""A file up to this size, with its head, is written before every call, whatever the time budget."""
_FILES = 32
"""How many graphs may have their small inputs copied: 8 MB at most."""
_IDLE_CALLS = 64
_SAMPLE = 1 << 16
_LOOKING_S = 0.005
_MOST_PRODUCED = 4096
_FIRST = 3
"""The first executions, in which a graph's outputs are always remembered: a graph after a break may take them as
inputs."""
_DRAWS = ("rand", "dropout", "bernoulli", "normal", "multinomial", "scaled_dot_product", "uniform", "exponential")
_shape = operator.attrgetter("shape")
_move = ctypes.memmove


class Newest(NamedTuple):
    """One call. `inputs`: held by strong references; `model`, `activations`: weak references to parameters and buffers,
    and to outputs of other graphs (None: `inputs` holds all); `seen`: of the tensors alone; `states`: of the random
    generators, for a graph that draws numbers; `producers`: which graphs' outputs the activations are."""

    sequence: int
    execution: int
    inputs: tuple[Any, ...]
    model: tuple[Any, ...]
    activations: tuple[Any, ...] | None
    seen: TensorStates
    states: list[tuple[str, Any]]
    producers: tuple[Any, ...]


class FailedCall(NamedTuple):
    """A call that raised, with its inputs."""

    kept: ArmedGraph
    newest: Newest
    error: str


class Calls:
    """The calls of all compiled graphs of one process."""

    def __init__(self, session: Armed) -> None:
        self.session = session
        self.forked = self.breaks = False
        """`forked`: this is a forked child, and the graphs are its parent's; `breaks`: a graph was called with
        another's output."""
        self.mark = rings.Mark(session.writer().path)
        self.allowance = Allowance()
        self.sequence = self.step = 0
        self.backward_ran = False
        """Whether a backward ran since the last call: the next call then begins a step."""
        self.kept: weakref.WeakSet[ArmedGraph] = weakref.WeakSet()
        self.failure: FailedCall | None = None
        self.copied: list[ArmedGraph] = []
        """Graphs whose small inputs are copied, the oldest first."""
        self.produced: dict[int, tuple[Any, ArmedGraph, int]] = {}
        """Id of an output of a compiled graph (which may become another graph's input) -> a reference to it and its
        producer."""

    def watch(self, session: Any, graphs: Sequence[Graph], compiled: Any) -> Any:
        """Returns the callable that replaces the result of Dynamo's backend: it keeps the inputs of each call."""
        (graph,) = graphs
        assert graph.record is not None
        kept = ArmedGraph(self, inputs_only(graph.record), _draws(graph.record))
        graph.watched, graph.record = True, None
        self.kept.add(kept)
        self.session.saved.discard(graph.id)  # a failure of an earlier graph with this name is over

        @unseen
        def run(*arguments: Any, **keywords: Any) -> Any:
            if keywords or not kept.begins(arguments):
                return seen(compiled, *arguments, **keywords)
            try:
                result = seen(compiled, *arguments)
            except BaseException as error:
                kept.failed(error, arguments)
                raise
            kept.ended(result)
            return result

        return instead_of(compiled, run)

    def last_step(self) -> list[ArmedGraph]:
        """The graphs with held calls that ran since the last backward ended a step, newest first. Where no backward
        runs: all graphs with held calls."""
        held = [graph for graph in self.kept if graph.newest is not None and graph.step == self.step]
        return sorted(held, key=lambda graph: -graph.sequence)

    def copies_of(self, kept: ArmedGraph, inputs: Sequence[Any], places: Sequence[int]) -> None:
        """Has the small inputs at these places copied before each later call; of more than 32 graphs the oldest loses
        its copies."""
        self._drop(kept)
        kept.small = Small.of(kept, inputs, places)
        if kept.small is not None:
            self.copied.append(kept)
        if len(self.copied) > _FILES:
            self._drop(self.copied[0])

    def _drop(self, kept: ArmedGraph) -> None:
        kept.small, small = None, kept.small
        if small is not None:
            self.copied.remove(kept)
            small.file.remove()

    def let_go(self) -> None:
        """Releases the held inputs of graphs that have not run for 64 calls of others."""
        for graph in tuple(self.kept):
            if graph.newest is not None and self.sequence - graph.sequence > _IDLE_CALLS:
                graph.newest = None
        if len(self.produced) > _MOST_PRODUCED:
            self.produced.clear()


class ArmedGraph:
    """One compiled graph."""

    def __init__(self, calls: Calls, record: GraphRecord, draws: bool) -> None:
        self.calls, self.record, self.draws = calls, record, draws
        self.local = record.id
        self._name = record.id.encode()[:112]
        self.names = [node.name for node in record.graph.nodes]
        self.newest: Newest | None = None
        self.sequence = self.execution = self.step = 0
        self.tensors: list[int] = []
        """Places of the inputs that are tensors; `model`: parameters and buffers; `activations`: outputs of compiled
        code; `strong`: all others."""
        self.model: list[int] = []
        self.activations: list[int] = []
        self.strong: list[int] = []
        self.written: set[int] = set()
        """Places of the inputs that the graph itself writes to."""
        self.first: InputsRecord | None = None
        self.small: Small | None = None
        self._tensors = self._strong = self._model = self._activations = _picking([])
        self._ids: tuple[int, ...] = ()
        self._references: tuple[Any, ...] = ()
        self._gone: list[Any] = []
        """Weak references whose tensors are gone: a new tensor may have such an id."""
        self._passes = False

    def begins(self, inputs: tuple[Any, ...]) -> bool:
        """Keeps the inputs of a call; False where the call is not watched."""
        calls = self.calls
        if self._passes or calls.forked:
            return False
        calls.sequence += 1
        if calls.backward_ran:
            calls.step, calls.backward_ran = calls.step + 1, False
        self.execution += 1
        self.sequence, self.step = calls.sequence, calls.step
        self.newest = None  # no stale call is left behind if this one cannot be held
        if self.first is None and not self._meets(inputs):
            return False
        try:
            seen = TensorStates.of(self._tensors, inputs, calls.allowance, self.local)
            if self.small is not None:
                self.small.copy(self, inputs)
            activations = producers = ()
            if self.activations:
                tensors = self._activations(inputs)
                activations, producers = tuple(map(weakref.ref, tensors)), tuple(map(self._producer, tensors))
            states = self._generators() if self.draws else []
            strong, model = self._strong(inputs), self._of_model(inputs)
            self.newest = Newest(calls.sequence, self.execution, strong, model, activations, seen, states, producers)
            if not calls.sequence % _IDLE_CALLS:
                calls.let_go()
        except Exception as error:  # noqa: BLE001 - the program goes on without
            calls.session.note(f"{self.local} is not held: {type(error).__name__}: {error}")
            self._passes = True
            return False
        calls.mark.call(self._name, self.execution)
        return True

    def _of_model(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Weak references to parameters and buffers; reused from the last call while the objects are the same."""
        tensors = self._model(inputs)
        ids = tuple(map(id, tensors))
        if ids != self._ids or self._gone:
            self._gone = []
            self._ids, self._references = ids, tuple([weakref.ref(tensor, self._gone.append) for tensor in tensors])
        return self._references

    def _generators(self) -> list[tuple[str, Any]]:
        if not self.calls.allowance.may("generators"):
            return []
        began = time.perf_counter()
        states = generators()
        self.calls.allowance.took("generators", time.perf_counter() - began)
        return states

    def _producer(self, tensor: Any) -> tuple[ArmedGraph, int, int] | None:
        reference, kept, place = self.calls.produced.get(id(tensor), (None, None, 0))
        same = reference is not None and reference() is tensor
        return (kept, kept.execution, place) if kept is not None and same else None

    def _meets(self, inputs: tuple[Any, ...]) -> bool:
        """Examines the inputs of the first call: which are tensors, which are held weakly, their layout. False where
        they cannot be recorded."""
        if any(map(is_fake, inputs)) or len(inputs) != len(self.names):
            self._passes = len(inputs) != len(self.names)
            return False
        self.tensors = [place for place, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        session = self.calls.session
        behind_break = "torch_dynamo_resume_in" in session.functions.get(self.local.partition("/")[0], "")
        roles = {item.name: item.role for item in self.record.inputs}
        for place in self.tensors:
            model = roles.get(self.names[place]) in ("parameter", "buffer")
            activation = not inputs[place].is_leaf or (not model and (behind_break or _is_replayed(inputs[place])))
            self.activations += [place] if activation else []
            self.model += [place] if model and not activation else []
        self.strong = [place for place in range(len(inputs)) if place not in {*self.model, *self.activations}]
        self._tensors, self._strong = _picking(self.tensors), _picking(self.strong)
        self._model, self._activations = _picking(self.model), _picking(self.activations)
        self.calls.breaks = self.calls.breaks or bool(self.activations)
        with session.guarded(f"inputs of {self.local}"), undisturbed():
            self.first = observed(self.record, inputs)
            session.writer().save_inputs(self.local, self.first)
            chosen = [place for place in self.tensors if roles.get(self.names[place]) not in ("parameter", "buffer")]
            self.calls.copies_of(self, inputs, chosen)
        return self.first is not None

    def values(self, newest: Newest) -> list[Any]:
        """The inputs of a call; None for a tensor that is gone."""
        if newest.activations is None:
            return [*newest.inputs]
        by_place = dict(zip(self.strong, newest.inputs, strict=True))
        weak = zip([*self.model, *self.activations], [*newest.model, *newest.activations], strict=True)
        by_place |= {place: reference() for place, reference in weak}
        return [by_place[place] for place in range(len(self.names))]

    def failed(self, error: BaseException, inputs: tuple[Any, ...]) -> None:
        """Records that the call raised: its inputs are held until another call fails."""
        calls = self.calls
        calls.mark.state(rings.IDLE)
        if self.newest is None or not isinstance(error, Exception):
            return
        newest = self.newest._replace(inputs=inputs, activations=None)
        calls.failure = FailedCall(self, newest, raised_line(error))
        calls.session.event("failed", self.local, at="run", **failure_fields(error, "dynamo"))

    def ended(self, result: Any) -> None:
        """Records that the call returned."""
        calls = self.calls
        calls.mark.state(rings.IDLE)
        if (calls.breaks or self.execution < _FIRST) and isinstance(result, (list, tuple)):
            for place, output in enumerate(result):
                if isinstance(output, torch.Tensor):
                    calls.produced[id(output)] = weakref.ref(output), self, place
        if self.execution == 1 and self.newest is not None:
            calls.session.event("ran", self.local)
            with calls.session.guarded(f"inputs of {self.local}"), undisturbed():
                self._writes(self.newest)

    def _writes(self, newest: Newest) -> None:
        """Finds the inputs that the first call wrote to; small ones are copied before each later call."""
        values = self.values(newest)
        if any(values[place] is None for place in self.tensors):
            return
        after = TensorStates.of(self._tensors, values, self.calls.allowance, "")
        if not newest.seen.versions or not after.versions:
            return
        versions = zip(self.tensors, newest.seen.versions, after.versions, strict=True)
        self.written = {place for place, old, new in versions if old != new}
        if self.written:
            chosen = sorted({*(self.small.places if self.small else ()), *self.written})
            self.calls.copies_of(self, values, chosen)


class Small:
    """Copies small CPU inputs into a file that outlives the process: those that the program passes before each call,
    those that the graph writes to when there is time."""

    def __init__(self, kept: ArmedGraph, places: list[int]) -> None:
        self.places = places = sorted(places, key=lambda place: place in kept.written)
        self._always = sum(place not in kept.written for place in places)
        self._executions = [0, 0]
        path = kept.calls.session.writer().path / held.FOLDER / kept.local
        self.file = held.HeldFile([path])
        self._shapes: tuple[Any, ...] = ()
        self._spans: list[tuple[int, int]] = []
        """(offset in the file, bytes) of each storage; `_places` has memory addresses instead, valid until the file
        grows."""
        self._places: list[tuple[int, int]] = []
        self._start = self._length = 0
        self._pick = _picking(places)
        self._key, self._whole = f"{kept.local} small", f"{kept.local} all"

    @classmethod
    def of(cls, kept: ArmedGraph, inputs: Sequence[Any], places: Sequence[int]) -> Small | None:
        """Selects the small inputs at these places; None when there are none."""
        chosen: list[int] = []
        total = 0
        storages = [inputs[place].untyped_storage().data_ptr() for place in places if _is_plain(inputs[place])]
        for place in places:
            tensor = inputs[place]
            if not _is_plain(tensor) or tensor.device.type != "cpu" or not tensor.is_contiguous():
                continue
            size = tensor.numel() * tensor.element_size()
            alone = place not in kept.activations and storages.count(tensor.untyped_storage().data_ptr()) == 1
            if alone and 0 < size <= SMALL_BYTES and total + size <= _ALL_BYTES:
                chosen.append(place)
                total += size
        return cls(kept, chosen) if chosen else None

    def copy(self, kept: ArmedGraph, inputs: Sequence[Any]) -> None:
        """Copies the inputs where the budget allows it; a few bytes always, unless the new shapes no longer fit."""
        allowance = kept.calls.allowance
        if self._spans and self._start > _FREE_BYTES and not allowance.may(self._key):
            return
        tensors = self._pick(inputs)
        if tuple(map(_shape, tensors)) != self._shapes and not self._lay_out(kept, inputs, tensors):
            return
        began = time.perf_counter()
        everything = self._always == len(tensors) or allowance.may(self._whole)
        if not everything:
            tensors = tensors[: self._always]
        if not tensors:
            return
        file, execution = self.file, kept.execution
        file.tear(execution)
        for tensor, (at, size) in zip(tensors, self._places, strict=False):
            if not tensor.is_contiguous():
                return
            _move(at, tensor.data_ptr(), size)
        file.finish(execution, self._start, self._length)
        self._executions = [execution, execution if everything else self._executions[1]]
        allowance.took(self._whole if everything else self._key, time.perf_counter() - began)

    def _lay_out(self, kept: ArmedGraph, inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> bool:
        allowance = kept.calls.allowance
        if self._shapes and not allowance.may("layout"):
            return False
        began = time.perf_counter()
        with undisturbed():
            base = kept.first if not self._shapes and kept.first is not None else observed(kept.record, inputs)
            names = [kept.names[place] for place in self.places]
            items, storages = snapshot(names, [_dense(tensor) for tensor in tensors])
        mine = {item.name: item for item in items}
        record = msgspec.structs.replace(base, policy="last", inputs=[_with_bytes(item, mine) for item in base.inputs])
        at = held.DATA_AT
        self._spans = []
        for storage in storages:
            self._spans.append((at, storage.nbytes()))
            at += -(-storage.nbytes() // 64) * 64
        text = msgspec.json.encode(held.HeldRecord(inputs=record, spans=self._spans))
        self.file.reserve(at + len(text))
        self.file.buffer[at : at + len(text)] = text
        self._start, self._length = at, len(text)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.file.buffer))
        self._places = [(start + at, size) for at, size in self._spans]
        self._shapes = tuple(map(_shape, tensors))
        allowance.took("layout", time.perf_counter() - began)
        return True

    def value(self, place: int, like: torch.Tensor, execution: int) -> torch.Tensor | None:
        """The copy of one input, if it is of that execution."""
        if place not in self.places or self._executions[self.places.index(place) >= self._always] != execution:
            return None
        at, size = self._spans[self.places.index(place)]
        data = bytearray(self.file.buffer[at : at + size])
        copy = torch.frombuffer(data, dtype=like.dtype).view(self._shapes[self.places.index(place)])
        return copy.requires_grad_(like.requires_grad)


def _picking(places: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that selects the values at these places quickly."""
    if not places:
        return lambda _: ()
    pick = operator.itemgetter(*places)
    return pick if len(places) > 1 else lambda values: (pick(values),)


def observed(record: GraphRecord, inputs: Sequence[Any]) -> InputsRecord:
    """A record with the shapes and scalars of inputs, and with statistics of small ones until the time is used up."""
    first = live.observe(record, list(inputs), "meta", None)
    until = time.perf_counter() + _LOOKING_S
    for item, value in zip(first.inputs, inputs, strict=True):
        if time.perf_counter() < until and _is_plain(value) and value.device.type == "cpu" and value.numel() <= _SAMPLE:
            item.statistics = statistics(value)
    first.ambient, first.execution, first.policy = ambient(), 1, "index"
    return first


def _with_bytes(item: InputRecord, copied: dict[str, InputRecord]) -> InputRecord:
    mine = copied.get(item.name)
    return item if mine is None else msgspec.structs.replace(item, value=mine.value, stored=mine.stored)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """An uninitialised contiguous tensor of the same shape and dtype, to encode in place of a tensor."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).requires_grad_(tensor.requires_grad)


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and not value.is_meta


def _is_replayed(tensor: torch.Tensor) -> bool:
    """Whether a tensor may lie in the memory of a CUDA graph, which the next replay overwrites."""
    from ...torch_private import loaded

    config = loaded("inductor_config")
    return tensor.is_cuda and config is not None and bool(config.triton.cudagraphs)


def _draws(record: GraphRecord) -> bool:
    return any(word in (node.target or "") for node in record.graph.nodes for word in _DRAWS)
