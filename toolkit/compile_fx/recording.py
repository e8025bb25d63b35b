"""CUDA graphs of a compiled call: put on the whole call, on each partition, or as the user's policy decides; and
graphdbg's own recording.

As in stock, `triton.cudagraph_trees` selects torch's trees or `Recording`. Whether a call is recorded is decided by the
stage `cudagraphs`. A call with fake inputs goes to the code itself and records nothing; a recording is made at the
first call with real inputs, once per thread, and once per value of integer inputs. A part of a split graph may take
values that another part made: these are no inputs of the graph, so they have no name in the user's program.

Torch's trees warm up at the first call and record at the second, and record again when a static input has moved. This
module calls torch's code for that, and tells the tree of a backward that runs without a recording.

A `Recording` has inputs in memory of its own, a warm-up on a side stream, and the replay. Static inputs stay where they
are; all others are copied to where they were recorded, one operation for each and one for all plain inputs together.
Outputs are the same memory in each call: the next call writes over them. An input that is written to is restored after
the warm-up and handed back after each replay, so that one call writes once. Refused are inputs on the CPU (a recording
would keep their values) and two overlapping inputs of which one is copied and one is written to (the copies would not
overlap).

For example:

    put_on_partitions(compiled, facts_of(compiled, constants, names), report.notes.append)  # -> 2
    run = Recording(call, [x, weight], static=[1])
    run([x, weight])  # -> [tensor(...)]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ...dumps.errors import CannotCompileError
from ...dumps.wording import counted, listed
from .. import torch_private as t
from .inputs import (
    BYTES,
    Call,
    InputName,
    Tell,
    aligning,
    expanded_dims,
    name_at,
    overlaps_itself,
    shared,
    without_expanded,
)

Make = Callable[[list[Any]], Call]


def facts_of(compiled: Any, constants: dict[str, Any], names: Sequence[Any]) -> CallFacts:
    """The facts for a recording that torch keeps with a compiled graph."""
    known = compiled.cudagraph_info
    return CallFacts(
        names=names,
        static=tuple(compiled.fx_kwargs["static_input_idxs"] or ()),
        mutated=tuple(compiled.mutated_input_idxs),
        placeholders=known.placeholders,
        stacks=known.stack_traces,
        constants={name: value for name, value in constants.items() if isinstance(value, torch.Tensor)},
    )


def prepare(compiled: Any, inputs: Sequence[Any], forward_device: Any) -> None:
    """Without trees, fixes symbolic sizes, which adds guards; a forward sets `forward_device`, by which its backward
    knows the device of the recording."""
    if not t.inductor_config.triton.cudagraph_trees:
        for value in inputs:
            if isinstance(value, torch.SymInt):
                int(value)
    kwargs = compiled.fx_kwargs
    if forward_device is not None and not kwargs["is_inference"] and not kwargs["is_backward"]:
        forward_device.set(_device(compiled))


def put_on_by(policy: Any, compiled: Any, facts: CallFacts, inputs: Sequence[Any]) -> None:
    """Wraps the whole call as the user's policy does."""
    compiled.current_callable = policy.cudagraphify(
        compiled.current_callable, inputs, facts.static, **_for_torch(compiled, facts)
    )


def put_on_partitions(compiled: Any, facts: CallFacts, tell: Tell) -> int:
    """A recording of each partition; what lies between them stays as it is. Returns how many."""
    parts = [part_of(facts, partition) for partition in compiled.partition_maps]
    titles = [f"graph {number} of {len(parts)}" if len(parts) > 1 else "1 graph" for number in range(1, len(parts) + 1)]
    of_one = partial(recording, compiled=compiled, tell=tell)
    pairs = zip(parts, titles, strict=True)
    compiled.recursively_apply_fns([partial(of_one, facts=part, title=title) for part, title in pairs])
    return len(parts)


