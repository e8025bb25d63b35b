"""`nop`: the graph as the Python code that fx generates for it, through a compiler that does nothing.

Fails where the graph itself, or its printing, is broken, and no compiler pass is to blame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx
from torch.fx.graph import CodeGen

from .. import torch_private as t
from ..live.eager import draw_like_kernels
from ..live.rung import Compiled, Rung
from ..live.spec import ReplaySpec


class Nop(Rung):
    """Runs the generated forward."""

    name = "nop"

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        # Flat in, flat out, whatever calling convention the recorded graph had.
        gm.graph.set_codegen(CodeGen())
        draw_like_kernels(gm)
        gm.recompile()
        return lambda inputs: t.tree_leaves(gm(*inputs), is_leaf=lambda value: value is None)


RUNG = Nop(
    order=20,
    words="the Python code that fx writes for the graph, not compiled",
    layer="dynamo",
    meaning="The fault is in the graph itself, before any compiler: in tracing, or in how fx prints it.",
    is_plain=True,
    is_whole=True,
    has_passes=False,
)
"""The one instance that the registry hands out."""
