"""`decomposed`: AOTAutograd with Inductor's decompositions and partitioner, and no compiler behind them.

Meaningful for graphs that are not decomposed yet: Dynamo's, and those of other backends. A graph from Inductor is
already decomposed, and a decomposition's fault is in it, also when eager runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import fx

from .. import torch_private as t
from ..compilers.boxed import boxed_call
from ..live.eager import draw_like_kernels
from ..live.entries import compiling, mark_as_dynamos, mode_of
from ..live.rung import Compiled, Rung
from ..live.spec import FULL_STAGES, ReplaySpec
from .inductor import RETRACED, decomposed_copy, decomposed_ops, flat, made_by_inductor, run_joint


class Decomposed(Rung):
    """Runs the graph that the inner compiler would receive."""

    name = "decomposed"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        if made_by_inductor(spec) and spec.stage not in FULL_STAGES:
            return "the graph is decomposed already (a wrong decomposition shows in the Dynamo graph)"
        return None

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        whole = spec.stage in FULL_STAGES or decomposed_ops(gm)
        return None if whole else "no operator in the graph has a decomposition"

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return [] if spec.stage in FULL_STAGES else [RETRACED]

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        mode = mode_of(gm, fake_inputs)
        if spec.stage in FULL_STAGES:
            whole = _run_decomposed(gm, fake_inputs, mode)
            return flat(lambda inputs: whole(*inputs))
        traced = decomposed_copy(gm, fake_inputs, mode)
        if spec.training_joint:
            return run_joint(traced, fake_inputs, mode, spec, lambda gm, fakes, *_: (_nop(gm, fakes), []))
        return flat(_nop(traced, fake_inputs))


def _run_decomposed(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> Callable[..., Any]:
    """Runs a Dynamo graph through AOTAutograd with Inductor's decompositions and partitioner.

    The backend `aot_eager_decomp_partition` is public and does it too, but looks at the bisector's settings and runs
    Inductor's random prims as torch does, not as kernels do.
    """
    from functorch.compile import min_cut_rematerialization_partition

    mark_as_dynamos(gm)
    with compiling(mode), t.functorch_config.patch(unlift_effect_tokens=True):
        compiled: Any = t.aot_autograd(
            fw_compiler=_nop,
            bw_compiler=_nop,
            decompositions=t.select_decomp_table,
            partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
        )(gm, list(fakes))
    return compiled


def _nop(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
    draw_like_kernels(gm)
    gm.recompile()
    return boxed_call(gm)


RUNG = Decomposed(
    order=40,
    words="what AOTAutograd and the decompositions make of it, run by torch",
    layer="aot_autograd",
    meaning="The fault is in a decomposition, or in AOTAutograd: tracing, functionalisation, partition.",
    is_usual=True,
    has_passes=False,
)
"""The one instance that the registry hands out."""
