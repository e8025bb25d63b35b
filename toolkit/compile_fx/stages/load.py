"""Loading: the wrapper becomes a Python module whose kernels are compiled, or ahead of time a shared library.

The report has what was loaded, and how the time was spent by torch's own timers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ....dumps.wording import counted
from ... import torch_private as t
from ...rungs.cpp_library import shared_standard_library
from .. import logs
from ..pipeline import Pipeline
from ..work import Work


def load(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.call` and `work.compiled`, torch's object for a compiled graph."""
    lowering = work.lowering
    before, linked = _clocks(), []
    if lowering.aot_mode and lowering.fx_wrapper:
        work.call = work.wrapper_code.gm
    elif lowering.aot_mode:
        work.call, linked = _library(work)
    else:
        work.module = _module(work)
        work.call = work.module.call
    work.notes.extend([_loaded(work), *_spent(before), *linked])
    work.compiled = _output_code(work)


def _module(work: Work) -> Any:
    wrapper = work.wrapper_code
    module = work.lowering._compile_to_module_lines(wrapper) if isinstance(wrapper, t.ValueWithLineMap) else wrapper
    t.log_module_code(module.__file__)
    t.output_code_log.info("Output code written to: %s", module.__file__)
    if not isinstance(wrapper, t.ValueWithLineMap):
        t.V.debug.output_code(module.__file__)
        t.V.debug.copy(str(Path(module.__file__).with_suffix(".debug")))
    return module


def _library(work: Work) -> tuple[Any, list[str]]:
    """What torch builds, and notes on how it was linked."""
    lowering, parts = work.lowering, [work.lowering]
    if work.const_lowering is not None:
        parts.append(work.const_lowering)
    serialized = lowering.extern_node_serializer(t.V.extern_kernel_nodes) if t.V.extern_kernel_nodes else None
    files = [file for part in parts for file in part.wrapper_code.additional_files]
    t.output_code_log.debug("Output wrapper code: \n%s", work.wrapper_code.value)
    if work.kernel_code.value:
        t.output_code_log.debug("Output kernel code:\n%s", work.kernel_code.value)
    if serialized:
        t.output_code_log.debug("Serialized Extern Kernel Nodes: \n%s", serialized)
    with (
        _toolkit_named(),
        shared_standard_library() as linked,
        t.dynamo_timed("AotCodeCompiler.compile", log_pt2_compile_event=True),
    ):
        built = t.AotCodeCompiler.compile(
            lowering,
            work.wrapper_code.value,
            work.kernel_code.value,
            serialized,
            device_type=lowering.device_type,
            additional_files=list(dict.fromkeys(files)),
        )
    return built, linked


@contextlib.contextmanager
def _toolkit_named() -> Iterator[None]:
    """With the CUDA toolkit's folder in the environment: torch links its stub of the driver only if it is there."""
    if "CUDA_HOME" in os.environ or "CUDA_PATH" in os.environ or not torch.cuda.is_available():
        yield
        return
    from torch.utils.cpp_extension import CUDA_HOME

    if CUDA_HOME is None:
        yield
        return
    os.environ["CUDA_HOME"] = CUDA_HOME
    try:
        yield
    finally:
        os.environ.pop("CUDA_HOME", None)


def _loaded(work: Work) -> str:
    """What was loaded, in words: kernels by their kind, or the size of a library."""
    if work.module is None:
        files = [work.call] if isinstance(work.call, str) else work.call
        paths = [Path(file) for file in files if isinstance(file, str)] if isinstance(files, list) else []
        library = next((path for path in paths if path.suffix == ".so" and path.exists()), None)
        if library is not None:
            return f"a library of {library.stat().st_size:,} bytes"
        return f"{counted(len(paths), 'file')} for a library" if paths else "a graph that calls the kernels"
    kinds = Counter(
        _KINDS.get(name.partition("_")[0], "other") for name in set(work.lowering.wrapper_code.src_to_kernel.values())
    )
    text = " and ".join(counted(count, f"{kind} kernel") for kind, count in sorted(kinds.items()))
    return f"a module with {text}" if text else "a module without kernels of its own"


