"""The stages from graph to graph: pre-grad passes, AOTAutograd, joint passes, the split into forward and backward,
post-grad passes.

Inductor's pass groups run on a graph and on the graphs inside it (bodies of cond, while_loop, invoke_subgraph and the
like): bodies come first, as in stock; the passes and their order are torch's.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ....dumps.wording import counted
from ... import torch_private as t
from .. import logs
from ..passes.watching import at_graph
from ..pipeline import Pipeline, node_count
from ..work import Work


def pre_grad(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm`."""
    gm = work.gm
    number = id(gm.graph)  # an artifact of the trace names the graph by it, and provenance joins by it
    logs.trace_text("before_pre_grad_graph", lambda: f"{logs.text_of(gm)}\n\n # graph id: {number}")
    t.pre_grad_graphs_log.debug("%s", _shown("BEFORE PRE GRAD", gm))
    debug = t.inductor_debug
    debug._pre_grad_graph_id = number
    if t.inductor_config.trace.provenance_tracking_level == 1:
        for node in gm.graph.nodes:
            if node.stack_trace:
                debug._inductor_pre_grad_node_stack_trace[node.name] = node.stack_trace
    with t.dynamo_timed(
        "_recursive_pre_grad_passes", log_pt2_compile_event=True, dynamo_compile_column_us="pre_grad_pass_time_us"
    ):
        work.gm = _pre_grad(gm, work.inputs)
    logs.trace_text("after_pre_grad_graph", lambda: f"{logs.text_of(work.gm)}\n\n # graph id: {id(work.gm.graph)}")


