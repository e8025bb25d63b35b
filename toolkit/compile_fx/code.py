"""The stages from graph to loaded code.

Lowering makes of each node a loop, a view of one, or a call of a library; scheduling fuses the loops; code generation
writes a kernel for each fused group, and the wrapper that allocates and calls; loading makes a Python module of the
wrapper, whose kernels are compiled, or ahead of time a shared library. The report of loading has what was loaded, and
how the time was spent by torch's own timers.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from ...dumps.wording import counted
from .. import torch_private as t
from ..rungs.cpp_library import shared_standard_library
from .graphs import trace_text
from .stage import Coded, InnerOptions, Lowered, Prepared, Work


def lower(work: Work, options: InnerOptions, prepared: Prepared) -> Lowered:
    """Makes the lowering, which stays the handler `V.graph` until its code is loaded."""
    ahead, arguments = bool(t.V.aot_compilation), options.arguments
    common: dict[str, Any] = {
        "shape_env": prepared.shape_env,
        "aot_mode": ahead,
        **{name: arguments.get(name) for name in ("graph_id", "extern_node_serializer")},
        **{name: arguments.get(name, False) for name in ("cpp_wrapper", "is_inference", "is_backward", "fx_wrapper")},
    }
    if t.takes("GraphLowering", "get_decomp_fn"):
        common["get_decomp_fn"] = arguments.get("get_decomp_fn", t.select_decomp_table)
    enter = options.open.enter_context
    enter(t.V.set_fake_mode(prepared.fake_mode))
    enter(t.maybe_disable_comprehensive_padding(work.inputs))
    enter(t.maybe_disable_graph_partition(common["cpp_wrapper"], ahead))
    folded = ahead and t.inductor_config.aot_inductor.use_runtime_constant_folding
    constant = _constants_first(work, common) if folded else {}
    lowering = t.GraphLowering(
        work.gm, example_inputs=work.inputs, inputs_to_check=options.to_check, **common, **constant
    )
    metrics = t.CachedMetricsHelper()
    lowering.freeze_runtime_asserts()  # none may be added once code for them is written
    enter(t.V.set_graph_handler(lowering))
    enter(t.V.set_extern_kernel_nodes([]))
    context = t.optional("distributed_autotune_context")
    if context is not None:
        enter(context())
    lowering.run(*work.inputs)
    work.produced = (len(lowering.buffers), "buffers")
    t.check_triton_bf16_support(lowering)
    return Lowered(lowering, _strides(lowering), metrics, constant.get("const_module"))


def _constants_first(work: Work, common: Mapping[str, Any]) -> dict[str, Any]:
    """Ahead of time with folding at run time: the part that only depends on constants is lowered and written apart."""
    constants, places = t.split_const_gm(
        work.gm, skip_folding_node_fn=following(work.gm, _is_script_object).__contains__
    )
    read = {str(node.target) for node in constants.graph.find_nodes(op="get_attr")}
    if written := sorted(read & set(work.gm.meta.get("mutated_named_buffers", ()))):
        work.notes.append(f"computed once, though the graph writes to it: what depends on {', '.join(written)} alone")
    lowering = t.GraphLowering(constants, example_inputs=[], is_const_graph=True, **common)
    with t.V.set_graph_handler(lowering), t.V.set_extern_kernel_nodes([]):
        lowering.run()
        wrapper, kernels = lowering.codegen_with_cpp_wrapper()
    return {
        "const_output_index": places,
        "const_wrapper_code": wrapper.value,
        "const_kernel_code": kernels.value,
        "const_module": lowering,
    }


def following(gm: Any, first: Callable[[Any], bool]) -> set[Any]:
    """The nodes for which `first` is true, and all nodes that depend on them: torch loses a constant made from one that
    is left out."""
    nodes: set[Any] = set()
    for node in gm.graph.nodes:
        if first(node) or not nodes.isdisjoint(node.all_input_nodes):
            nodes.add(node)
    return nodes


def _is_script_object(node: Any) -> bool:
    return node.op == "get_attr" and (
        str(node.target).startswith("_torchbind_obj") or isinstance(node.meta.get("val"), t.FakeScriptObject)
    )


def _strides(lowering: Any) -> list[Any]:
    """Strides of the outputs as texts, which are evaluated when the graph comes from a cache; None where they are not
    known."""
    printer = t.SymExprPrinter()

    def texts(output: Any) -> Any:
        known = isinstance(output, t.IRNode) and output.has_tensor_output()
        if not known or t.free_unbacked_symbols(output.get_stride()):
            return None
        return tuple(printer.doprint(stride) for stride in output.get_layout().stride)

    return [texts(output) for output in lowering.graph_outputs or ()]


def schedule(work: Work, lowered: Lowered) -> None:
    """Sets the lowering's `scheduler`."""
    lowering = lowered.graph
    lowering.init_wrapper_code()
    lowering._update_scheduler()
    work.produced = (len(lowering.scheduler.nodes), "groups")
    t.V.debug.draw_orig_fx_graph(lowering.orig_gm, lowering.scheduler.nodes)


