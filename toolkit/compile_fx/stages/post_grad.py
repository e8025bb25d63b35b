"""Prepares a graph for lowering: views to reshapes, fake values of every node, then the post-grad passes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import torch

from .. import _torch as t
from .. import recursing

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm` in place and sets its fake mode and shape environment."""
    gm, inputs = work.gm, work.inputs
    prepare(work)
    t.trace_text("before_post_grad_graph", lambda: t.text_of(gm))
    with t.V.set_fake_mode(work.fake_mode):
        with t.on_device_of(gm), t.dynamo_timed(
            "_recursive_post_grad_passes", log_pt2_compile_event=True, dynamo_compile_column_us="post_grad_pass_time_us"
        ):  # fmt: skip
            recursing.post_grad(gm, is_inference=work.kwargs.get("is_inference", False))
        t.V.debug.fx_graph_transformed(gm, inputs)
        t.stock.post_grad_graphs_log.debug(
            "%s",
            t.lazy_format_graph_code("AFTER POST GRAD", gm, include_stride=True, include_device=True, colored=True),
        )
        keep_text(work)


def prepare(work: Work) -> None:
    """What lowering needs of a graph whether or not the passes run: sizes, reshapes, fake values, strides of the outputs."""
    gm, inputs = work.gm, work.inputs
    if t.stock.is_tf32_warning_applicable(gm):
        t.stock._warn_tf32_disabled()
    t.deeper_recursion()
    text = io.StringIO()
    t.save_graph_repro(text, gm, inputs, "inductor", save_dir=None)
    work.runnable = text.getvalue()
    t.trace_text("fx_graph_runnable", lambda: work.runnable)
    t.V.debug.fx_graph(gm, inputs)
    work.shape_env = _shape_env(gm) or t.shape_env_from_inputs(inputs)
    t.view_to_reshape(gm)  # a layout that Inductor changes may leave no view; before fake values are computed
    with t.dynamo_timed("additional_fake_tensor_prop", log_pt2_compile_event=True), torch.no_grad():
        work.fake_mode = t.stock.fake_tensor_prop(gm, inputs)
    t.stock._recursive_record_original_output_strides(gm)


def keep_text(work: Work) -> None:
    """The graph's code after the passes, part of what torch caches, and its provenance."""
    gm = work.gm
    work.post_grad_text = t.text_of(gm, fast_sympy_print=True)
    t.trace_text("inductor_post_grad_graph", lambda: work.post_grad_text)
    if t.config.trace.provenance_tracking_level != 0:
        debug = t.inductor_debug
        debug._inductor_post_to_pre_grad_nodes = t.create_mapping_pre_post_grad_nodes(
            debug._pre_grad_graph_id, t.fx_traceback.get_graph_provenance_json(gm.graph)
        )
    context = t.get_metrics_context()
    if context.in_progress():
        t.CompileEventLogger.compilation_metric(overwrite=True, num_graph_breaks=t.counters["graph_break"].total())


def _shape_env(gm: Any) -> Any:
    return getattr(gm, "shape_env", None)