def capture(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.compiled`. `work.kwargs` are AOTAutograd's; the stages behind this one run inside it."""
    if work.export is not None:
        work.export(work)
        return
    hits = t.counters["aot_autograd"]["autograd_cache_hit"]
    work.compiled = t.aot_autograd(**work.kwargs)(work.gm, work.inputs)
    if t.counters["aot_autograd"]["autograd_cache_hit"] > hits:
        work.cache, work.cache_detail = "hit", "AOTAutograd's cache"
        work.notes.append("taken from AOTAutograd's cache, forward and backward: the stages from joint on did not run")
        pipeline.tell_cache(work)


def joint(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm`. Patterns are traced on the device of the inputs."""
    devices = t.get_inputs_devices(work.inputs, work.gm)
    with t.dynamo_timed(
        "_recursive_joint_graph_passes", log_pt2_compile_event=True, dynamo_compile_column_us="joint_graph_pass_time_us"
    ):
        work.gm = _joint(work.gm, skip_invoke_subgraph=work.skip_invoke_subgraph, device=next(iter(devices)))
    if work.at_end is not None:
        work.at_end(work)


def partition(work: Work, pipeline: Pipeline) -> None:
    """Sets `work.halves`. `work.kwargs` are AOTAutograd's arguments for a partitioner."""
    from functorch.compile import min_cut_rematerialization_partition

    partition = t.inductor_config.custom_partitioner_fn or min_cut_rematerialization_partition
    name = getattr(partition, "__name__", type(partition).__name__)
    kwargs = dict(work.kwargs)
    static = kwargs.pop("static_lifetime_input_indices", None)
    with t.dynamo_timed(name, log_pt2_compile_event=True):
        halves: Any = partition(
            work.gm, work.inputs, compiler="inductor", static_lifetime_input_indices=static, **kwargs
        )
    forward, backward = (node_count(half) or 0 for half in halves)
    work.halves = halves
    work.notes.append(f"forward {counted(forward, 'node')}, backward {counted(backward, 'node')}")


def post_grad(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm` in place and sets its fake mode and shape environment."""
    gm, inputs = work.gm, work.inputs
    prepare(work)
    logs.trace_text("before_post_grad_graph", lambda: logs.text_of(gm))
    with t.V.set_fake_mode(work.fake_mode):
        with (
            t.get_cuda_device_context(gm),
            t.dynamo_timed(
                "_recursive_post_grad_passes",
                log_pt2_compile_event=True,
                dynamo_compile_column_us="post_grad_pass_time_us",
            ),
        ):
            _post_grad(gm, is_inference=work.kwargs.get("is_inference", False))
        t.V.debug.fx_graph_transformed(gm, inputs)
        t.post_grad_graphs_log.debug("%s", _shown("AFTER POST GRAD", gm))
        keep_text(work)


def prepare(work: Work) -> None:
    """What lowering needs of a graph whether or not the passes run: sizes, reshapes, fake values, strides of the
    outputs."""
    gm, inputs = work.gm, work.inputs
    if t.is_tf32_warning_applicable(gm):
        t.warn_tf32_disabled()
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2000))  # deep models need it; never lowered
    text = io.StringIO()
    t.save_graph_repro(text, gm, inputs, "inductor", save_dir=None)
    work.runnable = text.getvalue()
    logs.trace_text("fx_graph_runnable", lambda: work.runnable)
    t.V.debug.fx_graph(gm, inputs)
    work.shape_env = getattr(gm, "shape_env", None) or t.shape_env_from_inputs(inputs)
    t.view_to_reshape(gm)  # a layout that Inductor changes may leave no view; before fake values are computed
    with t.dynamo_timed("additional_fake_tensor_prop", log_pt2_compile_event=True), torch.no_grad():
        work.fake_mode = t.fake_tensor_prop(gm, inputs)
    t.record_original_output_strides(gm)


def keep_text(work: Work) -> None:
    """The graph's code after the passes, part of what torch caches, and its provenance."""
    gm = work.gm
    work.post_grad_text = logs.text_of(gm, fast_sympy_print=True)
    logs.trace_text("inductor_post_grad_graph", lambda: work.post_grad_text)
    if t.inductor_config.trace.provenance_tracking_level != 0:
        debug = t.inductor_debug
        debug._inductor_post_to_pre_grad_nodes = t.create_mapping_pre_post_grad_nodes(
            debug._pre_grad_graph_id, t.get_graph_provenance_json(gm.graph)
        )
    context = t.get_metrics_context()
    if context.in_progress():
        t.CompileEventLogger.compilation_metric(overwrite=True, num_graph_breaks=t.counters["graph_break"].total())


def _shown(title: str, gm: Any) -> Any:
    """A graph as torch's logs show it, made when it is written."""
    return t.lazy_format_graph_code(title, gm, include_stride=True, include_device=True, colored=True)


def _pre_grad(gm: Any, inputs: Sequence[Any], path: str = "") -> Any:
    """Pre-grad passes; a body has no example inputs."""
    if not t.inductor_config.use_pre_grad_passes:
        return gm
    for name in list(t.subgraph_names(gm)):
        setattr(gm, name, _pre_grad(getattr(gm, name), (), _join(path, name)))
    with at_graph(gm, path):
        return t.pre_grad_passes(
            gm, inputs, t.inductor_config.add_pre_grad_passes, t.inductor_config.remove_pre_grad_passes
        )


def _joint(gm: Any, *, skip_invoke_subgraph: bool = False, device: Any = None, path: str = "") -> Any:
    """Joint passes, also on graphs that they make themselves. Bodies of invoke_subgraph had theirs when they were
    partitioned."""
    if not t.inductor_config.use_joint_graph_passes:
        return gm
    known = list(t.subgraph_names(gm, skip_invoke_subgraph))

    def body(of: Any, name: str) -> Any:
        below = _join(path, name)
        return _joint(getattr(of, name), skip_invoke_subgraph=skip_invoke_subgraph, device=device, path=below)

    for name in known:
        setattr(gm, name, body(gm, name))
    with at_graph(gm, path):
        rewritten = (
            t.joint_graph_passes(gm, device)
            if t.takes("joint_graph_passes", "input_device")
            else t.joint_graph_passes(gm)
        )
    for name in list(t.subgraph_names(rewritten)):
        if name not in known:
            setattr(rewritten, name, body(rewritten, name))
    return rewritten


def _post_grad(gm: Any, *, is_inference: bool, path: str = "") -> None:
    """Post-grad passes, in place."""
    if not t.inductor_config.use_post_grad_passes:
        return
    for name in list(t.subgraph_names(gm)):
        _post_grad(getattr(gm, name), is_inference=is_inference, path=_join(path, name))
    with at_graph(gm, path):
        t.post_grad_passes(gm, is_inference)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