def recording(call: Call, compiled: Any, facts: CallFacts, title: str, tell: Tell) -> Call:
    """Wraps `call` so that it is recorded at its first call with real inputs."""
    device = _device(compiled)

    def unrecorded(inputs: list[Any], why: str) -> Call:
        tell(f"{title} not recorded: {why}")
        return aligning(call, t.get_input_idxs_to_check(inputs, facts.static), facts.mutated, facts.names, tell)

    if t.inductor_config.triton.cudagraph_trees:
        make = recorder(call, compiled, facts)

        def grow(inputs: list[Any]) -> Call:
            why = on_the_cpu(inputs, facts.names)
            return unrecorded(inputs, why) if why else make(inputs)

        return deferred(call, grow)
    check = bool(t.inductor_config.size_asserts)

    def record(inputs: list[Any]) -> Call:
        if why := refusal(inputs, facts.static, facts.mutated, facts.names):
            return unrecorded(inputs, why)
        with torch.cuda.device(device):
            recorded = Recording(
                call, inputs, facts.static, mutated=facts.mutated, names=facts.names, check_sizes=check
            )
        tell(f"recorded {title}: {recorded.summary()}")
        return recorded

    return deferred(call, lambda inputs: by_integers(inputs, record))


def _device(compiled: Any) -> int:
    return next(iter(compiled.device_idxs))


@dataclass(frozen=True)
class CallFacts:
    """What recording a call needs to know. Indices are of the call's inputs; `stacks` are of its outputs."""

    names: Sequence[Any]
    static: tuple[int, ...]
    mutated: tuple[int, ...]
    placeholders: Sequence[Any] = ()
    """Torch's own descriptions of the inputs, for its trees."""
    stacks: Sequence[str | None] = ()
    constants: dict[str, Any] | None = None


def part_of(whole: CallFacts, partition: Any) -> CallFacts:
    """The facts of one partition, from torch's GraphPartitionMap."""
    inputs: list[int | None] = list(partition.input_index_mapping)
    between = [f"partition_{partition.id}_placeholder_{place}" for place in range(len(inputs))]
    # what torch's trees need for a value that one partition hands to another
    alone = partial(t.PlaceholderInfo, stack_trace=None, users=[], mutating_use_stack_trace=None)
    known = whole.constants or {}
    return CallFacts(
        names=[InputName(between[i]) if at is None else name_at(whole.names, at) for i, at in enumerate(inputs)],
        static=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.static),
        mutated=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.mutated),
        placeholders=[alone(name=between[i]) if at is None else whole.placeholders[at] for i, at in enumerate(inputs)],
        stacks=[None if at is None else whole.stacks[at] for at in partition.output_index_mapping],
        constants={name: known[name] for name in partition.constant_names},
    )


def recorder(call: Call, compiled: Any, facts: CallFacts) -> Make:
    """A function that records `call` in torch's trees from real inputs, under the id of the compile in progress."""
    compile_id, about = t.CompileContext.current_compile_id(), _for_torch(compiled, facts)
    return lambda inputs: t.cudagraphify_impl(call, inputs, facts.static, **about, compile_id=compile_id)


def _for_torch(compiled: Any, facts: CallFacts) -> dict[str, Any]:
    """The facts by the names of torch's parameters."""
    return {
        "device_index": _device(compiled),
        "stack_traces": list(facts.stacks),
        "is_backward": compiled.fx_kwargs["is_backward"],
        "is_inference": compiled.fx_kwargs["is_inference"],
        "constants": tuple((facts.constants or {}).values()),
        "placeholders": facts.placeholders,
        "mutated_input_idxs": facts.mutated,
    }


def telling_backward(call: Call, device_index: int) -> Call:
    """An unrecorded backward of a recorded forward: tells the tree that the backward has begun."""
    manager = t.get_manager(device_index, create_if_none_exists=False)
    assert manager is not None, "the forward was recorded in a tree, which has a manager"

    def run(inputs: list[Any]) -> Any:
        manager.set_to_running_backward()
        return call(inputs)

    return run


def deferred(call: Call, make: Make) -> Call:
    """Wraps `call`: the first call with real inputs in a thread makes a recording by `make`, which that thread then
    calls."""
    here = threading.local()

    def run(inputs: list[Any]) -> Any:
        recorded: Call | None = getattr(here, "recorded", None)
        if recorded is None:
            if any(t.is_fake(value) for value in inputs):
                return call(inputs)
            with t.preserve_rng_state():
                recorded = make(inputs)
            here.recorded = recorded
        return recorded(inputs)

    return run


