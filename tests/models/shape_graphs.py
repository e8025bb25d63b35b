"""A generated shape as a live FX graph, so that functorch's minifier can be driven over it. Used by bench_search.

Every atom is one call of `mix`, with the atom's parents as arguments.

>>> gm, inputs = fx_graph(transformer(50))
>>> calls, left = stock_calls(transformer(50), needs({17}), limit=3000)
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import torch
from functorch.compile import minifier
from torch import fx

from graphdbg.minifier.search.problem import Candidate
from tests.minifier.generated import Failure, Shape


class TooManyError(Exception):
    """The predicate was called as often as it may be."""


def mix(*values: torch.Tensor) -> torch.Tensor:
    """What every atom computes."""
    return sum(values, torch.zeros(())) / 2


def fx_graph(shape: Shape) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Atom 7 is the node `atom_7`; atoms without parents read the only input; what nothing reads is returned."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    nodes: list[fx.Node] = []
    for number, parents in enumerate(shape.parents):
        arguments = tuple(nodes[parent] for parent in parents) or (x,)
        nodes.append(graph.create_node("call_function", mix, arguments, name=f"atom_{number}"))
    graph.output(tuple(node for node in nodes if not node.users))
    return fx.GraphModule(torch.nn.Module(), graph), [torch.ones(())]


def stock_calls(shape: Shape, failure: Failure, limit: int) -> tuple[int, int | None]:
    """How often functorch's minifier asks, and how many atoms it leaves (None where it was stopped)."""
    gm, inputs = fx_graph(shape)
    calls = 0

    def kept(gm: fx.GraphModule) -> Candidate:
        return Candidate.of(
            int(node.name.removeprefix("atom_")) for node in gm.graph.nodes if node.op == "call_function"
        )

    def fails(gm: fx.GraphModule, _inputs: Sequence[Any]) -> bool:
        nonlocal calls
        if calls >= limit:
            raise TooManyError
        calls += 1
        return failure(shape, kept(gm))

    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            module, _ = minifier(gm, inputs, fails, dump_state=lambda *_: None)
    except TooManyError:
        return calls, None
    return calls, len(kept(module).keep)
