# pyright: basic
"""A saved graph as the compiler saw it: fake values on every node, one FakeTensorMode, the recorded symbols.

>>> gm, fake_inputs, mode = fake_module(record, tensors, "case/graph.json")
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from ..schema import GraphRecord
from ..tensors import TensorSink
from .decode import Decoder


def fake_module(record: GraphRecord, tensors: TensorSink | None, where: str) -> tuple[GraphModule, list[Any], Any]:
    """The module, the values of its placeholders (None where none was recorded), and the mode that they live in."""
    decoder = Decoder(record, tensors, where)
    gm = decoder.build(fake=True)
    gm.shape_env = decoder.symbols.env  # pyright: ignore
    inputs: list[Any] = []
    for node in gm.graph.nodes:
        if node.op != "placeholder":
            continue
        for key in ("val", "example_value"):
            if key in node.meta:
                inputs.append(_number(node.meta[key]))
                break
        else:
            inputs.append(None)
    return gm, inputs, decoder.values.mode


def _number(value: Any) -> Any:
    """A constant SymInt as the int that it is; anything else as it is."""
    if isinstance(value, torch.SymInt) and value.node.is_constant():
        return int(value)
    return value
