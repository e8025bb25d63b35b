"""`inductor_cudagraphs`: Inductor with CUDA graphs: recorded in the second run, replayed from the third on.

Right under `inductor` and wrong here: the graph does something that a recording does not repeat, or memory of a former
run was still in use. The result that is judged is that of the third run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.torchside.values import fake_of
from ..live.eager import clone_inputs
from ..live.entries import mode_of
from ..live.rung import Compiled
from ..live.spec import ReplaySpec
from .inductor import Inductor, decomposed_copy, needs_decomposing

RUNS_BEFORE = 2


class InductorCudagraphs(Inductor):
    """The same entries as `inductor`."""

    name = "inductor_cudagraphs"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        if not torch.cuda.is_available():
            return "there is no CUDA device here"
        if spec.device and not spec.device.startswith("cuda"):
            return f"the graph runs on {spec.device}"
        return super().unavailable(spec)

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        values = [fake_of(node) for node in gm.graph.nodes]
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        if spec.device is None and not any(value.is_cuda for value in tensors):
            return "no value of the graph is on a CUDA device"
        return "Inductor makes no CUDA graphs of dynamic sizes" if spec.dynamic else None

    def settings(self) -> dict[str, Any]:
        return {"triton.cudagraphs": True, "triton.cudagraph_trees": True}

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        if needs_decomposing(gm, spec):  # before `cudagraphs` is added, an argument that marks Inductor's own graphs
            gm = decomposed_copy(gm, fake_inputs, mode_of(gm, fake_inputs))
        kwargs = {**spec.compile_kwargs, "cudagraphs": True}
        compiled = super().build(gm, fake_inputs, msgspec.structs.replace(spec, compile_kwargs=kwargs))

        def run(inputs: list[Any]) -> Any:
            state = torch.cuda.get_rng_state(), torch.get_rng_state()
            for _ in range(RUNS_BEFORE):
                torch.compiler.cudagraph_mark_step_begin()
                _run_through(compiled(clone_inputs(inputs)))
            torch.cuda.set_rng_state(state[0])
            torch.set_rng_state(state[1])
            torch.compiler.cudagraph_mark_step_begin()
            return compiled(inputs)

        return run


def _run_through(outputs: Any) -> None:
    """Runs the backward of outputs that require grad, so that it is recorded, too."""
    roots = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(value) for value in roots])


RUNG = InductorCudagraphs(
    order=120,
    words="Inductor with CUDA graphs",
    layer="cudagraphs",
    meaning="The fault is in what CUDA graphs add: memory used again, or work that a recording does not repeat.",
    used_by=("cudagraphs", "triton.cudagraphs"),
)
"""The one instance that the registry hands out."""
