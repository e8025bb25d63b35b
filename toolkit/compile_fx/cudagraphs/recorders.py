"""Puts CUDA graphs on a compiled graph: on the whole call, on each partition, or what the user's policy makes of it.

Which recording it is, torch's trees or ours, says `triton.cudagraph_trees`, as in stock. Must not decide whether: that
is the stage.

>>> facts = facts_of(compiled, constants, names)
>>> put_on_partitions(compiled, facts, report.notes.append)
2
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .. import _torch as t
from ..alignment import aligning, inputs_to_check
from .deferring import by_integers, deferred
from .partitions import Facts, split
from .plain import Recording, refusal
from .trees import recorder

Call = Callable[[list[Any]], Any]
Tell = Callable[[str], None]


def facts_of(compiled: Any, constants: dict[str, Any], names: Sequence[Any]) -> Facts:
    """What torch keeps with a compiled graph for the recording of it."""
    known = compiled.cudagraph_info
    return Facts(
        names=names,
        static=tuple(compiled.fx_kwargs["static_input_idxs"] or ()),
        mutated=tuple(compiled.mutated_input_idxs),
        placeholders=known.placeholders,
        stacks=known.stack_traces,
        constants={name: value for name, value in constants.items() if isinstance(value, torch.Tensor)},
    )


def prepare(compiled: Any, inputs: Sequence[Any], forward_device: Any) -> None:
    """Without trees sizes are fixed, which adds guards; a forward tells its backward on which device it was recorded."""
    if not t.config.triton.cudagraph_trees:
        for value in inputs:
            if isinstance(value, torch.SymInt):
                int(value)
    kwargs = compiled.fx_kwargs
    if forward_device is not None and not kwargs["is_inference"] and not kwargs["is_backward"]:
        forward_device.set(_device(compiled))


def put_on_whole(compiled: Any, facts: Facts, inputs: Sequence[Any], policy: Any, tell: Tell) -> None:
    """One recording of the whole call, or what the policy makes of it."""
    if policy is None:
        compiled.current_callable = recording(compiled.current_callable, compiled, facts, "1 graph", tell)
        return
    kwargs = compiled.fx_kwargs
    compiled.current_callable = policy.cudagraphify(
        compiled.current_callable, inputs, facts.static, device_index=_device(compiled), stack_traces=facts.stacks,
        is_backward=kwargs["is_backward"], is_inference=kwargs["is_inference"],
        constants=tuple((facts.constants or {}).values()), placeholders=facts.placeholders,
        mutated_input_idxs=facts.mutated,
    )  # fmt: skip


def put_on_partitions(compiled: Any, facts: Facts, tell: Tell) -> int:
    """A recording of each partition; what lies between them stays as it is. Returns how many."""
    parts = split(facts, compiled.partition_maps)
    titles = [f"graph {number} of {len(parts)}" if len(parts) > 1 else "1 graph" for number in range(1, len(parts) + 1)]
    compiled.recursively_apply_fns(
        [partial(_of_part, compiled, part, title, tell) for part, title in zip(parts, titles, strict=True)]
    )
    return len(parts)


def recording(call: Call, compiled: Any, facts: Facts, title: str, tell: Tell) -> Call:
    """`call`, to be recorded at its first call with real inputs."""
    kwargs, device = compiled.fx_kwargs, _device(compiled)
    if t.config.triton.cudagraph_trees:
        backward, inference = kwargs["is_backward"], kwargs["is_inference"]
        return deferred(call, recorder(call, facts, device_index=device, is_backward=backward, is_inference=inference))
    check = bool(t.config.size_asserts)

    def record(inputs: list[Any]) -> Call:
        if why := refusal(inputs, facts.static, facts.mutated, facts.names):
            tell(f"{title} not recorded: {why}")
            return aligning(call, inputs_to_check(inputs, facts.static), facts.mutated, facts.names, tell)
        with torch.cuda.device(device):
            made = Recording(call, inputs, facts.static, mutated=facts.mutated, names=facts.names, check_sizes=check)
        tell(f"recorded {title}: {made.told()}")
        return made

    return deferred(call, lambda inputs: by_integers(inputs, record))


def _of_part(compiled: Any, facts: Facts, title: str, tell: Tell, call: Call) -> Call:
    return recording(call, compiled, facts, title, tell)


def _device(compiled: Any) -> int:
    return next(iter(compiled.device_idxs))
