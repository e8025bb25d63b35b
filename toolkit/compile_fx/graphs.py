"""The stages from graph to graph: pre-grad passes, AOTAutograd, joint passes, the split into forward and backward,
post-grad passes.

Inductor's pass groups run on a graph and on the graphs inside it (bodies of cond, while_loop, invoke_subgraph and the
like): bodies come first, as in stock; the passes and their order are torch's.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...dumps.wording import counted
from .. import torch_private as t
from .passes.watching import at_graph
from .pipeline import node_count
from .stage import CaptureOptions, InnerOptions, JointOptions, Prepared, Work

if TYPE_CHECKING:
    from torch.fx import GraphModule


def pre_grad(work: Work) -> GraphModule:
    """The graph after the pre-grad passes."""
    gm = work.gm
    number = id(gm.graph)  # an artifact of the trace names the graph by it, and provenance joins by it
    trace_text("before_pre_grad_graph", lambda: f"{text_of(gm)}\n\n # graph id: {number}")
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
        rewritten = _pre_grad(gm, work.inputs)
    trace_text("after_pre_grad_graph", lambda: f"{text_of(rewritten)}\n\n # graph id: {id(rewritten.graph)}")
    return rewritten


def capture(work: Work, options: CaptureOptions) -> Any:
    """Calls AOTAutograd, inside which the later stages run, and returns its callable. Ahead of time `work.gm` is
    replaced by the captured graph."""
    if options.export is not None:
        return options.export(work)
    hits = t.counters["aot_autograd"]["autograd_cache_hit"]
    captured = t.aot_autograd(**options.arguments)(work.gm, work.inputs)
    if t.counters["aot_autograd"]["autograd_cache_hit"] > hits:
        work.notes.append("taken from AOTAutograd's cache, forward and backward: the stages from joint on did not run")
        options.caches.append((work.part, "hit", "AOTAutograd's cache"))
    return captured


def joint(work: Work, options: JointOptions) -> GraphModule:
    """The graph after the joint passes. Patterns are traced on the device of the inputs."""
    devices = t.get_inputs_devices(work.inputs, work.gm)
    with t.dynamo_timed(
        "_recursive_joint_graph_passes", log_pt2_compile_event=True, dynamo_compile_column_us="joint_graph_pass_time_us"
    ):
        gm = _joint(work.gm, skip_invoke_subgraph=options.skip_invoke_subgraph, device=next(iter(devices)))
    if options.at_end is not None:
        options.at_end(gm, work.inputs, work.notes)
    return gm


def partition(work: Work, options: JointOptions) -> tuple[GraphModule, GraphModule]:
    """Splits a joint graph into forward and backward."""
    from functorch.compile import min_cut_rematerialization_partition

    partition = t.inductor_config.custom_partitioner_fn or min_cut_rematerialization_partition
    name = getattr(partition, "__name__", type(partition).__name__)
    kwargs = dict(options.arguments)
    static = kwargs.pop("static_lifetime_input_indices", None)
    with t.dynamo_timed(name, log_pt2_compile_event=True):
        halves = partition(work.gm, work.inputs, compiler="inductor", static_lifetime_input_indices=static, **kwargs)
    forward, backward = (node_count(half) or 0 for half in halves)
    work.notes.append(f"forward {counted(forward, 'node')}, backward {counted(backward, 'node')}")
    return halves


def post_grad(work: Work, options: InnerOptions) -> Prepared:
    """Rewrites `work.gm` in place and prepares it for lowering."""
    return prepare(work, options)


def prepare(work: Work, options: InnerOptions, *, passes: bool = True) -> Prepared:
    """Computes what lowering needs, with or without the passes: sizes, reshapes, fake values, output strides; and what
    torch's caches keep: the code after the passes, provenance."""
    gm, inputs = work.gm, work.inputs
    before = t.counters["inductor"].copy()
    if t.is_tf32_warning_applicable(gm):
        t.warn_tf32_disabled()
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 2000))  # deep models need it; never lowered
    script = io.StringIO()
    t.save_graph_repro(script, gm, inputs, "inductor", save_dir=None)
    runnable = script.getvalue()
    trace_text("fx_graph_runnable", lambda: runnable)
    t.V.debug.fx_graph(gm, inputs)
    shape_env = getattr(gm, "shape_env", None) or t.shape_env_from_inputs(inputs)
    t.view_to_reshape(gm)  # a layout that Inductor changes may leave no view; before fake values are computed
    with t.dynamo_timed("additional_fake_tensor_prop", log_pt2_compile_event=True), torch.no_grad():
        fake_mode = t.fake_tensor_prop(gm, inputs)
    t.record_original_output_strides(gm)
    if passes:
        trace_text("before_post_grad_graph", lambda: text_of(gm))
    with t.V.set_fake_mode(fake_mode):
        if passes:
            with (
                t.get_cuda_device_context(gm),
                t.dynamo_timed(
                    "_recursive_post_grad_passes",
                    log_pt2_compile_event=True,
                    dynamo_compile_column_us="post_grad_pass_time_us",
                ),
            ):
                _post_grad(gm, is_inference=options.arguments.get("is_inference", False))
            t.V.debug.fx_graph_transformed(gm, inputs)
            t.post_grad_graphs_log.debug("%s", _shown("AFTER POST GRAD", gm))
        text = text_of(gm, fast_sympy_print=True)
        trace_text("inductor_post_grad_graph", lambda: text)
        if t.inductor_config.trace.provenance_tracking_level != 0:
            debug = t.inductor_debug
            debug._inductor_post_to_pre_grad_nodes = t.create_mapping_pre_post_grad_nodes(
                debug._pre_grad_graph_id, t.get_graph_provenance_json(gm.graph)
            )
        if t.get_metrics_context().in_progress():
            t.CompileEventLogger.compilation_metric(overwrite=True, num_graph_breaks=t.counters["graph_break"].total())
    return Prepared(fake_mode, shape_env, runnable, text, before)


