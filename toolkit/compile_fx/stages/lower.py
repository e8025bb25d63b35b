"""Lowering: Inductor walks the graph and makes of each node a loop, a view of one, or a call of a library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _torch as t
from ..constants import split_const_gm

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.lowering`, which stays the handler `V.graph` until code is loaded, and `work.output_strides`."""
    enter, kwargs = work.open.enter_context, work.kwargs
    ahead = bool(t.V.aot_compilation)
    enter(t.V.set_fake_mode(work.fake_mode))
    enter(t.stock.maybe_disable_comprehensive_padding(work.inputs))
    enter(t.stock.maybe_disable_graph_partition(kwargs.get("cpp_wrapper", False), ahead))
    constant = _constants_first(work) if ahead and t.config.aot_inductor.use_runtime_constant_folding else {}
    work.lowering = t.GraphLowering(
        work.gm, example_inputs=work.inputs, inputs_to_check=work.inputs_to_check, **_common(work), **constant
    )
    work.metrics = t.metrics.CachedMetricsHelper()
    work.lowering.freeze_runtime_asserts()  # none may be added once code for them is written
    enter(t.V.set_graph_handler(work.lowering))
    enter(t.V.set_extern_kernel_nodes([]))
    if t.distributed_autotune is not None:
        enter(t.distributed_autotune.graph_context())
    work.lowering.run(*work.inputs)
    work.output_strides = _strides(work.lowering)
    work.made = (len(work.lowering.buffers), "buffers")
    t.stock._check_triton_bf16_support(work.lowering)


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
    if t.INNER_TAKES_DECOMPOSITIONS:
        given["get_decomp_fn"] = kwargs.get("get_decomp_fn", t.select_decomp_table)
    return given


def _constants_first(work: Work) -> dict[str, Any]:
    """Ahead of time with folding at run time: the part that only depends on constants is lowered and written apart."""
    constants, places = split_const_gm(work.gm, skip_folding_node_fn=_is_script_object)
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


def _is_script_object(node: Any) -> bool:
    return node.op == "get_attr" and (
        str(node.target).startswith("_torchbind_obj") or t.is_script_object(node.meta.get("val"))
    )


def _strides(lowering: Any) -> list[Any]:
    """Strides of the outputs as texts, which are evaluated when the graph comes from a cache; None where they are not known."""
    printer = t.SymExprPrinter()
    strides: list[Any] = []
    for output in lowering.graph_outputs or ():
        known = isinstance(output, t.IRNode) and output.has_tensor_output()
        if known and not t.free_unbacked_symbols(output.get_stride()):
            strides.append(tuple(printer.doprint(stride) for stride in output.get_layout().stride))
        else:
            strides.append(None)
    return strides
