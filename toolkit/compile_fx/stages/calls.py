"""The stages around the loaded code: which inputs must start on 16 bytes (the copy itself is put on behind cudagraphs,
as in stock), and CUDA graphs: where asked for and possible, the call is recorded and replayed; where not, the report
says why.

The order of what is asked is stock's: the user's partition wrapper, the policy, what lowering found, torch's bisector,
what the compiled graph says of itself. A forward that is not recorded turns its backward's off, too.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from ....dumps.walk import user_frame
from ....dumps.wording import counted
from ... import torch_private as t
from ..cudagraphs import reasons, recorders
from ..cudagraphs.reasons import unfit_nodes
from ..cudagraphs.recorders import CallFacts, telling_backward
from ..finishing import customized_wrapper, in_wrapper, later, wraps_itself
from ..input_names import InputName, listed, name_at, names_for
from ..overlap import described
from ..pipeline import Pipeline
from ..work import Work


def align(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.to_align` and says which inputs are looked at in each call, by whom."""
    compiled, names = work.compiled, names_for(work)
    work.notes.extend(described(work.inputs, names))
    if not isinstance(compiled, t.CompiledFxGraph):
        work.notes.append("left to the library: code ahead of time checks by itself")
        return
    if wraps_itself(work):
        work.notes.append("left to the customized partition wrapper")
        return
    to_check = list(compiled.inputs_to_check)
    deferred = bool(getattr(compiled, "_defers_input_alignment", False))
    work.to_align = in_wrapper(to_check, compiled.mutated_input_idxs, deferred)
    work.tell_align = later(pipeline, "align", work)
    work.notes.append(_sentence(work, to_check, names))


def _sentence(work: Work, to_check: list[int], names: list[InputName]) -> str:
    if not to_check:
        tensors = [value for value in work.inputs if isinstance(value, torch.Tensor)]
        if tensors and not any(t.is_gpu(value.device.type) for value in tensors):
            return "nothing to check: CPU kernels load from anywhere"
        return "nothing to check: " + (
            "no tensor is an input" if not tensors else "static, or not assumed to be aligned"
        )
    before = set(work.to_align)
    text = f"{counted(len(to_check), 'input')} checked: "
    text += listed(name_at(names, index) for index in to_check)
    if len(before) < len(to_check):
        text += "; in the generated code" + (
            f", and {listed(name_at(names, i) for i in sorted(before))} before it" if before else ""
        )
    return text


_NOT_ASKED = "not asked for (triton.cudagraphs)"


def cudagraphs(work: Work, pipeline: Pipeline) -> None:
    """Wraps `work.compiled` and sets `work.recorded`, or says why not."""
    if not isinstance(work.compiled, t.CompiledFxGraph):
        work.notes.append("not used: code ahead of time is not recorded")
    elif (wrapper := customized_wrapper()) is not None:
        _customized(work, wrapper)
    elif (why := _refused(work)) is not None:
        work.notes.append(f"not used: {why}")
        if not work.kwargs["is_backward"] and why != _NOT_ASKED:
            reasons.keep(work.kwargs["cudagraphs"], why)
    else:
        _put_on(work, pipeline)


def _customized(work: Work, wrapper: Any) -> None:
    count = len(work.compiled.compiled_fn_runner.partitions)
    facts = [t.CUDAGraphWrapperMetadata(count, index) for index in range(count)]
    work.compiled.recursively_apply_fns([partial(_call_wrapper, wrapper, metadata) for metadata in facts])
    work.notes.append(f"left to the customized partition wrapper, for {counted(count, 'partition')}")


def _call_wrapper(wrapper: Any, facts: Any, call: Any) -> Any:
    return wrapper(call, facts)


def _refused(work: Work) -> str | None:
    """Why nothing is recorded, in a sentence; None when it can be. Turns off what the forward and the backward
    share."""
    compiled, box = work.compiled, work.kwargs["cudagraphs"]
    policy = getattr(t.inductor_config, "cudagraph_policy", None)
    if policy is not None and not policy.should_wrap(compiled):
        _count_skip()
        t.BoxedBool.disable(box)
        return "the CUDAGraphPolicy leaves this graph alone"
    reason = compiled.disabled_cudagraphs_reason
    if not box:
        if reason:
            return _reason(work, reason)
        of_forward = reasons.of_forward(box)
        return f"its forward is not recorded ({of_forward})" if of_forward else _NOT_ASKED
    if reason:
        _skip(work, f"skipping cudagraphs due to {reason}")
        return _reason(work, reason)
    return _refused_behind_lowering(work, split=policy is None and bool(t.inductor_config.graph_partition))


