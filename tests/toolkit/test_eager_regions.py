"""Regions that are compiled once and called several times (`invoke_subgraph`), branches and regions of `vmap`, run
eagerly and handed to a compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.live import entries
from graphdbg.toolkit.live.eager import GraphRunError, run_graph
from graphdbg.toolkit.live.execution import Reversed

SINGLE_USE = "inline_single_use_invoke_subgraph"


def caught(calls: int) -> fx.GraphModule:
    """Dynamo's graph of a function that calls one region so often."""
    if not hasattr(torch.compiler, "nested_compile_region"):
        pytest.skip("this torch has no such regions")
    region = torch.compiler.nested_compile_region(lambda x: x.sin() * 2)
    results: list[fx.GraphModule] = []

    def keep(gm: fx.GraphModule, _: Any) -> Any:
        results.append(gm)
        return gm.forward

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(calls):
            x = region(x)
        return x

    torch._dynamo.reset()
    there = hasattr(torch._dynamo.config, SINGLE_USE)
    with torch._dynamo.config.patch({SINGLE_USE: False} if there else {}), torch.no_grad():
        torch.compile(function, backend=keep)(torch.ones(3))
    return results[0]


def names(gm: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]


def test_gradients_go_through_a_region() -> None:
    x = torch.full((3,), 0.5, requires_grad=True)
    (result,) = run_graph(caught(2), [x])
    again = ((x.sin() * 2).sin() * 2).sum()
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.autograd.grad(again, x)[0])


@pytest.mark.skipif(not hasattr(torch._dynamo.config, SINGLE_USE), reason="this Dynamo leaves every region a region")
def test_a_region_called_once_is_put_in_place_as_dynamo_does_before_a_backend() -> None:
    gm = caught(1)
    assert "invoke_subgraph" in names(gm)
    assert "invoke_subgraph" not in names(entries.as_handed_to_backends(gm))


def test_values_are_written_the_other_way_round_in_a_graph_with_a_branch() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        chosen = torch.ops.higher_order.cond(x.sum() > 0, torch.neg, torch.abs, (x,))
        return chosen.index_put((torch.tensor([1, 1]),), torch.tensor([2.0, 3.0]))

    gm = make_fx(step)(x := torch.ones(2))
    assert run_graph(gm, [x])[0].tolist() == [-1.0, 3.0]
    with Reversed():
        assert run_graph(gm, [x])[0].tolist() == [-1.0, 2.0]


def test_a_run_that_fails_inside_a_vmap_of_the_graph_leaves_it() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._functorch.predispatch._vmap_increment_nesting, (2, "error"))
    graph.output(graph.call_method("view", (x, 5)))
    with pytest.raises(GraphRunError):
        run_graph(fx.GraphModule({}, graph), [torch.ones(2)])
    assert torch.ones(1).requires_grad_().requires_grad, "torch refuses it inside a transform"
