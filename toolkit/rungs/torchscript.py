"""`torchscript`: the graph scripted, frozen and optimised by TorchScript, another compiler than Inductor altogether.

Right here and wrong under Inductor: the graph itself is sound. It is no step towards Inductor, so a failure here blames
nothing but TorchScript. What TorchScript cannot say is a reason, not a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ...dumps.errors import GraphdbgError
from .. import torch_private as t
from ..compilers.ts_compile import ts_compile
from ..live.eager import has_kernel_draws
from ..live.rung import CannotRun, Compiled, Rung
from ..live.spec import FULL_STAGES, ReplaySpec


class TorchScript(Rung):
    """Runs the scripted graph; of a joint graph forward and backward in one."""

    name = "torchscript"
    early = "TorchScript takes only graphs that AOTAutograd has processed"
    """Why graphs of earlier stages are not taken."""

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return self.early if spec.stage in FULL_STAGES and spec.stage != "compiled_autograd" else None

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        return "the graph draws random numbers by Inductor's own operators" if has_kernel_draws(gm) else None

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        try:
            compiled = ts_compile(gm, fake_inputs)
        except GraphdbgError as error:
            raise CannotRun(error.why or str(error)) from error
        return lambda inputs: t.tree_leaves(compiled(inputs), is_leaf=lambda value: value is None)


RUNG = TorchScript(
    order=50, words="scripted, frozen and optimised by TorchScript", is_side=True, is_whole=True, has_passes=False
)
"""The one instance that the registry hands out."""
