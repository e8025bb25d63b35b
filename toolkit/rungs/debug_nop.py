"""`debug_nop`: the graph as its generated Python code, with every value compared with its traced metadata.

Fails where what torch recorded of a value is not what the value is, before any compiler works on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx
from torch.fx.graph import CodeGen

from .. import torch_private as t
from ..debug_nop.checking import Checked
from ..live.eager import draw_like_kernels
from ..live.rung import Compiled, Rung
from ..live.spec import ReplaySpec, rewritten


class DebugNop(Rung):
    """Runs the checked module; a mismatch is raised after the whole graph ran."""

    name = "debug_nop"

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return "moved to another device, a graph has no recorded metadata; see graphdbg check" if spec.device else None

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        gm.graph.set_codegen(CodeGen())
        draw_like_kernels(gm)
        checked = Checked(gm, raises=True, rewritten=rewritten(spec))
        return lambda inputs: t.tree_leaves(checked(inputs), is_leaf=lambda value: value is None)


RUNG = DebugNop(
    order=30,
    words="node by node, metadata checked",
    meaning="A value is not what tracing promised: the fake (meta) function of an operator is wrong.",
    command="graphdbg check {graph}",
    is_plain=True,
    is_usual=True,
    is_whole=True,
    has_passes=False,
    goes_on=True,
)
"""The one instance that the registry hands out."""
