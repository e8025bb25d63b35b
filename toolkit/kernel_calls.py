# pyright: basic
"""Calls of the user's own Triton kernels in a live graph: which kernels, and on which device.

>>> on_cpu(gm)
['add_kernel']
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..dumps.torchside import targets
from ..dumps.torchside.triton_kernels import is_call, name_of_kernel

NO_REFERENCE = "no independent reference for {}: eager interprets it, too"


def is_tied(gm: fx.GraphModule) -> bool:
    """Whether a graph calls such a kernel: its grid and the numbers that it is given are those of the sizes and strides that were
    recorded, so with others it reads and writes out of bounds."""
    nodes = [node for part in gm.modules() if isinstance(part, fx.GraphModule) for node in part.graph.nodes]
    return any(node.op == "call_function" and is_call(targets.name_of(node.target)) for node in nodes)


def on_cpu(gm: fx.GraphModule) -> list[str]:
    """Names of the kernels that are called with tensors of the CPU, where nothing but an interpreter can run them."""
    found: dict[str, None] = {}
    for part in gm.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.op == "call_function" and is_call(targets.name_of(node.target)) and _is_on_cpu(node):
                found[name_of_kernel(node.kwargs.get("kernel_idx"))] = None
    return list(found)


def _is_on_cpu(node: fx.Node) -> bool:
    values = [one.meta.get("val", one.meta.get("example_value")) for one in node.all_input_nodes]
    devices = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    return devices == {"cpu"} or (not devices and not torch.cuda.is_available())


def notes(gm: fx.GraphModule) -> list[str]:
    """What a verdict on such a graph has to say."""
    return [NO_REFERENCE.format(name) for name in on_cpu(gm)]


def refusal(gm: fx.GraphModule) -> str | None:
    """Why a compiler's code for the CPU cannot take the graph, or None."""
    names: Any = on_cpu(gm)
    if not names:
        return None
    called = f"the Triton kernel{'s' * (len(names) != 1)} {', '.join(names)}"
    return f"Inductor's code for the CPU cannot call {called} of the user's; --rung triton_interpret can"