def codegen(work: Work, lowered: Lowered) -> Coded:
    """Writes the wrapper and the kernels, as text that nothing has read yet."""
    lowering = lowered.graph
    lowering.wrapper_code.push_codegened_graph(lowering)
    lowering.scheduler.codegen()
    coded = Coded(*lowering.wrapper_code.generate(lowering.is_inference))
    lowering.wrapper_code.pop_codegened_graph()
    text = getattr(coded.wrapper, "value", None)  # a wrapper that is a graph has no text
    work.produced = (text.count("\n") + 1, "lines") if text is not None else None
    return coded


def load(work: Work, options: InnerOptions, prepared: Prepared, lowered: Lowered, coded: Coded) -> t.OutputCode:
    """Loads the code, and returns torch's object for a compiled graph."""
    lowering, module = lowered.graph, None
    before, linked = _clocks(), list[str]()
    if lowering.aot_mode and lowering.fx_wrapper:
        call = coded.wrapper.gm
    elif lowering.aot_mode:
        call, linked = _library(lowered, coded)
    else:
        module = _module(lowering, coded.wrapper)
        call = module.call
    work.notes.extend([_loaded(lowering, call, is_module=module is not None), *_spent(before), *linked])
    provenance = _provenance()
    if t.inductor_config.log_tlparse:
        t.log_runtime_and_tensor_meta(lowering.count_bytes()[2])
    _log_code(lowering, options.arguments.get("graph_id"))
    t.log_collective_schedule(lowering.scheduler.nodes)
    cudagraphs = options.arguments["cudagraphs"]
    if cudagraphs:
        _refuse_cudagraphs(work, lowering)
    if t.V.aot_compilation:
        return t.CompiledAOTI(filename=call, device_type=lowering.device_type)
    output_code: Any = t.CompiledFxGraph  # its parameters differ between versions
    region = (options.region,) if t.takes("CompiledFxGraph", "compile_region_name") else ()
    return output_code(
        call,
        lowering,
        work.gm,
        lowered.strides,
        lowering.disable_cudagraphs_reason,
        lowered.metrics.get_deltas(),
        t.counters["inductor"] - prepared.counted,
        cudagraphs,
        work.inputs,
        options.arguments.get("static_input_idxs", ()),
        *region,
        options.arguments,
        options.to_check,
        prepared.runnable,
        prepared.text,
        getattr(module, "runner", None),
        *provenance,
    )


def _module(lowering: t.GraphLowering, wrapper: Any) -> Any:
    is_text = isinstance(wrapper, t.ValueWithLineMap)
    module: Any = lowering._compile_to_module_lines(wrapper) if is_text else wrapper
    t.log_module_code(module.__file__)
    t.output_code_log.info("Output code written to: %s", module.__file__)
    if not is_text:
        t.V.debug.output_code(module.__file__)
        t.V.debug.copy(str(Path(module.__file__).with_suffix(".debug")))
    return module


def _library(lowered: Lowered, coded: Coded) -> tuple[Any, list[str]]:
    """Builds a library ahead of time; returns torch's result, and notes on how it was linked."""
    lowering = lowered.graph
    parts = [part for part in (lowering, lowered.constants) if part is not None]
    serialized = lowering.extern_node_serializer(t.V.extern_kernel_nodes) if t.V.extern_kernel_nodes else None
    files = [file for part in parts for file in part.wrapper_code.additional_files]
    t.output_code_log.debug("Output wrapper code: \n%s", coded.wrapper.value)
    if coded.kernels.value:
        t.output_code_log.debug("Output kernel code:\n%s", coded.kernels.value)
    if serialized:
        t.output_code_log.debug("Serialized Extern Kernel Nodes: \n%s", serialized)
    with (
        _toolkit_named(),
        shared_standard_library() as linked,
        t.dynamo_timed("AotCodeCompiler.compile", log_pt2_compile_event=True),
    ):
        beside = {"device_type": lowering.device_type, "additional_files": list(dict.fromkeys(files))}
        built = t.AotCodeCompiler.compile(lowering, coded.wrapper.value, coded.kernels.value, serialized, **beside)
    return built, linked


