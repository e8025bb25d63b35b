# pyright: basic
"""Finds the operator that turns a small difference into a large one: the node at which rounding alone decides the
result.

A float64 run is compared, node by node, with a float64 run in which every value is rounded at random
(`comparing.perturbed`). The growth of a node is the relative error of its result divided by that of its inputs. Runs in
a child; changes nothing.

For example: `amplifier(gm, inputs, run).node.name` gives `'floor'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ..live.execution import tensors_in
from ..numerics.comparison import all_finite, is_float, rms
from .baseline import NoReference, reference
from .comparing import Run, eps_of_nodes, perturbed

MOST_BYTES = 1 << 30
"""With more bytes of node values than this the search is given up."""
LEAST = 16.0
"""A smaller growth is the ordinary accumulation of errors."""


class Amplifier(NamedTuple):
    """A node that amplifies errors: the relative errors of its inputs and of its output."""

    node: fx.Node
    input: float
    output: float


class _TooMuch(Exception):
    pass


def amplifier(gm: fx.GraphModule, inputs: Sequence[Any], run: Run) -> Amplifier | None:
    """Returns the node with the largest growth; None where that is below LEAST, or where the graph has no float64
    run."""
    nodes = {node.name: node for node in gm.graph.nodes}
    eps = eps_of_nodes(gm, inputs)
    truth: dict[str, list[torch.Tensor]] = {}
    off: dict[str, float] = {}
    growths: list[Amplifier] = []
    held = 0
    generator = torch.Generator().manual_seed(0)

    def keep(node: fx.Node, value: Any) -> Any:
        nonlocal held
        truth[node.name] = [_plain(tensor) for tensor in tensors_in(value)]
        held += sum(tensor.nbytes for tensor in truth[node.name])
        if held > MOST_BYTES:
            raise _TooMuch
        return value

    def look(node: fx.Node, value: Any) -> Any:
        pairs = zip(truth.get(node.name, []), tensors_in(value), strict=False)
        apart = max([_apart(*pair) for pair in pairs], default=0.0)
        given = max([off.get(arg.name, 0.0) for arg in node.all_input_nodes], default=0.0)
        if given and node.name in nodes and node.op != "output":
            growths.append(Amplifier(nodes[node.name], given, apart))
        value = perturbed(node, value, eps.get(node.name, ()), generator)
        off[node.name] = max(apart, *eps.get(node.name, ()), 0.0)
        return value

    try:
        for hook in (keep, look):
            if isinstance(reference(gm, inputs, lambda wider, given, hook=hook: run(wider, given, hook)), NoReference):
                return None
    except _TooMuch:
        return None
    largest = max(growths, key=lambda growth: growth.output / growth.input, default=None)
    return largest if largest is not None and largest.output > LEAST * largest.input else None


def _plain(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", copy=True) if value.layout == torch.strided else torch.empty(0)


def _apart(truth: torch.Tensor, value: torch.Tensor) -> float:
    """The error of a value, relative to its size; for integers and masks, the square root of the share of elements that
    differ."""
    if truth.shape != value.shape or not truth.numel():
        return 0.0
    if not is_float(truth):
        return float((truth != value.detach().to("cpu")).to(torch.float64).mean()) ** 0.5
    exact, other = all_finite(truth, value)
    size = float(rms(exact)) if exact.numel() else 0.0
    return float(rms(other - exact)) / size if size else 0.0
