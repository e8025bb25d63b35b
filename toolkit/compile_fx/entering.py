"""A saved graph enters the path at the stage where it was recorded, with the recorded arguments.

What lies before that stage is not run again: a forward graph starts at post_grad, a joint graph at joint, a post-grad graph at
lower. The same entries as rung `inductor`, with our stages for torch's.

>>> compiled = enter(gm, fakes, spec, pipeline)
>>> first_stage("forward")
'post_grad'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..spec import ReplaySpec
from .pipeline import Pipeline, Stopped, Unfinished
from .work import Work

if TYPE_CHECKING:
    from ..rungs.base import Compiled

_FIRST = {
    "dynamo": "pre_grad", "pre_grad": "capture", "compiled_autograd": "capture", "joint": "joint", "inference": "joint",
    "joint_passed": "post_grad", "forward": "post_grad", "backward": "post_grad",
}  # fmt: skip


def first_stage(recorded: str, *, training_joint: bool = False) -> str:
    """The first stage that runs for a graph recorded at `recorded`."""
    if recorded == "joint_passed" and training_joint:
        return "partition"
    return _FIRST.get(recorded, "lower")


def enter(gm: Any, fakes: Sequence[Any], spec: ReplaySpec, pipeline: Pipeline) -> Compiled:
    """Compiles a graph that it may change; returns what takes the flat inputs, an Unfinished where the pipeline stops."""
    from ..rungs import inductor

    def joint(gm: Any, fakes: Sequence[Any], mode: Any) -> Any:
        return _run("joint", Work("inference", gm, fakes), mode, pipeline).gm

    def whole(gm: Any, fakes: Sequence[Any], mode: Any, *, pre_grad: bool) -> Any:
        return _whole(gm, fakes, mode, pipeline, pre_grad=pre_grad)

    try:
        return inductor.enter(
            gm, fakes, spec, whole=whole, compile_one=_compiler(pipeline), joint=joint, partition=_partitioner(pipeline)
        )
    except Stopped:
        return Unfinished(pipeline.until or "")


def _run(stage: str, work: Work, mode: Any, pipeline: Pipeline) -> Work:
    from ..rungs.entries import compiling

    with compiling(mode):
        pipeline.run(stage, work)
    return work


def _compiler(pipeline: Pipeline) -> Callable[..., tuple[Any, Sequence[Any]]]:
    """Our inner compiler with the arguments of `rungs.entries.compile_inner`."""

    def compile_one(gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Sequence[Any]]:
        from .. import torch_private as t
        from ..rungs import entries
        from .inner import compile_inner

        given = entries.inner_arguments(kwargs)
        with entries.compiling(mode, kwargs.get("bw_donated_idxs")), t.TracingContext.report_output_strides() as strides:
            compiled = compile_inner(gm, list(fakes), pipeline=pipeline, **given)
        return compiled, list(strides or ())

    return compile_one


def _partitioner(pipeline: Pipeline) -> Callable[..., tuple[Any, Any]]:
    """Our joint and partition stages with the arguments of `rungs.entries.partition`."""

    def partition(
        gm: Any, fakes: Sequence[Any], mode: Any, kwargs: Mapping[str, Any], *, passes: bool
    ) -> tuple[Any, Any]:
        names = ("num_fwd_outputs", "static_lifetime_input_indices")
        given = {name: kwargs[name] for name in names if name in kwargs}
        work = Work("joint", gm, list(fakes), given, skip_invoke_subgraph=True)
        if passes:
            _run("joint", work, mode, pipeline)
        _run("partition", work, mode, pipeline)
        assert work.halves is not None
        return work.halves

    return partition


def _whole(gm: Any, fakes: Sequence[Any], mode: Any, pipeline: Pipeline, *, pre_grad: bool) -> Any:
    """Dynamo's graphs go through all of it. The backward is compiled at once, so that its stages are seen."""
    from .. import torch_private as t
    from ..rungs import entries
    from .entry import compile_fx

    entries.mark_as_dynamos(gm)
    passes = pre_grad and t.inductor_config.use_pre_grad_passes
    with (
        entries.compiling(mode),
        t.inductor_config.patch(use_pre_grad_passes=passes),
        t.functorch_config.patch(force_non_lazy_backward_lowering=True),
    ):
        return compile_fx(gm, list(fakes), pipeline=pipeline)
