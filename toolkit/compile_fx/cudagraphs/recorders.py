"""Wraps a compiled graph in CUDA graphs: the whole call, each partition, or as the user's policy decides.

As in stock, `triton.cudagraph_trees` selects torch's trees or `plain.Recording`. Whether a call is recorded is decided
by the stage `cudagraphs`. A call with fake inputs goes to the code itself and records nothing; a recording is made at
the first call with real inputs, once per thread, and once per value of integer inputs. A part of a split graph may take
values that another part made: these are no inputs of the graph, so they have no name in the user's program.

Torch's trees warm up at the first call and record at the second, and record again when a static input has moved. This
module calls torch's code for that, and tells the tree of a backward that runs without a recording.

For example:

    facts = facts_of(compiled, constants, names)
    put_on_partitions(compiled, facts, report.notes.append)  # -> 2
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ... import torch_private as t
from ..finishing import aligning
from ..input_names import InputName, name_at
from .plain import Recording, on_the_cpu, refusal

Call = Callable[[list[Any]], Any]
Make = Callable[[list[Any]], Call]
Tell = Callable[[str], None]


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
    """Without trees sizes are fixed, which adds guards; a forward tells its backward on which device it was
    recorded."""
    if not t.inductor_config.triton.cudagraph_trees:
        for value in inputs:
            if isinstance(value, torch.SymInt):
                int(value)
    kwargs = compiled.fx_kwargs
    if forward_device is not None and not kwargs["is_inference"] and not kwargs["is_backward"]:
        forward_device.set(_device(compiled))


def put_on_by(policy: Any, compiled: Any, facts: CallFacts, inputs: Sequence[Any]) -> None:
    """Wraps the whole call as the user's policy does."""
    kwargs = compiled.fx_kwargs
    compiled.current_callable = policy.cudagraphify(
        compiled.current_callable,
        inputs,
        facts.static,
        device_index=_device(compiled),
        stack_traces=facts.stacks,
        is_backward=kwargs["is_backward"],
        is_inference=kwargs["is_inference"],
        constants=tuple((facts.constants or {}).values()),
        placeholders=facts.placeholders,
        mutated_input_idxs=facts.mutated,
    )


def put_on_partitions(compiled: Any, facts: CallFacts, tell: Tell) -> int:
    """A recording of each partition; what lies between them stays as it is. Returns how many."""
    parts = [part_of(facts, partition) for partition in compiled.partition_maps]
    titles = [f"graph {number} of {len(parts)}" if len(parts) > 1 else "1 graph" for number in range(1, len(parts) + 1)]
    compiled.recursively_apply_fns(
        [
            partial(recording, compiled=compiled, facts=part, title=title, tell=tell)
            for part, title in zip(parts, titles, strict=True)
        ]
    )
    return len(parts)


def recording(call: Call, compiled: Any, facts: CallFacts, title: str, tell: Tell) -> Call:
    """`call`, to be recorded at its first call with real inputs."""
    kwargs, device = compiled.fx_kwargs, _device(compiled)

    def unrecorded(inputs: list[Any], why: str) -> Call:
        tell(f"{title} not recorded: {why}")
        return aligning(call, t.get_input_idxs_to_check(inputs, facts.static), facts.mutated, facts.names, tell)

    if t.inductor_config.triton.cudagraph_trees:
        make = recorder(call, facts, device, kwargs["is_backward"], kwargs["is_inference"])

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
        tell(f"recorded {title}: {recorded.told()}")
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
    """The facts of one partition, of torch's GraphPartitionMap."""
    inputs: list[int | None] = list(partition.input_index_mapping)
    between = [f"partition_{partition.id}_placeholder_{place}" for place in range(len(inputs))]
    known = whole.constants or {}
    return CallFacts(
        names=[InputName(between[i]) if at is None else name_at(whole.names, at) for i, at in enumerate(inputs)],
        static=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.static),
        mutated=tuple(i for i, at in enumerate(inputs) if at is not None and at in whole.mutated),
        placeholders=[_name_alone(between[i]) if at is None else whole.placeholders[at] for i, at in enumerate(inputs)],
        stacks=[None if at is None else whole.stacks[at] for at in partition.output_index_mapping],
        constants={name: known[name] for name in partition.constant_names},
    )


def _name_alone(name: str) -> Any:
    """A placeholder, as torch's trees need it, for a value that one partition hands to another."""
    return t.PlaceholderInfo(name=name, stack_trace=None, users=[], mutating_use_stack_trace=None)


def recorder(
    call: Call, facts: CallFacts, device_index: int, is_backward: bool, is_inference: bool
) -> Callable[..., Call]:
    """A function that makes a call of a tree from real inputs, for the compile in progress."""
    compile_id = t.CompileContext.current_compile_id()

    def make(inputs: list[Any]) -> Call:
        return t.cudagraphify_impl(
            call,
            inputs,
            facts.static,
            device_index=device_index,
            stack_traces=list(facts.stacks),
            is_backward=is_backward,
            is_inference=is_inference,
            constants=tuple((facts.constants or {}).values()),
            placeholders=facts.placeholders,
            mutated_input_idxs=facts.mutated,
            compile_id=compile_id,
        )

    return make


def telling_backward(call: Call, device_index: int) -> Call:
    """An unrecorded backward of a recorded forward: tells the tree that the backward has begun."""
    manager = t.get_manager(device_index, create_if_none_exists=False)
    assert manager is not None, "the forward was recorded in a tree, which has a manager"

    def run(inputs: list[Any]) -> Any:
        manager.set_to_running_backward()
        return call(inputs)

    return run


def deferred(call: Call, make: Make) -> Call:
    """`call` until it gets real inputs; from then on what `make` made of those, in each thread its own."""
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
    """One recording for each value of the inputs that are integers: a recording keeps those that it was made with."""
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
