"""Example inputs on another device than the graph was traced for: named, before Inductor gives up on them.

Operators whose operands lie on different devices inside a graph are told by `errors.mixed_devices`.

>>> refuse_moved(gm, [torch.empty(2)])
Traceback (most recent call last):
...
UsageError: the graph cannot be compiled for these inputs: x (input 0) is on cpu, and the graph was traced with it on cuda:0 ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...dumps.errors import UsageError
from .errors import told
from .input_names import listed, name_of


def refuse_moved(gm: Any, inputs: Sequence[Any]) -> None:
    """Raises UsageError where inputs lie on another device than their placeholders: it names them, and the devices."""
    if not isinstance(gm, torch.fx.GraphModule):
        return
    moved: list[tuple[str, torch.device, torch.device]] = []
    for index, (node, given) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False)):
        traced = node.meta.get("val", node.meta.get("example_value"))
        if not isinstance(traced, torch.Tensor) or not isinstance(given, torch.Tensor):
            continue
        if traced.device.type != given.device.type or (traced.device.index or 0) != (given.device.index or 0):
            moved.append((f"{name_of(node)} (input {index})", given.device, traced.device))
    if not moved:
        return
    name, here, there = moved[0]
    more = f"; the same holds for {listed(name for name, *_ in moved[1:])}" if len(moved) > 1 else ""
    error = UsageError(
        "the graph cannot be compiled for these inputs",
        f"{name} is on {here}, and the graph was traced with it on {there}{more}",
        f"move {'them' if more else 'it'} to {there}, or trace the model again where its inputs are",
    )
    told(error, None, "pre_grad")
    raise error
