"""Loading: the wrapper becomes a Python module whose kernels are compiled, or ahead of time a shared library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch as t

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.call` and `work.compiled`, torch's object for a compiled graph."""
    lowering = work.lowering
    if lowering.aot_mode and lowering.fx_wrapper:
        work.call = work.wrapper_code.gm
    elif lowering.aot_mode:
        work.call = _library(work)
    else:
        work.module = _module(work)
        work.call, work.runner = work.module.call, getattr(work.module, "runner", None)
    work.compiled = _output_code(work)


def _module(work: Work) -> Any:
    wrapper = work.wrapper_code
    made = work.lowering._compile_to_module_lines(wrapper) if isinstance(wrapper, t.ValueWithLineMap) else wrapper
    t.log_module_code(made.__file__)
    t.output_code_log.info("Output code written to: %s", made.__file__)
    if not isinstance(wrapper, t.ValueWithLineMap):
        t.V.debug.output_code(made.__file__)
        t.V.debug.copy(str(Path(made.__file__).with_suffix(".debug")))
    return made


def _library(work: Work) -> Any:
    from torch._inductor.codecache import AotCodeCompiler

    lowering, parts = work.lowering, [work.lowering]
    if work.const_lowering is not None:
        parts.append(work.const_lowering)
    serialized = lowering.extern_node_serializer(t.V.extern_kernel_nodes) if t.V.extern_kernel_nodes else None
    files = [file for part in parts for file in part.wrapper_code.additional_files]
    with t.dynamo_timed("AotCodeCompiler.compile", log_pt2_compile_event=True):
        return AotCodeCompiler.compile(
            lowering, work.wrapper_code.value, work.kernel_code.value, serialized,
            device_type=lowering.device_type, additional_files=list(dict.fromkeys(files)),
        )  # fmt: skip


def _output_code(work: Work) -> Any:
    lowering, kwargs = work.lowering, work.kwargs
    provenance, stacks = _provenance()
    if t.config.log_tlparse:
        t.inductor_debug.log_runtime_and_tensor_meta(lowering.count_bytes()[2])
    t.inductor_debug.log_collective_schedule(lowering.scheduler.nodes)
    cudagraphs = kwargs["cudagraphs"]
    if cudagraphs:
        _refuse_cudagraphs(work)
    if t.V.aot_compilation:
        return t.CompiledAOTI(filename=work.call, device_type=lowering.device_type)
    region = (work.compile_region_name,) if t.OUTPUT_TAKES_REGION else ()
    return t.CompiledFxGraph(
        work.call, lowering, work.gm, work.output_strides, lowering.disable_cudagraphs_reason,
        work.metrics.get_deltas(), t.counters["inductor"] - work.counters_before, cudagraphs, work.inputs,
        kwargs.get("static_input_idxs", ()), *region, kwargs, work.inputs_to_check, work.runnable, work.post_grad_text,
        work.runner, provenance, stacks,
    )  # fmt: skip


def _provenance() -> tuple[str | None, str | None]:
    if t.config.trace.provenance_tracking_level == 0:
        return None, None
    maps = json.dumps(t.inductor_debug.dump_inductor_provenance_info())
    stacks = json.dumps(t.inductor_debug._inductor_kernel_stack_trace)
    t.trace_text("inductor_provenance_tracking_node_mappings", lambda: maps, "json")
    t.trace_text("inductor_provenance_tracking_kernel_stack_traces", lambda: stacks, "json")
    return maps, stacks


def _refuse_cudagraphs(work: Work) -> None:
    """Why the graph as a whole cannot be recorded, unless it is split around what cannot."""
    from torch._inductor.cudagraph_utils import check_lowering_disable_cudagraph

    lowering = work.lowering
    if not t.config.graph_partition and not lowering.disable_cudagraphs_reason:
        if t.config.triton.cudagraph_skip_dynamic_graphs and t.any_is_symbolic(*work.inputs):
            where = next((node.meta.get("stack_trace") for node in work.gm.graph.nodes if _symbolic(node)), None)
            reason = "graph with symbolic shapes inputs and config.triton.cudagraph_skip_dynamic_graphs=True."
            lowering.disable_cudagraphs_reason = reason + (f" Found from {where}\n" if where else "\n")
        elif node := t.get_first_incompatible_cudagraph_node(work.gm):
            where = node.meta.get("stack_trace")
            reason = f"disabling cudagraphs due to incompatible op {node.target}"
            lowering.disable_cudagraphs_reason = reason + (f" Found from {where}\n" if where else "\n")
    if not t.V.aot_compilation and not lowering.disable_cudagraphs_reason:
        lowering.disable_cudagraphs_reason = check_lowering_disable_cudagraph(lowering.device_node_mapping)


def _symbolic(node: Any) -> bool:
    value = node.meta.get("val")
    return (
        node.op != "placeholder"
        and isinstance(value, torch.Tensor)
        and t.any_is_symbolic(value)
        and bool(node.meta.get("stack_trace"))
    )
