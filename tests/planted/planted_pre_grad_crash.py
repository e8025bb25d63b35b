"""Imported, plants a crash before AOTAutograd, which no setting and no operator left to eager's kernel steps around."""

from typing import Any

import torch
from torch import fx
from torch._inductor import compile_fx

_passes = compile_fx._recursive_pre_grad_passes


def _raise_at_gelu(gm: fx.GraphModule, *given: Any, **more: Any) -> Any:
    if any(node.target is torch._C._nn.gelu for node in gm.graph.nodes):
        raise ZeroDivisionError("the planted pass takes no gelu")
    return _passes(gm, *given, **more)


compile_fx._recursive_pre_grad_passes = _raise_at_gelu
