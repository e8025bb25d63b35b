# pyright: basic
"""What eager gives at each node of a case, without the numbers: shapes, strides, dtypes. Edits must not change it.

>>> forms(case)["relu"]
[((2, 3), (3, 1), torch.float32, device(type='cpu'), False)]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ...toolkit import torch_private as t
from ...toolkit.case import Live
from ...toolkit.copying import clone_inputs
from ...toolkit.eager import GraphRunError, run_graph


def forms(case: Live) -> dict[str, list[Any]] | None:
    """The form of every node's value, the outputs' under "output"; None where eager does not run."""
    found: dict[str, list[Any]] = {}

    def look(node: fx.Node, value: Any) -> Any:
        found[node.name] = [_form(one) for one in t.tree_leaves(value)]
        return value

    try:
        with torch.random.fork_rng(devices=[]):
            found["output"] = [_form(one) for one in run_graph(case.gm, clone_inputs(case.inputs), hook=look)]
    except (GraphRunError, RuntimeError):
        return None
    return found


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    strides = value.stride() if value.layout is torch.strided else ()
    return tuple(value.shape), strides, value.dtype, value.device, value.requires_grad
