"""A planted crash of Inductor: it refuses a graph that holds all of so many marks. Imported by `graphdbg minify
--import`.

A mark is an operator that copies its input and carries a number. How many must be there stands in PLANTED_MARKS.

>>> torch.ops.planted_marks.mark(torch.ones(3), 0)
tensor([1., 1., 1.])
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch._inductor.graph import GraphLowering

MARKS = "PLANTED_MARKS"


@torch.library.custom_op("planted_marks::mark", mutates_args=())
def mark(x: torch.Tensor, number: int) -> torch.Tensor:
    """A copy."""
    return x.clone()


@mark.register_fake
def _(x: torch.Tensor, number: int) -> torch.Tensor:
    return torch.empty_like(x)


_run = GraphLowering.run


def run(self: GraphLowering, *args: Any) -> Any:
    """Lowers the graph, and then raises where it has all marks."""
    names = {node.args[1] for node in self.module.graph.nodes if node.target is torch.ops.planted_marks.mark.default}
    result = _run(self, *args)
    if len(names) >= int(os.environ.get(MARKS, "1000000")):
        raise RuntimeError("planted: the marks do not go together")
    return result


GraphLowering.run = run
