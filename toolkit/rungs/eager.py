"""`eager`: the graph run node by node by torch itself, with no compiler. What the other rungs are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..live.eager import run_graph
from ..live.rung import Compiled, Rung
from ..live.spec import ReplaySpec


class Eager(Rung):
    """Runs the graph with the interpreter."""

    name = "eager"

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        return lambda inputs: run_graph(gm, inputs)


RUNG = Eager(
    order=10,
    words="node by node by torch itself, with no compiler: what the others are compared with",
    meaning="The graph fails without any compiler.",
    command="",
    is_plain=True,
    is_usual=True,
    is_whole=True,
    has_passes=False,
)
"""The one instance that the registry hands out."""
