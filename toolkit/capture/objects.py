# pyright: basic
"""Inputs of a graph that are objects of the process, such as the device mesh of a DTensor: a case cannot hold them.

Most only pass through to the outputs, beside the local tensors that they describe. Those are taken out: the input goes, the
outputs that were it become None, and all other inputs and outputs stay in their order.

>>> saved, places = without_objects(captured.module, captured.inputs)
>>> places                               # of the inputs that stayed
[0, 2, 4]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.errors import UsageError

_PLAIN = (
    torch.Tensor,
    torch.SymInt,
    torch.SymFloat,
    torch.SymBool,
    int,
    float,
    bool,
    complex,
    str,
    torch.dtype,
    torch.device,
)


def without_objects(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, list[int]]:
    """(the graph without inputs that are objects, the places of those that stay). The same graph where it has none.

    Raises UsageError where a node computes with such an object.
    """
    placeholders = module.graph.find_nodes(op="placeholder")
    objects = {
        node for node, value in zip(placeholders, inputs, strict=True) if not isinstance(value, (*_PLAIN, type(None)))
    }
    if not objects:
        return module, list(range(len(placeholders)))
    for node in objects:
        users = [user.name for user in node.users if user.op != "output"]
        if users:
            kind = type(inputs[placeholders.index(node)]).__name__
            raise UsageError(
                "the graph cannot be saved", f"{users[0]} computes with {node.name}, an object of this process ({kind})"
            )
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node in objects:
            continue
        if node.op == "output":
            outputs = [None if one in objects else one for one in node.args[0]]
            last = graph.output(tuple(made[one] if isinstance(one, fx.Node) else one for one in outputs))
            last.meta.update(node.meta)
        else:
            made[node] = graph.node_copy(node, made.__getitem__)
    flat = fx.GraphModule(module, graph)
    flat.meta.update(module.meta)
    return flat, [place for place, node in enumerate(placeholders) if node not in objects]
