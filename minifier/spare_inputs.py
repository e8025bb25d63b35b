# pyright: basic
"""A small case shall not hold more input bytes than the original needed for the same nodes.

Cutting a graph between nodes makes an input of each edge that was cut, and these may be larger than what the original
computed them from. While they are, one input stands in for others that are alike (`passes/inputs.py`). A case that holds no
more than the original is left as it is, two alike inputs included.

>>> module, inputs = spared(whole, given, module, inputs, fails)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..toolkit.case import Live
from ..toolkit.values import input_bytes
from .passes import inputs as stand_ins

if TYPE_CHECKING:
    from torch import fx

Fails = Callable[[Any, Sequence[Any]], Any]


def spared(
    whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule, left: list[Any], fails: Fails
) -> tuple[fx.GraphModule, list[Any], int]:
    """The failing case with fewer input bytes where that is needed and possible, and how often `fails` was asked.

    All stand-ins are tried at once, then one by one, the last input first, until the case holds no more than the original needed.
    """
    enough = needed_bytes(whole, given, module)
    case, asked = Live(module, left), 0
    if input_bytes(left) <= enough:
        return module, left, asked
    edits = [edit for group in stand_ins.propose(case) for edit in group]
    for some in ([edits] if len(edits) > 1 else []) + [[edit] for edit in reversed(edits)]:
        smaller = case
        for edit in reversed(some):
            smaller = stand_ins.apply(smaller, edit)
        asked += 1
        if fails(smaller.gm, smaller.inputs):
            case = smaller
            if len(some) > 1 or input_bytes(case.inputs) <= enough:
                break
    return case.gm, case.inputs, asked


def needed_bytes(whole: fx.GraphModule, given: Sequence[Any], module: fx.GraphModule) -> int:
    """Bytes of the original's inputs that the nodes left depend on."""
    names = {node.name for node in module.graph.nodes if node.op not in ("placeholder", "output")}
    wanted = {node for node in whole.graph.nodes if node.name in names}
    for node in reversed(whole.graph.nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    places = whole.graph.find_nodes(op="placeholder")
    return input_bytes([value for node, value in zip(places, given, strict=True) if node in wanted])
