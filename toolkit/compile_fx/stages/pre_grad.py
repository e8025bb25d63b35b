"""Pre-grad passes: Dynamo's graph, before autograd sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _torch as t
from .. import recursing

if TYPE_CHECKING:
    from ..pipeline import Pipeline
    from ..work import Work


def run(work: Work, pipeline: Pipeline) -> None:
    """Rewrites `work.gm`."""
    gm = work.gm
    number = id(gm.graph)  # an artifact of the trace names the graph by it, and provenance joins by it
    t.trace_text("before_pre_grad_graph", lambda: f"{t.text_of(gm)}\n\n # graph id: {number}")
    t.stock.pre_grad_graphs_log.debug(
        "%s",
        t.lazy_format_graph_code("BEFORE PRE GRAD", gm, include_stride=True, include_device=True, colored=True),
    )
    debug = t.inductor_debug
    debug._pre_grad_graph_id = number
    if t.config.trace.provenance_tracking_level == 1:
        for node in gm.graph.nodes:
            if node.stack_trace:
                debug._inductor_pre_grad_node_stack_trace[node.name] = node.stack_trace
    with t.dynamo_timed(
        "_recursive_pre_grad_passes", log_pt2_compile_event=True, dynamo_compile_column_us="pre_grad_pass_time_us"
    ):
        work.gm = recursing.pre_grad(gm, work.inputs)
    t.trace_text("after_pre_grad_graph", lambda: f"{t.text_of(work.gm)}\n\n # graph id: {id(work.gm.graph)}")
