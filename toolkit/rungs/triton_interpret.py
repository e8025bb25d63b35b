"""`triton_interpret`: Inductor's Triton kernels for a GPU, on Triton's interpreter, with no GPU.

Right here and wrong under `inductor` on a GPU: what Triton or the assembler made of the kernels, or how they are
launched. Wrong here too: the kernels that Inductor wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...dumps.torchside.values import fake_of
from ..live.eager import has_kernel_draws
from ..live.entries import mode_of, patterns_without_device
from ..live.rung import Compiled
from ..live.spec import FULL_STAGES, ReplaySpec
from .inductor import Inductor

if TYPE_CHECKING:
    from ..triton.interpreting.session import Interpretation


class TritonInterpret(Inductor):
    """The same entries as `inductor`, for a pretended GPU."""

    name = "triton_interpret"
    takes_kernels_on_cpu = True
    target = "cuda:90"
    """The pretended GPU: see `triton.targets`."""
    may_draw_like_cpu = True
    """Whether kernels may draw the CPU kernels' random numbers, which eager mode can repeat for a CPU graph."""

    def unavailable(self, spec: ReplaySpec) -> str | None:
        from ..triton.needs import lacks_interpreter

        return lacks_interpreter()

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        values = [fake_of(node) for node in gm.graph.find_nodes(op="placeholder")]
        if any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
            return "the graph is on a GPU, and kernels are interpreted on the CPU: add --device cpu"
        called = {str(node.target) for node in gm.graph.nodes if node.op == "call_function"}
        if own := sorted(name for name in called if "mkldnn" in name):
            return f"it holds {', '.join(own[:3])}, which only the CPU has: the graph was compiled for the CPU"
        return super().cannot_take(gm, spec)

    @contextmanager
    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> Iterator[None]:
        from ..triton.pretended import pretending
        from ..triton.retarget import put_back
        from ..triton.targets import target_of

        moving = _moving() if spec.stage in FULL_STAGES else nullcontext()
        with super().around(gm, spec), patterns_without_device(), pretending(target_of(self.target)), moving:
            session = self.session()
            session.draws_like_cpu = self.may_draw_like_cpu and has_kernel_draws(gm) and not _draws_on_gpu(gm)
            with put_back(), session.open():
                yield

    def session(self) -> Interpretation:
        """The interpretation that runs the kernels."""
        from ..triton.interpreting.session import Interpretation

        return Interpretation()

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        drawn = ["the kernels' random numbers were drawn as kernels of the CPU draw them"] * has_kernel_draws(gm)
        return [*super().notes(gm, spec), *drawn]

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        from ..triton.retarget import retargeted

        if spec.stage in FULL_STAGES:  # moved by the context that `around` opened
            return super().build(gm, fake_inputs, spec)
        moved = retargeted(gm, fake_inputs, mode_of(gm, fake_inputs))
        compiled = super().build(moved.gm, moved.fakes, spec)
        return lambda inputs: compiled([*inputs, *moved.added])


@contextmanager
def _moving() -> Iterator[None]:
    """Makes AOTAutograd trace on the CPU as for a GPU: without oneDNN's operators, which only CPUs have."""
    from ..triton.pretended import put_on_gpu_behind_autograd
    from ..triton.retarget import put

    with put_on_gpu_behind_autograd(put), torch.backends.mkldnn.flags(enabled=False):
        yield


def _draws_on_gpu(gm: fx.GraphModule) -> bool:
    makers = [node for node in gm.graph.nodes if "inductor_seed" in str(node.target)]
    given = [value for node in makers for value in (*node.args, *node.kwargs.values())]
    return any(isinstance(value, torch.device) and value.type == "cuda" for value in given)


RUNG = TritonInterpret(
    order=100,
    words="the kernels for a GPU, run on the CPU by Triton's interpreter",
    layer="triton",
    meaning="The fault is in the Triton kernels that Inductor writes for a GPU, before any GPU runs them.",
    goes_on=True,
)
"""The one instance that the registry hands out."""
