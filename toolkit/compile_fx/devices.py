"""Example inputs on another device than the graph was traced for: named, before Inductor gives up on them.

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


def refuse_moved(gm: Any, inputs: Sequence[Any]) -> None:
    """Raises UsageError for the first input that lies on another device than its placeholder."""
    if not isinstance(gm, torch.fx.GraphModule):
        return
    for index, (node, given) in enumerate(zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False)):
        traced = node.meta.get("val", node.meta.get("example_value"))
        if not isinstance(traced, torch.Tensor) or not isinstance(given, torch.Tensor):
            continue
        if traced.device.type != given.device.type or (traced.device.index or 0) != (given.device.index or 0):
            raise UsageError(
                "the graph cannot be compiled for these inputs",
                f"{node.name} (input {index}) is on {given.device}, and the graph was traced with it on {traced.device}",
                f"move it to {traced.device}, or trace the model again where its inputs are",
            )
