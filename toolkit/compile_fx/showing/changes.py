# pyright: basic
"""What a stage did to a graph beyond the number of operators: nodes in another order, other arguments, other sizes or strides.

Reads texts of shapes only, so that no guard is added.

>>> before = fingerprint(gm)
>>> passes(gm)
>>> changed(before, fingerprint(gm))
Changed(reordered=False, rewired=3, relaid=0)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

Fingerprint = dict[str, tuple[str, str]]
"""Node -> the text of its call, the text of its value; in the order of the graph."""


class Changed(NamedTuple):
    """Of the nodes that stand in both graphs."""

    reordered: bool
    rewired: int
    relaid: int


def fingerprint(gm: Any) -> Fingerprint:
    """What is compared of a graph and of those inside it; empty for what is no graph."""
    if not isinstance(gm, torch.fx.GraphModule):
        return {}
    found: Fingerprint = {}
    for name, part in gm.named_modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                call = f"{node.op} {node.target} {node.args} {node.kwargs}"
                found[f"{name}/{node.name}"] = (call, _value(node.meta.get("val", node.meta.get("example_value"))))
    return found


def changed(before: Fingerprint, after: Fingerprint) -> Changed:
    """How two states of one graph differ, by the names of their nodes."""
    both = [name for name in before if name in after]
    rewired = sum(before[name][0] != after[name][0] for name in both)
    relaid = sum(bool(before[name][1]) and bool(after[name][1]) and before[name][1] != after[name][1] for name in both)
    return Changed(both != [name for name in after if name in before], rewired, relaid)


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        stride = tuple(value.stride()) if value.layout is torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {stride} {value.device}"
    if isinstance(value, (tuple, list)):
        return ", ".join(_value(one) for one in value)
    return ""
