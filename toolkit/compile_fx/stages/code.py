"""The stages from graph to code: lowering (of each node a loop, a view of one, or a call of a library), scheduling, and
code generation: a kernel for each fused group and the wrapper that allocates and calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import torch_private as t
from ..pipeline import Pipeline
from ..work import Work


def lower(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.lowering`, which stays the handler `V.graph` until code is loaded, and `work.output_strides`."""
    enter, kwargs = work.open.enter_context, work.kwargs
    ahead = bool(t.V.aot_compilation)
    enter(t.V.set_fake_mode(work.fake_mode))
    enter(t.maybe_disable_comprehensive_padding(work.inputs))
    enter(t.maybe_disable_graph_partition(kwargs.get("cpp_wrapper", False), ahead))
    constant = _constants_first(work) if ahead and t.inductor_config.aot_inductor.use_runtime_constant_folding else {}
    work.lowering = t.GraphLowering(
        work.gm, example_inputs=work.inputs, inputs_to_check=work.inputs_to_check, **_common(work), **constant
    )
    work.metrics = t.CachedMetricsHelper()
    work.lowering.freeze_runtime_asserts()  # none may be added once code for them is written
    enter(t.V.set_graph_handler(work.lowering))
    enter(t.V.set_extern_kernel_nodes([]))
    context = t.optional("distributed_autotune_context")
    if context is not None:
        enter(context())
    work.lowering.run(*work.inputs)
    work.output_strides = _strides(work.lowering)
    work.made = (len(work.lowering.buffers), "buffers")
    t.check_triton_bf16_support(work.lowering)


def _common(work: Work) -> dict[str, Any]:
    kwargs = work.kwargs
    given = {
        "shape_env": work.shape_env,
        "graph_id": kwargs.get("graph_id"),
        "cpp_wrapper": kwargs.get("cpp_wrapper", False),
        "aot_mode": bool(t.V.aot_compilation),
        "extern_node_serializer": kwargs.get("extern_node_serializer"),
        "is_inference": kwargs.get("is_inference", False),
        "is_backward": kwargs.get("is_backward", False),
        "fx_wrapper": kwargs.get("fx_wrapper", False),
    }
    if t.takes("GraphLowering", "get_decomp_fn"):
        given["get_decomp_fn"] = kwargs.get("get_decomp_fn", t.select_decomp_table)
    return given


def _constants_first(work: Work) -> dict[str, Any]:
    """Ahead of time with folding at run time: the part that only depends on constants is lowered and written apart."""
    constants, places = t.split_const_gm(
        work.gm, skip_folding_node_fn=following(work.gm, _is_script_object).__contains__
    )
    read = {str(node.target) for node in constants.graph.find_nodes(op="get_attr")}
    if written := sorted(read & set(work.gm.meta.get("mutated_named_buffers", ()))):
        work.notes.append(f"computed once, though the graph writes to it: what depends on {', '.join(written)} alone")
    lowering = t.GraphLowering(constants, example_inputs=[], is_const_graph=True, **_common(work))
    with t.V.set_graph_handler(lowering), t.V.set_extern_kernel_nodes([]):
        lowering.run()
        wrapper, kernels = lowering.codegen_with_cpp_wrapper()
    work.const_lowering = lowering
    return {
        "const_output_index": places,
        "const_wrapper_code": wrapper.value,
        "const_kernel_code": kernels.value,
        "const_module": lowering,
    }


def following(gm: Any, first: Callable[[Any], bool]) -> set[Any]:
    """The nodes for which `first` is true, and what follows from them: torch loses a constant made from one that is
    left out."""
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
    strides: list[Any] = []
    for output in lowering.graph_outputs or ():
        known = isinstance(output, t.IRNode) and output.has_tensor_output()
        if known and not t.free_unbacked_symbols(output.get_stride()):
            strides.append(tuple(printer.doprint(stride) for stride in output.get_layout().stride))
        else:
            strides.append(None)
    return strides


def schedule(work: Work, pipeline: Pipeline) -> None:
    """Sets the lowering's `scheduler`."""
    lowering = work.lowering
    lowering.init_wrapper_code()
    lowering._update_scheduler()
    work.made = (len(lowering.scheduler.nodes), "groups")
    t.V.debug.draw_orig_fx_graph(lowering.orig_gm, lowering.scheduler.nodes)


def codegen(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.wrapper_code`, with `.value`, the text, and `work.kernel_code`, which is apart only ahead of time."""
    lowering = work.lowering
    lowering.wrapper_code.push_codegened_graph(lowering)
    lowering.scheduler.codegen()
    work.wrapper_code, work.kernel_code = lowering.wrapper_code.generate(lowering.is_inference)
    lowering.wrapper_code.pop_codegened_graph()
    text = getattr(work.wrapper_code, "value", None)  # a wrapper that is a graph has no text
    work.made = (text.count("\n") + 1, "lines") if text is not None else None
