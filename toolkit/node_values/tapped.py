# pyright: basic
"""A rung that also returns the values of nodes: more outputs are added to the graph before the rung compiles it.

What the rung then compiles is another program: a value that is returned is neither fused away nor rewritten. `judge` sees the
results of the graph alone, so its verdict says whether the failure is still the same one. Must not judge anything itself.

>>> tapped = Tapped(rung("inductor"), ["mul_31"], tell)
>>> judge(gm, inputs, spec, tapped).signature; tapped.got["mul_31"]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx

from .. import torch_private as t
from ..rungs import Rung
from ..rungs.base import Compiled
from ..spec import ReplaySpec


class Tapped(Rung):
    """`got`: the values of the last run by node name, copied when the program returned. `told` hears "compile" and "run"."""

    def __init__(self, rung: Rung, names: Sequence[str], told: Callable[[str], object] = lambda stage: None) -> None:
        self.rung, self.names, self.told = rung, list(names), told
        self.name, self.compiles_draws = rung.name, rung.compiles_draws
        self.got: dict[str, torch.Tensor] = {}

    def unavailable(self, spec: ReplaySpec) -> str | None:
        return self.rung.unavailable(spec)

    def cannot_take(self, gm: fx.GraphModule, spec: ReplaySpec) -> str | None:
        return self.rung.cannot_take(gm, spec)

    def notes(self, gm: fx.GraphModule, spec: ReplaySpec) -> list[str]:
        return self.rung.notes(gm, spec)

    def around(self, gm: fx.GraphModule, spec: ReplaySpec) -> AbstractContextManager[None]:
        return self.rung.around(gm, spec)

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        self.told("compile")
        places, count = add_outputs(gm, self.names)
        compiled = self.rung.build(gm, fake_inputs, spec)

        def run(inputs: list[Any]) -> list[Any]:
            self.told("run")
            outputs = list(compiled(inputs))
            values = {name: outputs[place] for name, place in places.items()}
            self.got = {name: value.detach().clone() for name, value in values.items() if isinstance(value, torch.Tensor)}
            return outputs[:count]

        return run


def add_outputs(gm: fx.GraphModule, names: Sequence[str]) -> tuple[dict[str, int], int]:
    """Makes a graph return these nodes, too; changes it. Returns the place of each among the flat outputs, and how many outputs
    there were before. Not for a joint graph that is to be partitioned.
    """
    output = next(node for node in reversed(gm.graph.nodes) if node.op == "output")
    own = list(t.tree_leaves(output.args[0], is_leaf=lambda value: value is None))
    nodes = {node.name: node for node in gm.graph.nodes}
    returned = {leaf.name for leaf in own if isinstance(leaf, fx.Node)}
    leaves = [*own, *(nodes[name] for name in names if name not in returned)]
    output.args = (tuple(leaves),)
    gm.recompile()
    where = {leaf.name: place for place, leaf in reversed(list(enumerate(leaves))) if isinstance(leaf, fx.Node)}
    return {name: where[name] for name in names}, len(own)