def _shown(title: str, gm: Any) -> Any:
    """A graph as torch's logs show it, made when it is written."""
    return t.lazy_format_graph_code(title, gm, include_stride=True, include_device=True, colored=True)


def _pre_grad(gm: Any, inputs: Sequence[Any], path: str = "") -> Any:
    """Pre-grad passes; a body has no example inputs."""
    if not t.inductor_config.use_pre_grad_passes:
        return gm
    _on_bodies(gm, path, lambda body, where: _pre_grad(body, (), where))
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

    def run(body: Any, where: str) -> Any:
        return _joint(body, skip_invoke_subgraph=skip_invoke_subgraph, device=device, path=where)

    _on_bodies(gm, path, run, known)
    with at_graph(gm, path):
        of_device = (device,) if t.takes("joint_graph_passes", "input_device") else ()
        rewritten = t.joint_graph_passes(gm, *of_device)
    _on_bodies(rewritten, path, run, [name for name in t.subgraph_names(rewritten) if name not in known])
    return rewritten


def _post_grad(gm: Any, *, is_inference: bool, path: str = "") -> Any:
    """Post-grad passes, in place."""
    if t.inductor_config.use_post_grad_passes:
        _on_bodies(gm, path, lambda body, where: _post_grad(body, is_inference=is_inference, path=where))
        with at_graph(gm, path):
            t.post_grad_passes(gm, is_inference)
    return gm


def _on_bodies(gm: Any, path: str, run: Callable[[Any, str], Any], names: Sequence[str] | None = None) -> None:
    """Replaces the graphs inside a graph, all or those in `names`, by the results of `run`."""
    for name in list(t.subgraph_names(gm)) if names is None else names:
        setattr(gm, name, run(getattr(gm, name), f"{path}.{name}" if path else name))


def text_of(gm: Any, **options: Any) -> str:
    """Readable code of a graph with strides and devices."""
    return gm.print_readable(print_output=False, include_stride=True, include_device=True, **options)


def trace_text(name: str, make: Callable[[], str], encoding: str = "string") -> None:
    """One artifact of torch's structured trace."""
    t.trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": encoding}, payload_fn=make)
