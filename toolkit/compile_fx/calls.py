"""The stages after loading: from loaded code to the callable.

Align decides which inputs must start on 16 bytes (the copy itself is added after cudagraphs, as in stock). Where CUDA
graphs are asked for and possible, the call is recorded and replayed; where not, the report says why: torch's reason
without its stacks, with the input's name and the user's line; an unknown reason in torch's words. The checks have
stock's order: the user's partition wrapper, the policy, lowering's reason, torch's bisector, the reasons in the
compiled graph. A forward that is not recorded turns recording off for its backward, too.

The operators, tags and the mask rule of `unfit_nodes` are those by which Inductor decides where it splits a graph;
nodes that run on the CPU are split off, too.

`last_stages` keeps stock's order, whether or not the stages run: it gives the strides of the outputs to the tracing
context, puts CUDA graphs on, realigns inputs where nothing was recorded (a recording has aligned inputs of its own),
and makes the call one operator where that is set. Nothing of this is saved in a cache.

Graphs from AOTAutograd's cache go through align and cudagraphs as well, though no inner compiler was called for them:
torch finishes such a graph by a method of the graph, in the thread that compiles. During a compile of this package that
method runs the two stages in this thread; other threads run torch's, so that stock compiles are unaffected.

>>> sentence("skipping cudagraphs due to mutated inputs (1 instances). Found from : ...", ["x"], [0])
'x is written to'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

import torch

from ...dumps.walk import user_frame
from ...dumps.wording import counted, listed
from .. import torch_private as t
from ..torch_private.replacing import Function, Hooks
from .inputs import Call, InputName, aligning, described, in_wrapper, name_at, names_for, overlaps_itself
from .pipeline import Pipeline
from .recording import CallFacts, facts_of, prepare, put_on_by, put_on_partitions, recording, telling_backward
from .stage import Aligned, InnerOptions, Work


def align(work: Work, compiled: t.OutputCode) -> Aligned:
    """Decides which inputs each call checks for alignment, and notes whether generated code or the wrapper around it
    does so."""
    names = names_for(work)
    work.notes.extend(described(work.inputs, names))
    if not isinstance(compiled, t.CompiledFxGraph):
        work.notes.append("left to the library: code ahead of time checks by itself")
        return Aligned()
    if wraps_itself(compiled):
        work.notes.append("left to the customized partition wrapper")
        return Aligned()
    to_check = list(compiled.inputs_to_check)
    deferred = bool(getattr(compiled, "_defers_input_alignment", False))
    before = in_wrapper(to_check, compiled.mutated_input_idxs, deferred)
    work.notes.append(_sentence(work, to_check, before, names))
    return Aligned(before, work.notes.append)


def _sentence(work: Work, to_check: list[int], before: list[int], names: list[InputName]) -> str:
    if not to_check:
        tensors = [value for value in work.inputs if isinstance(value, torch.Tensor)]
        if tensors and not any(t.is_gpu(value.device.type) for value in tensors):
            return "nothing to check: CPU kernels load from anywhere"
        why = "static, or not assumed to be aligned" if tensors else "no tensor is an input"
        return f"nothing to check: {why}"
    text = f"{counted(len(to_check), 'input')} checked: "
    text += listed(name_at(names, index) for index in to_check)
    if len(before) < len(to_check):
        text += "; in the generated code"
        text += f", and {listed(name_at(names, i) for i in sorted(before))} before it" if before else ""
    return text


_NOT_ASKED = "not asked for (triton.cudagraphs)"


def cudagraphs(work: Work, options: InnerOptions, compiled: t.OutputCode) -> bool:
    """Puts recording on the compiled graph and returns True; else notes why not and returns False."""
    if not isinstance(compiled, t.CompiledFxGraph):
        work.notes.append("not used: code ahead of time is not recorded")
    elif (wrapper := customized_wrapper()) is not None:
        split: Any = compiled
        count = len(split.compiled_fn_runner.partitions)
        facts = [t.CUDAGraphWrapperMetadata(count, index) for index in range(count)]
        split.recursively_apply_fns([lambda call, by=wrapper, of=of: by(call, of) for of in facts])
        work.notes.append(f"left to the customized partition wrapper, for {counted(count, 'partition')}")
    elif (why := _refused(work, options, compiled)) is not None:
        work.notes.append(f"not used: {why}")
        if not options.arguments["is_backward"] and why != _NOT_ASKED:
            keep(options.arguments["cudagraphs"], why)
    else:
        _put_on(work, options, compiled)
        return True
    return False


def _refused(work: Work, options: InnerOptions, compiled: t.CompiledFxGraph) -> str | None:
    """Why nothing is recorded, in a sentence; None where the call can be recorded. A refusal turns off the box that
    forward and backward share."""
    box = options.arguments["cudagraphs"]
    policy = getattr(t.inductor_config, "cudagraph_policy", None)
    if policy is not None and not policy.should_wrap(compiled):
        t.counters["inductor"]["cudagraph_skips"] += 1
        t.BoxedBool.disable(box)
        return "the CUDAGraphPolicy leaves this graph alone"
    reason = compiled.disabled_cudagraphs_reason
    if not box:
        if reason:
            return _reason(work, compiled, reason)
        of_its_forward = of_forward(box)
        return f"its forward is not recorded ({of_its_forward})" if of_its_forward else _NOT_ASKED
    if reason:
        t.BoxedBool.disable(box)
        if "cuda" in compiled.device_types:
            t.log_cudagraph_skip_and_bump_counter(f"skipping cudagraphs due to {reason}")
        else:
            t.counters["inductor"]["cudagraph_skips"] += 1
        return _reason(work, compiled, reason)
    split = policy is None and bool(t.inductor_config.graph_partition)
    info, call = cast(Any, compiled.cudagraph_info), cast(Call, compiled.current_callable)
    bisected = t.CompilerBisector.disable_subsystem("inductor", "cudagraphs")
    if not (bisected or info.cudagraph_fail_reasons or (split and not compiled.partition_maps)):
        return None
    t.BoxedBool.disable(box)
    if options.arguments["is_backward"] and t.inductor_config.triton.cudagraph_trees:
        device = options.arguments["boxed_forward_device_index"].value
        compiled.current_callable = telling_backward(call, device)
    if bisected:
        t.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to bisector")
        return "torch's bisector has them off"
    if (failed := info.cudagraph_fail_reasons) and not split and "cuda" in compiled.device_types:
        better = compiled.disabled_cudagraphs_reason
        t.log_cudagraph_skip_and_bump_counter(better or f"skipping cudagraphs due to {failed}")
    return "; ".join(_reason(work, compiled, reason) for reason in failed) or _nothing_left(work, compiled)


def _put_on(work: Work, options: InnerOptions, compiled: t.CompiledFxGraph) -> None:
    tell, policy = work.notes.append, getattr(t.inductor_config, "cudagraph_policy", None)
    facts = facts_of(compiled, options.constants.unwrap(compiled), names_for(work))
    prepare(compiled, work.inputs, options.arguments.get("boxed_forward_device_index"))
    if policy is not None:
        put_on_by(policy, compiled, facts, work.inputs)
        tell("left to the CUDAGraphPolicy")
        return
    count = 1
    if t.inductor_config.graph_partition:
        count = put_on_partitions(compiled, facts, tell)
    else:
        call = cast(Call, compiled.current_callable)
        compiled.current_callable = recording(call, compiled, facts, "1 graph", tell)
    how = "at the first call"
    if t.inductor_config.triton.cudagraph_trees:
        how = "by torch's trees: warm-up at the first call, recorded at the second"
        work.notes.extend(_written(facts))
    at = listed(unfit_nodes(work.gm), 4)
    tell(f"recorded as {counted(count, 'graph')} {how}" + (f"; left out: {at}" if at else ""))


def _written(facts: CallFacts) -> list[str]:
    """Sentences about inputs that are written to and are not static: torch's trees do not record a call for them unless
    another recording made them."""
    places = [index for index in facts.mutated if index not in facts.static]
    lines = [user_frame(facts.placeholders[index].mutating_use_stack_trace or "")[0] for index in places]
    return [
        f"{name_at(facts.names, index)} is written to{f' ({line})' if line else ''}: "
        "not recorded unless another recording made it"
        for index, line in zip(places, lines, strict=True)
    ]


def _nothing_left(work: Work, compiled: t.CompiledFxGraph) -> str:
    if "cuda" not in compiled.device_types:
        return "no CUDA device in this graph"
    at = listed(unfit_nodes(work.gm), 4)
    return "no part of the graph can be recorded" + (f": {at}" if at else "")


def _reason(work: Work, compiled: t.CompiledFxGraph, reason: str) -> str:
    static = set[int]()
    if t.inductor_config.triton.cudagraph_trees:
        static.update(compiled.fx_kwargs.get("static_input_idxs") or ())
    mutated = [index for index in compiled.mutated_input_idxs if index not in static]
    return sentence(reason, names_for(work), mutated, work.inputs, compiled.device_types)


_PREFIX = re.compile(r"^\s*(?:skipping|disabling) cudagraphs due to\s+")
_WHERE = re.compile(r"\.?\s*Found from\s*:?.*", re.DOTALL)
_KEPT = "graphdbg_reason"


def sentence(
    reason: str,
    names: Sequence[Any] = (),
    mutated: Collection[int] = (),
    inputs: Sequence[Any] = (),
    devices: Collection[str] = ("cuda",),
) -> str:
    """One of torch's reasons, as a sentence. `mutated` are the inputs that are written to and may not be; `devices` are
    those of the graph."""
    text = reason
    while (shorter := _PREFIX.sub("", text)) != text:
        text = shorter
    text = " ".join(_WHERE.sub("", text).split()).rstrip(".")
    line, _ = user_frame(reason.replace("Found from", "Found from\n"))  # frames start lines
    where = f" ({line})" if line else ""
    if "cuda" not in devices:
        return "no CUDA device in this graph"
    if text.startswith("mutated inputs") and mutated:
        named = listed(name_at(names, index) for index in sorted(mutated))
        return f"{named} {'is' if len(mutated) == 1 else 'are'} written to{where}"
    if text == "complex memory overlap":
        unfit = [
            name_at(names, index)
            for index, value in enumerate(inputs)
            if isinstance(value, torch.Tensor) and overlaps_itself(value, expanded=False)
        ]
        return f"{listed(unfit)} overlaps itself (complex memory overlap)" if unfit else text
    if text == "non-Tensor inputs":
        unfit = [name_at(names, i) for i, v in enumerate(inputs) if not isinstance(v, (torch.Tensor, torch.SymInt))]
        return f"{listed(unfit)} is no tensor" if unfit else text
    return text + where


def keep(box: Any, reason: str) -> None:
    """Notes, on the box that a forward and its backward share, why the forward is not recorded."""
    if hasattr(box, "value"):
        setattr(box, _KEPT, reason)


def of_forward(box: Any) -> str:
    """Why the forward is not recorded, as `keep` noted it; empty where it is recorded, or recording was not asked
    for."""
    return getattr(box, _KEPT, "")


_PUTS = ("aten.index_put.default", "aten.index_put_.default", "aten._unsafe_index_put.default")


class Unfit(NamedTuple):
    """A node that splits a graph, or keeps it from being recorded."""

    node: str
    op: str
    line: str
    why: str

    def __str__(self) -> str:
        return f"{self.op} ({self.line}): {self.why}" if self.line else f"{self.op}: {self.why}"


def unfit_nodes(gm: Any, *, with_cpu: bool = True) -> list[Unfit]:
    """All unfit nodes in order, [] where `gm` has no graph; without those that run on the CPU if `with_cpu` is
    False."""
    calls = [node for node in gm.graph.nodes if node.op == "call_function"] if hasattr(gm, "graph") else []
    return [
        Unfit(node.name, str(node.target), user_frame(node.meta.get("stack_trace") or "")[0], why)
        for node in calls
        if (why := _why(node) or (_on_cpu(node) if with_cpu else ""))
    ]


def _why(node: Any) -> str:
    target = node.target
    if str(target) in t.FORBIDDEN_CUDAGRAPH_OPS:
        return "it waits for the GPU or keeps state on the CPU"
    if torch.Tag.cudagraph_unsafe in getattr(target, "tags", ()):  # overloads have tags
        return "its author has marked it cudagraph_unsafe"
    if str(target) in _PUTS:
        indices = node.kwargs.get("indices", node.args[1] if len(node.args) > 1 else ())
        given = [index.meta["val"].dtype for index in indices if index is not None]
        if not {torch.bool, torch.uint8}.isdisjoint(given):
            return "how many elements a mask picks is known on the GPU alone"
    values = _values(node)
    if any(isinstance(value, torch.Tensor) and value.is_sparse for value in values):
        return "it makes a sparse tensor"
    if any(t.free_unbacked_symbols(value) for value in values):
        return "its size is known on the GPU alone"
    return ""


def _on_cpu(node: Any) -> str:
    devices = {value.device.type for value in _values(node) if isinstance(value, torch.Tensor)}
    given = [value for operand in node.all_input_nodes for value in _values(operand)]
    taken = {value.device.type for value in given if isinstance(value, torch.Tensor) and value.dim()}
    if "cpu" in devices:
        return "it copies to the CPU" if "cuda" in taken else "it runs on the CPU"
    return "it copies from the CPU" if "cpu" in taken and "cuda" in devices else ""


def _values(node: Any) -> list[Any]:
    return t.pytree.tree_leaves(node.meta.get("val"))


def customized_wrapper() -> Callable[..., Any] | None:
    """The wrapper that the user set by `set_customized_partition_wrappers`, where graphs are partitioned; else None."""
    return t.customized_partition_wrapper.wrapper if t.inductor_config.graph_partition else None


def wraps_itself(compiled: Any) -> bool:
    """Whether the user's own wrapper takes each partition: then neither torch nor this package wraps the call."""
    return isinstance(compiled, t.CompiledFxGraph) and customized_wrapper() is not None