def _refused_behind_lowering(work: Work, *, split: bool) -> str | None:
    compiled, box = work.compiled, work.kwargs["cudagraphs"]
    if t.CompilerBisector.disable_subsystem("inductor", "cudagraphs"):
        t.BoxedBool.disable(box)
        _tell_tree(work)
        t.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to bisector")
        return "torch's bisector has them off"
    failed = compiled.cudagraph_info.cudagraph_fail_reasons
    if failed or (split and not compiled.partition_maps):
        t.BoxedBool.disable(box)
        _tell_tree(work)
        if failed and not split and "cuda" in compiled.device_types:
            better = compiled.disabled_cudagraphs_reason
            t.log_cudagraph_skip_and_bump_counter(better or f"skipping cudagraphs due to {failed}")
        return "; ".join(_reason(work, reason) for reason in failed) or _nothing_left(work)
    return None


def _put_on(work: Work, pipeline: Pipeline) -> None:
    compiled, tell = work.compiled, later(pipeline, "cudagraphs", work)
    policy = getattr(t.inductor_config, "cudagraph_policy", None)
    facts = recorders.facts_of(compiled, work.constants.unwrap(compiled), names_for(work))
    recorders.prepare(compiled, work.inputs, work.kwargs.get("boxed_forward_device_index"))
    work.recorded = True
    if policy is not None:
        recorders.put_on_by(policy, compiled, facts, work.inputs)
        work.notes.append("left to the CUDAGraphPolicy")
        return
    count = 1
    if t.inductor_config.graph_partition:
        count = recorders.put_on_partitions(compiled, facts, tell)
    else:
        compiled.current_callable = recorders.recording(compiled.current_callable, compiled, facts, "1 graph", tell)
    how = "by torch's trees: warm-up at the first call, recorded at the second"
    if not t.inductor_config.triton.cudagraph_trees:
        how = "at the first call"
    else:
        work.notes.extend(_written(facts))
    at = listed(unfit_nodes(work.gm), 4)
    work.notes.append(f"recorded as {counted(count, 'graph')} {how}" + (f"; left out: {at}" if at else ""))


def _written(facts: CallFacts) -> list[str]:
    """Inputs for which torch's trees do not record a call: what they would write to is not theirs, and not static."""
    places = [index for index in facts.mutated if index not in facts.static]
    lines = [user_frame(facts.placeholders[index].mutating_use_stack_trace or "")[0] for index in places]
    return [
        f"{name_at(facts.names, index)} is written to{f' ({line})' if line else ''}: "
        "not recorded unless another recording made it"
        for index, line in zip(places, lines, strict=True)
    ]


def _tell_tree(work: Work) -> None:
    """Tells torch's tree of the forward that a backward runs without a recording."""
    if work.kwargs["is_backward"] and t.inductor_config.triton.cudagraph_trees:
        device = work.kwargs["boxed_forward_device_index"].value
        work.compiled.current_callable = telling_backward(work.compiled.current_callable, device)


def _skip(work: Work, reason: str) -> None:
    t.BoxedBool.disable(work.kwargs["cudagraphs"])
    if "cuda" in work.compiled.device_types:
        t.log_cudagraph_skip_and_bump_counter(reason)
    else:
        _count_skip()


def _count_skip() -> None:
    t.counters["inductor"]["cudagraph_skips"] += 1


def _nothing_left(work: Work) -> str:
    if "cuda" not in work.compiled.device_types:
        return "no CUDA device in this graph"
    at = listed(unfit_nodes(work.gm), 4)
    return "no part of the graph can be recorded" + (f": {at}" if at else "")


def _reason(work: Work, reason: str) -> str:
    compiled = work.compiled
    static = (
        set(compiled.fx_kwargs.get("static_input_idxs") or ())
        if t.inductor_config.triton.cudagraph_trees
        else set[int]()
    )
    mutated = [index for index in compiled.mutated_input_idxs if index not in static]
    return reasons.sentence(reason, names_for(work), mutated, work.inputs, compiled.device_types)