def _toolkit_named() -> contextlib.AbstractContextManager[Any]:
    """Sets CUDA_HOME for the block where it is not set: torch links the toolkit's stub of the driver only if it is."""
    folder = None
    if "CUDA_HOME" not in os.environ and "CUDA_PATH" not in os.environ and torch.cuda.is_available():
        from torch.utils.cpp_extension import CUDA_HOME as folder
    return mock.patch.dict(os.environ, {"CUDA_HOME": folder} if folder else {})


def _loaded(lowering: t.GraphLowering, call: Any, *, is_module: bool) -> str:
    """What was loaded, in words: kernels by their kind, or the size of a library."""
    if not is_module:
        files = [call] if isinstance(call, str) else call
        paths = [Path(file) for file in files if isinstance(file, str)] if isinstance(files, list) else []
        library = next((path for path in paths if path.suffix == ".so" and path.exists()), None)
        if library is not None:
            return f"a library of {library.stat().st_size:,} bytes"
        return f"{counted(len(paths), 'file')} for a library" if paths else "a graph that calls the kernels"
    kinds = Counter(
        _KINDS.get(name.partition("_")[0], "other") for name in set(lowering.wrapper_code.src_to_kernel.values())
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
"""Torch's timers that run while code is loaded -> our names for them. Kernels that a pool compiles show as waiting."""


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


def _provenance() -> tuple[str | None, str | None]:
    if t.inductor_config.trace.provenance_tracking_level == 0:
        return None, None
    maps = json.dumps(t.dump_inductor_provenance_info())
    stacks = json.dumps(t.kernel_stack_traces)
    trace_text("inductor_provenance_tracking_node_mappings", lambda: maps, "json")
    trace_text("inductor_provenance_tracking_kernel_stack_traces", lambda: stacks, "json")
    context = t.get_metrics_context()
    if stacks and context.in_progress():
        context.add_to_set("inductor_provenance", stacks)
    return maps, stacks


def _log_code(lowering: t.GraphLowering, number: int | None) -> None:
    """Logs and adds to Inductor's metrics the bytes moved, elements and estimated run times by scheduler node
    (TORCH_LOGS=inductor_metrics); nothing is computed while the log is off. Notes the compile id of graph `number`."""
    log = t.inductor_metrics_log
    if log.isEnabledFor(logging.INFO):
        moved, elements, runtimes = lowering.count_bytes()
        t.metrics.num_bytes_accessed += moved
        t.metrics.nodes_num_elem += elements
        t.metrics.node_runtimes += runtimes
        metrics = {"num_bytes_accessed": moved, "nodes_num_elem": elements, "node_runtimes": runtimes}
        log.info("Graph Metrics:\n%s", metrics)
    debug = t.inductor_debug
    if debug.RECORD_GRAPH_EXECUTION and debug.GRAPH_COMPILE_IDS is not None and number is not None:
        debug.GRAPH_COMPILE_IDS[number] = str(t.CompileContext.current_compile_id())


def _refuse_cudagraphs(work: Work, lowering: t.GraphLowering) -> None:
    """Sets the lowering's reason why CUDA graphs cannot record the graph. Nodes and symbolic shapes are no reason where
    the graph is partitioned."""
    if not t.inductor_config.graph_partition and not lowering.disable_cudagraphs_reason:
        reason = ""
        if t.inductor_config.triton.cudagraph_skip_dynamic_graphs and t.any_is_symbolic(*work.inputs):
            node = next((node for node in work.gm.graph.nodes if _symbolic(node)), None)
            reason = "graph with symbolic shapes inputs and config.triton.cudagraph_skip_dynamic_graphs=True."
        elif node := t.get_first_incompatible_cudagraph_node(work.gm):
            reason = f"disabling cudagraphs due to incompatible op {node.target}"
        if reason:
            where = node.meta.get("stack_trace") if node is not None else None
            lowering.disable_cudagraphs_reason = reason + (f" Found from {where}\n" if where else "\n")
    if not t.V.aot_compilation and not lowering.disable_cudagraphs_reason:
        lowering.disable_cudagraphs_reason = t.check_lowering_disable_cudagraph(lowering.device_node_mapping)


def _symbolic(node: Any) -> bool:
    value = node.meta.get("val")
    is_tensor = node.op != "placeholder" and isinstance(value, torch.Tensor)
    return is_tensor and t.any_is_symbolic(value) and bool(node.meta.get("stack_trace"))