def last_stages(work: Work, options: InnerOptions, pipeline: Pipeline) -> None:
    """Runs the stages from loaded code to the callable."""
    if isinstance(work.compiled, t.CompiledFxGraph) and not wraps_itself(work.compiled):
        t.set_tracing_context_output_strides(work.inputs, work.compiled)  # AOTAutograd compiles the backward for them
    pipeline.run("align", work)
    pipeline.run("cudagraphs", work)
    compiled: Any = work.compiled
    if not isinstance(compiled, t.CompiledFxGraph):
        compiled.post_compile(work.inputs, options.constants, options.arguments)  # ahead of time: loads the library
        return
    if wraps_itself(compiled):
        return
    if not work.recorded:
        t.BoxedBool.disable(options.arguments["cudagraphs"])  # a forward that is not recorded has no recorded backward
        aligned = work.aligned or Aligned()  # a stage that was skipped has found nothing
        call: Any = compiled.current_callable
        compiled.current_callable = aligning(
            call, aligned.to_check, compiled.mutated_input_idxs, names_for(work), aligned.tell
        )
    if compiled._wrap_compiled_regions and compiled.current_callable is not None:
        compiled.current_callable = _as_one_operator(compiled)


def _as_one_operator(compiled: Any) -> Call:
    """The compiled call, seen by dispatch modes as one operator (the setting `wrap_inductor_compiled_regions`)."""
    call = shown = compiled.current_callable
    region = getattr(compiled, "compile_region_name", None)
    wrap = t.optional("InductorCompiledCallable")
    if wrap is not None:  # with the graph, for fake values
        if compiled._original_gm is None and compiled._serialized_original_gm is not None:  # it comes from a cache
            mode = t.FakeTensorMode(allow_non_fake_inputs=True, shape_env=t.ShapeEnv())
            compiled._original_gm = t.GraphPickler.loads(compiled._serialized_original_gm, mode)
            compiled._original_gm.recompile()
            compiled._serialized_original_gm = None
        shown = wrap(call, compiled._original_gm, compile_region_name=region)
    named = {"name": region} if region is not None and shown is not call else {}

    def run(inputs: list[Any]) -> Any:
        return t.inductor_compiled_code(shown, inputs, **named) if t.is_in_torch_dispatch_mode() else call(inputs)

    return run


def part_named(backward: bool, inference: bool) -> str:
    """What the part of an inner compile is called."""
    return "backward" if backward else "inference" if inference else "forward"


def finished_by_us(pipeline: Pipeline) -> AbstractContextManager[None]:
    """While entered, compiled graphs from AOTAutograd's cache go through the last stages of `pipeline`, in this
    thread."""
    return _hooks.inside(pipeline)


def _post_compile(usual: Function) -> Function:
    def post_compile(compiled: Any, inputs: Any, constants: Any, kwargs: Any) -> None:
        pipeline: Pipeline | None = _hooks.here
        if pipeline is None or "graph_id" in kwargs:  # with graph_id: the call of a stock compiler, nested in ours
            usual(compiled, inputs, constants, kwargs)
            return
        part = part_named(kwargs["is_backward"], compiled.fx_kwargs.get("is_inference"))
        options = InnerOptions(kwargs, constants)
        no_graph: Any = None  # AOTAutograd's cache keeps none
        last_stages(Work(part, no_graph, inputs, options, compiled=compiled), options, pipeline)

    return post_compile


_hooks = Hooks(lambda: [(t.CompiledFxGraph, "post_compile", _post_compile)])