_KINDS = {"triton": "Triton", "cpp": "C++"}
"""Beginnings of kernels' names -> what compiles them."""
_CLOCKS = {
    "compile_file": "C++ build",
    "aoti_precompile_header": "C++ header",
    "async_compile.precompile": "Triton compile",
    "async_compile.wait": "waiting for kernels",
    "reload_kernel_in_parent": "Triton load",
    "PyCodeCache.load_by_key_path": "Python load, kernels included",
}
"""Torch's names of what it times while code is loaded -> ours. Kernels that a pool compiles are seen as waiting."""


def _clocks() -> dict[str, tuple[int, float]]:
    known = t.compilation_time_metrics
    return {name: (len(known.get(name, ())), sum(known.get(name, ()))) for name in _CLOCKS}


def _spent(before: dict[str, tuple[int, float]]) -> list[str]:
    """How the time was spent since `before`: each kind of work that took part of a second."""
    after = _clocks()
    parts = []
    for name, words in _CLOCKS.items():
        count, seconds = (now - then for now, then in zip(after[name], before[name], strict=True))
        if count and seconds >= 0.0005:
            parts.append(f"{words} {seconds:.3f} s" + (f" in {count}" if count > 1 else ""))
    return [", ".join(parts)] if parts else []


def _output_code(work: Work) -> Any:
    lowering, kwargs = work.lowering, work.kwargs
    provenance, stacks = _provenance()
    if t.inductor_config.log_tlparse:
        t.log_runtime_and_tensor_meta(lowering.count_bytes()[2])
    logs.of_code(work)
    t.log_collective_schedule(lowering.scheduler.nodes)
    cudagraphs = kwargs["cudagraphs"]
    if cudagraphs:
        _refuse_cudagraphs(work)
    if t.V.aot_compilation:
        return t.CompiledAOTI(filename=work.call, device_type=lowering.device_type)
    region = (work.compile_region_name,) if t.takes("CompiledFxGraph", "compile_region_name") else ()
    return t.CompiledFxGraph(
        work.call,
        lowering,
        work.gm,
        work.output_strides,
        lowering.disable_cudagraphs_reason,
        work.metrics.get_deltas(),
        t.counters["inductor"] - work.counters_before,
        cudagraphs,
        work.inputs,
        kwargs.get("static_input_idxs", ()),
        *region,
        kwargs,
        work.inputs_to_check,
        work.runnable,
        work.post_grad_text,
        getattr(work.module, "runner", None),
        provenance,
        stacks,
    )


def _provenance() -> tuple[str | None, str | None]:
    if t.inductor_config.trace.provenance_tracking_level == 0:
        return None, None
    maps = json.dumps(t.dump_inductor_provenance_info())
    stacks = json.dumps(t.kernel_stack_traces)
    logs.trace_text("inductor_provenance_tracking_node_mappings", lambda: maps, "json")
    logs.trace_text("inductor_provenance_tracking_kernel_stack_traces", lambda: stacks, "json")
    context = t.get_metrics_context()
    if stacks and context.in_progress():
        context.add_to_set("inductor_provenance", stacks)
    return maps, stacks


def _refuse_cudagraphs(work: Work) -> None:
    """Why the graph as a whole cannot be recorded, unless it is split around what cannot."""
    lowering = work.lowering
    if not t.inductor_config.graph_partition and not lowering.disable_cudagraphs_reason:
        if t.inductor_config.triton.cudagraph_skip_dynamic_graphs and t.any_is_symbolic(*work.inputs):
            where = next((node.meta.get("stack_trace") for node in work.gm.graph.nodes if _symbolic(node)), None)
            reason = "graph with symbolic shapes inputs and config.triton.cudagraph_skip_dynamic_graphs=True."
            lowering.disable_cudagraphs_reason = reason + (f" Found from {where}\n" if where else "\n")
        elif node := t.get_first_incompatible_cudagraph_node(work.gm):
            where = node.meta.get("stack_trace")
            reason = f"disabling cudagraphs due to incompatible op {node.target}"
            lowering.disable_cudagraphs_reason = reason + (f" Found from {where}\n" if where else "\n")
    if not t.V.aot_compilation and not lowering.disable_cudagraphs_reason:
        lowering.disable_cudagraphs_reason = t.check_lowering_disable_cudagraph(lowering.device_node_mapping)


def _symbolic(node: Any) -> bool:
    value = node.meta.get("val")
    return (
        node.op != "placeholder"
        and isinstance(value, torch.Tensor)
        and t.any_is_symbolic(value)
        and bool(node.meta.get("stack_trace"))
    )
