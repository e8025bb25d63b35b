"""Where a traced graph lost what the program wrote in place, the tracing is named, and not the operator that reads
it."""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import fx

from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.stages import asking
from graphdbg.toolkit.stages.tracing import Seen, traced_apart

aten = torch.ops.aten


def graph_of(*calls: tuple[Any, ...], sources: tuple[fx.Node, ...] = ()) -> fx.GraphModule:
    """A graph of calls, whose arguments are nodes by their place; the last is returned. `sources`: what each was
    traced from."""
    graph = fx.Graph()
    nodes = [graph.placeholder("x"), graph.placeholder("y")]
    for target, *places in calls:
        nodes.append(graph.call_function(target, tuple(nodes[place] for place in places)))
    for node, source in zip(nodes[2:], sources, strict=bool(sources)):
        node.meta["from_node"] = [source]
    graph.output((nodes[-1],))
    return fx.GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        ((aten.sin.default, 2), "sin_default reads no more what was written in place to neg"),
        ((aten.cos.default, 3), "cos_default (aten.cos.default) has another value than sin in the program"),
        ((aten.sin.default, 3), ""),
    ],
)
def test_a_lost_write_is_told_from_a_wrong_operator(last: tuple[Any, ...], says: str) -> None:
    program = graph_of((torch.neg, 0), (operator.iadd, 2, 1), (torch.sin, 2))
    result = tuple(node for node in program.graph.nodes if node.op == "call_function")
    traced = graph_of((aten.neg.default, 0), (aten.add.Tensor, 2, 1), last, sources=result)
    seen = Seen(), Seen()
    for gm, hook in zip((program, traced), seen, strict=True):
        run_graph(gm, [torch.arange(4.0), torch.full((4,), 3.0)], hook=hook)
    parted = traced_apart(program, traced, seen)
    assert says == ("" if parted is None else parted.text)


def test_a_write_that_came_back_wrong_is_named_where_it_did() -> None:
    program = graph_of((torch.neg, 0), (operator.iadd, 2, 1), (torch.sin, 2))
    neg, iadd, sin = (node for node in program.graph.nodes if node.op == "call_function")
    calls = (aten.neg.default, 0), (aten.add.Tensor, 2, 1), (aten.mul.Tensor, 3, 0), (aten.sin.default, 4)
    traced = graph_of(*calls, sources=(neg, iadd, iadd, sin))
    seen = Seen(), Seen()
    for gm, hook in zip((program, traced), seen, strict=True):
        run_graph(gm, [torch.arange(4.0), torch.full((4,), 3.0)], hook=hook)
    parted = traced_apart(program, traced, seen)
    assert parted is not None
    assert (parted.text, parted.at) == ("mul_tensor is not what was written in place to neg", "mul_tensor")


def test_of_several_tensors_that_one_call_writes_each_is_looked_at() -> None:
    """torch._foreach_add_ writes one after the other; its functional form reads all of them first."""

    def graph(add: Any, *sources: fx.Node) -> fx.GraphModule:
        graph = fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        added = graph.call_function(add, ([x, y], [y, x]))
        parts = [graph.call_function(operator.getitem, (added, at)) for at in (0, 1)] if sources else [x, y]
        last = graph.call_function(torch.sub, (parts[1], parts[0]))
        for node, source in zip((added, last), sources, strict=bool(sources)):
            node.meta["from_node"] = [source]
        graph.output((last,))
        return fx.GraphModule(torch.nn.Module(), graph)

    program = graph(torch._foreach_add_)
    traced = graph(aten._foreach_add.List, *(node for node in program.graph.nodes if node.op == "call_function"))
    seen = Seen(), Seen()
    for gm, hook in zip((program, traced), seen, strict=True):
        run_graph(gm, [torch.arange(4.0), torch.full((4,), 3.0)], hook=hook)
    assert list(seen[0].written) == ["sub"], "its own writes are not what it read"
    parted = traced_apart(program, traced, seen)
    assert parted is not None
    assert (
        parted.text == "_foreach_add_list (aten._foreach_add.List) has another value than _foreach_add_ in the program"
    )


def test_an_operator_that_became_several_is_named_with_them() -> None:
    program = graph_of((torch.nn.functional.softsign, 0))
    (whole,) = (node for node in program.graph.nodes if node.op == "call_function")
    calls = (aten.abs.default, 0), (aten.div.Tensor, 0, 2)
    traced = graph_of(*calls, sources=(whole, whole))
    seen = Seen(), Seen()
    for gm, hook in zip((program, traced), seen, strict=True):
        run_graph(gm, [torch.arange(1.0, 4.0), torch.ones(1)], hook=hook)
    parted = traced_apart(program, traced, seen)
    says = "softsign became abs_default, div_tensor: div_tensor (aten.div.Tensor) has another value than softsign"
    assert parted is not None and parted.text == f"{says} in the program"


def test_a_call_that_the_tracing_took_apart_is_named_and_not_the_casts_inside() -> None:
    program = graph_of((torch.nn.functional.softsign, 0))
    (whole,) = (node for node in program.graph.nodes if node.op == "call_function")
    calls = (aten.neg.default, 0), (aten.abs.default, 2), (aten.neg.default, 3)
    traced = graph_of(*calls, sources=(whole, whole, whole))
    for node, made_of in zip(list(traced.graph.nodes)[2:5], ("aten.cast", "aten.abs", "aten.cast"), strict=True):
        node.meta["graphdbg_original_aten"] = made_of
    seen = Seen(), Seen()
    for gm, hook in zip((program, traced), seen, strict=True):
        run_graph(gm, [torch.arange(1.0, 4.0), torch.ones(1)], hook=hook)
    parted = traced_apart(program, traced, seen)
    assert parted is not None
    assert (parted.text, parted.op) == ("softsign became neg_default, abs_default, neg_default_1", "softsign")


@pytest.mark.parametrize("wrong", [True, None])
def test_a_decomposition_seen_to_be_wrong_is_shrunk_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, wrong: bool | None
) -> None:
    monkeypatch.setattr(asking, "registered_for", lambda *_: None)
    before, after = SimpleNamespace(name="run/0_0/pre_grad"), SimpleNamespace(name="run/0_0/inference")
    pair = cast(Any, SimpleNamespace(before=before, after=after, traced=True))
    steps = asking._go_on(pair, cast(Any, after), "compiler", {"op": "softsign", "kind": "nan", "built_in": wrong})
    assert steps[0] == "graphdbg minify run/0_0/pre_grad" + (" --rung decomposed" if wrong else "")
