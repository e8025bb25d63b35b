"""A saved graph enters the path at the stage where it was recorded, with the recorded arguments.

What lies before that stage is not run again: a forward graph starts at post_grad, a joint graph at joint, a post-grad
graph at lower. The same entries as rung `inductor`, with our stages for torch's.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import torch_private as t
from ..live import entries
from ..live.entries import compiling
from ..live.rung import Compiled
from ..live.spec import ReplaySpec
from ..rungs import inductor
from .entry import compile_fx
from .inner import compile_inner
from .pipeline import Pipeline, Stopped, Unfinished
from .work import Work


def enter(gm: Any, fakes: Sequence[Any], spec: ReplaySpec, pipeline: Pipeline) -> Compiled:
    """Compiles a graph that it may change; returns what takes the flat inputs, an Unfinished where the pipeline
    stops."""

    def run(stage: str, work: Work, mode: Any) -> Work:
        with compiling(mode):
            pipeline.run(stage, work)
        return work

    def half(gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        given = entries.inner_arguments(kwargs)
        with compiling(mode, kwargs.get("bw_donated_idxs")), t.TracingContext.report_output_strides() as strides:
            compiled = compile_inner(gm, list(fakes), pipeline=pipeline, **given)
        return compiled, list(strides or ())

    def joint_passes(gm: Any, fakes: Sequence[Any], mode: Any) -> Any:
        return run("joint", Work("inference", gm, fakes), mode).gm

    def partition(
        gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any], *, passes: bool
    ) -> tuple[Any, Any]:
        given = {name: kwargs[name] for name in ("num_fwd_outputs", "static_lifetime_input_indices") if name in kwargs}
        work = Work("joint", gm, list(fakes), given, skip_invoke_subgraph=True)
        if passes:
            run("joint", work, mode)
        run("partition", work, mode)
        assert work.halves is not None
        return work.halves

    def whole(gm: Any, fakes: Sequence[Any], mode: Any, *, pre_grad: bool) -> Any:
        entries.mark_as_dynamos(gm)
        passes = pre_grad and t.inductor_config.use_pre_grad_passes
        with (
            compiling(mode),
            t.inductor_config.patch(use_pre_grad_passes=passes),
            t.functorch_config.patch(
                force_non_lazy_backward_lowering=True
            ),  # so that the stages of the backward are seen
        ):
            return compile_fx(gm, list(fakes), pipeline=pipeline)

    try:
        return inductor.enter(gm, fakes, spec, whole=whole, compile_one=half, joint=joint_passes, partition=partition)
    except Stopped:
        return Unfinished(pipeline.until or "")