def by_integers(inputs: Sequence[Any], make: Make) -> Call:
    """A callable with one recording for each combination of integer inputs, since a recording keeps its integers."""
    places = [index for index, value in enumerate(inputs) if isinstance(value, int)]
    if not places:
        return make(list(inputs))
    recorded: dict[tuple[int, ...], Call] = {}

    def run(inputs: list[Any]) -> Any:
        key = tuple(inputs[index] for index in places)
        if key not in recorded:
            with t.preserve_rng_state():
                recorded[key] = make(list(inputs))
        return recorded[key](inputs)

    return run


Capture = Callable[[Call, list[Any]], tuple[Callable[[], None], Sequence[Any]]]
"""Warms up and records a call; gives its replay and the outputs, whose memory each replay fills."""


_REFUSED = "the recorded CUDA graph cannot be replayed"


def on_cuda(call: Call, inputs: list[Any]) -> tuple[Callable[[], None], Sequence[Any]]:
    """Warms up `call`, so that kernels are chosen, and records it, both on a side stream."""
    here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    beside.wait_stream(here)
    with torch.cuda.stream(beside):
        call(list(inputs))  # a boxed call empties its list
    beside.synchronize()
    here.wait_stream(beside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Workspaces of matrix products are allocated again while recording, from the recording's own memory: those of the
    # warm-up are freed as soon as anybody clears them, as torch's trees do, and a replay would write to freed memory.
    _clear_workspaces()
    with torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local"):
        outputs = call(list(inputs))
    _clear_workspaces()
    return graph.replay, outputs if isinstance(outputs, (list, tuple)) else (outputs,)


def refusal(inputs: Sequence[Any], static: Collection[int], mutated: Collection[int], names: Sequence[Any] = ()) -> str:
    """Why these inputs cannot be recorded by a `Recording`, with their names; empty when they can."""
    if why := on_the_cpu(inputs, names):
        return why
    for first, second, _ in shared(inputs) if mutated else ():
        copied = first not in static or second not in static
        if copied and (first in mutated or second in mutated):
            a, b, written = (name_at(names, at) for at in (first, second, first if first in mutated else second))
            return f"{a} and {b} overlap and {written} is written to: copies of them would part"
    return ""


def on_the_cpu(inputs: Sequence[Any], names: Sequence[Any] = ()) -> str:
    """Why no recorder can record these inputs: one of them is not on the GPU; empty when all are."""
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            return f"{name_at(names, index)} is on the CPU, and a recording would keep the value that it has now"
    return ""


class Recording:
    """One recorded call; call it with a list of inputs, which it empties. Raises UsageError for a static input that has
    moved.

    `static` are indices of inputs that stay where they are (a misaligned one is copied all the same), `mutated` of
    those that are written to. `check_sizes`: look at sizes and static inputs in each call (Inductor's `size_asserts`).
    """

    def __init__(
        self,
        call: Call,
        inputs: Sequence[Any],
        static: Collection[int] = (),
        *,
        mutated: Collection[int] = (),
        names: Sequence[Any] = (),
        check_sizes: bool = True,
        capture: Capture = on_cuda,
    ) -> None:
        started = time.perf_counter()
        tensors = [index for index, value in enumerate(inputs) if isinstance(value, torch.Tensor)]
        self.names, self.check_sizes, self.count = names, check_sizes, len(inputs)
        self.static = [index for index in tensors if index in static and not inputs[index].data_ptr() % BYTES]
        self.misaligned = [index for index in tensors if index in static and index not in self.static]
        kept = set(self.static)
        self.targets = Targets([CallBuffer(inputs[index], index) for index in tensors if index not in kept], names)
        self.handed_back = [target for target in self.targets.all if target.index in mutated]
        self._places = [inputs[index].data_ptr() for index in self.static]
        places = list(inputs)
        for index in self.static:
            places[index] = inputs[index].detach()
        for target in self.targets.all:
            places[target.index] = target.buffer
        self.targets.fill(inputs)
        before = [(places[index], places[index].clone()) for index in self.static if index in mutated]
        self.replay, self.outputs = capture(call, places)
        for written, value in before:
            written.copy_(value)
        self._kept = places  # what the recording reads must live as long as it does
        self.seconds = time.perf_counter() - started

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.check_sizes:
            self._check(inputs)
        self.targets.fill(inputs)
        back = [(target, inputs[target.index]) for target in self.handed_back]
        inputs.clear()
        self.replay()
        for target, given in back:
            target.hand_back(given)
        return list(self.outputs)

    def summary(self) -> str:
        """What was recorded, for the report."""
        copied = len(self.targets.all)
        text = f"{counted(copied, 'input')} copied in each call, {len(self.static)} in place, {self.seconds:.2f} s"
        if self.misaligned:
            names = listed(name_at(self.names, index) for index in self.misaligned)
            text += f"; copied although static, since they do not start on 16 bytes: {names}"
        return text

    def _check(self, inputs: list[Any]) -> None:
        if len(inputs) != self.count:
            raise CannotCompileError(_REFUSED, f"it takes {counted(self.count, 'input')} and got {len(inputs)}", "")
        for index, place in zip(self.static, self._places, strict=True):
            if inputs[index].data_ptr() != place:
                raise CannotCompileError(
                    _REFUSED,
                    f"{name_at(self.names, index)} was recorded as staying in place, and its memory has moved since",
                    "write to it in place (copy_), or set triton.cudagraph_trees to True, where it is recorded again, "
                    "or compile again after torch.compiler.reset()",
                )
        self.targets.check_sizes(inputs)


def _clear_workspaces() -> None:
    """Frees the workspaces that cuBLAS keeps for each stream; the next matrix product allocates one again."""
    clear = t.optional("clear_cublas_workspaces")
    if clear is not None and torch.cuda.is_available():
        clear()


class CallBuffer:
    """A buffer for one input, with the copies into it and back.

    Expanded dimensions are written once. Inputs with other overlaps are copied as memory, with their strides: an
    element-wise copy would depend on the order.
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
        """Copies an input's values into the buffer."""
        self._inside.copy_(self._part(given))

    def hand_back(self, given: torch.Tensor) -> None:
        """Copies what a call has written back to the input."""
        self._part(given).copy_(self._inside)

    def _part(self, given: torch.Tensor) -> torch.Tensor:
        return _flat(given) if self.as_memory else without_expanded(given, self.dims)


class Targets:
    """All inputs that are copied in each call."""

    def __init__(self, targets: Sequence[CallBuffer], names: Sequence[Any] = ()) -> None:
        self.all = list(targets)
        self._names = names
        self._special = [target for target in self.all if not target.is_plain]
        plain = [target for target in self.all if target.is_plain]
        self._indices = [target.index for target in plain]
        self._buffers = [target.buffer for target in plain]

    def fill(self, inputs: Sequence[Any]) -> None:
        """Copies every input to its place; plain ones in one operation."""
        if self._indices:
            t.foreach_copy(self._buffers, [inputs[index] for index in self._indices])
        for target in self._special:
            target.fill(inputs[target.index])

    def check_sizes(self, inputs: Sequence[Any]) -> None:
        """Raises UsageError for an input with other sizes than recorded, or other strides where these matter."""
        for target in self.all:
            given = inputs[target.index]
            if given.size() != target.size or (target.as_memory and given.stride() != target.buffer.stride()):
                raise CannotCompileError(
                    _REFUSED,
                    f"{name_at(self._names, target.index)} has sizes {_layout(given)}, "
                    f"and was recorded with {_layout(target.buffer)}",
                    "call it with inputs of the recorded sizes, or compile it again",
                )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """A one-dimensional view of all memory from the first element to the last."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return tensor.as_strided((extent,), (1,))


def _layout(tensor: torch.Tensor) -> str:
    return f"{tuple(tensor.size())} and strides {tuple(tensor.stride())}"
