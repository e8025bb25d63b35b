"""What a rung may get wrong beside numbers: memory that outputs share with inputs, offsets, writes, roundings left
out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import Rung
from graphdbg.toolkit.verdicts.outcome import Outcome


class Planted(Rung):
    """Eager, and then a change of what it gave and was given."""

    name = "planted"

    def __init__(self, change: Callable[[list[Any], list[Any]], list[Any]]) -> None:
        self.change = change

    def build(self, gm: fx.GraphModule, fake_inputs: Any, spec: ReplaySpec) -> Callable[[list[Any]], list[Any]]:
        return lambda inputs: self.change(run_graph(gm, inputs), inputs)


def dynamo_graph(function: Callable[..., Any], *inputs: Any) -> fx.GraphModule:
    gm = fx.symbolic_trace(function)
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta["example_value"] = value
    return gm


def of(
    function: Callable[..., Any], change: Callable[[list[Any], list[Any]], list[Any]], stage: str = "dynamo"
) -> Outcome:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    gm = dynamo_graph(function, x) if stage == "dynamo" else make_fx(function)(x)
    return judge(Live(gm, [x], ReplaySpec(stage)), Planted(change))


def as_is(out: list[Any], _: list[Any]) -> list[Any]:
    return out


@pytest.mark.parametrize(
    ("function", "change", "detail"),
    [
        (lambda x: (x * 1.0,), lambda out, inputs: [inputs[0]], "alias"),
        (lambda x: (x.t(),), lambda out, inputs: [out[0].t().clone().t()], "no alias"),
        (lambda x: (x[1:, :1],), lambda out, inputs: [inputs[0].sub_(4)[:2, :1]], "mutation"),
        (lambda x: (x.add_(1)[0].clone(),), lambda out, inputs: [out[0], inputs[0].sub_(1)][:1], "no mutation"),
    ],
)
def test_shared_memory_and_writes(function: Any, change: Any, detail: str) -> None:
    assert of(function, as_is).ok
    result = of(function, change)
    assert result.signature is not None
    assert (result.signature.kind, result.signature.detail) == ("metadata", detail)


def test_an_offset_counts_where_the_numbers_are_right() -> None:
    result = of(lambda x: (x.fill_(7.0)[1:],), lambda out, inputs: [inputs[0][:2]])
    assert result.signature is not None
    assert (result.signature.kind, result.signature.detail) == ("metadata", "offset")


def test_an_inner_graph_promises_no_view_but_never_lends_its_input() -> None:
    assert of(lambda x: [x.t()], lambda out, inputs: [out[0].t().clone().t()], "inference").ok
    result = of(lambda x: [x * 1.0], lambda out, inputs: [inputs[0]], "inference")
    assert result.signature is not None
    assert result.signature.detail == "alias"


@pytest.mark.parametrize(("returned", "detail"), [(lambda y: y[0], None), (lambda y: y.clone()[0], "alias")])
def test_what_is_written_back_to_an_input_may_be_that_input(returned: Any, detail: str | None) -> None:
    def written(x: torch.Tensor) -> list[torch.Tensor]:
        y = x * 2
        x.copy_(y)
        return [returned(y)]

    result = of(written, lambda out, inputs: [inputs[0][0]], "inference")
    assert (result.signature and result.signature.detail) == detail


def rounds(x: torch.Tensor) -> list[torch.Tensor]:
    y = x.to(torch.float16).to(torch.float32)
    return [y * 3, y.sum(1)]


def test_a_rounding_that_is_left_out_is_told() -> None:
    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(0))
    gm = make_fx(rounds)(x)
    spec = ReplaySpec("inference")
    assert judge(Live(gm, [x], spec), Planted(as_is)).ok
    judgement = judge(Live(gm, [x], spec), Planted(lambda out, inputs: [inputs[0] * 3, inputs[0].sum(1)]))
    assert judgement.signature is not None
    assert (judgement.signature.kind, judgement.signature.detail) == ("accuracy", "rounding")
    assert judgement.text.startswith("differs by rounding: mul: the rounding through float16 is left out")
    other = judge(Live(gm, [x], spec), Planted(lambda out, inputs: [inputs[0] * 3.0003, inputs[0].sum(1)]))
    assert "the rounding through float16 is not as in eager" in other.text
    both = judge(Live(gm, [x], spec), Planted(lambda out, inputs: [inputs[0] * 3, inputs[0].sum(1) + 1]))
    assert both.signature is not None
    assert both.signature.detail == ""


def test_half_precision_arithmetic_is_no_rounding_that_is_left_out() -> None:
    def computed(x: torch.Tensor) -> list[torch.Tensor]:
        return [(x.half() * 3).float()]

    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(0))
    assert judge(
        Live(make_fx(computed)(x), [x], ReplaySpec("inference")), Planted(lambda out, inputs: [inputs[0] * 3])
    ).ok


class Scaled(Rung):
    """A compiler whose sum over the elements of a channel is off by a factor."""

    name = "inductor"

    def __init__(self, off: float) -> None:
        self.off = off

    def build(self, gm: fx.GraphModule, fake_inputs: Any, spec: ReplaySpec) -> Callable[[list[Any]], list[Any]]:
        return lambda inputs: [centred(inputs[0], self.off)]


def centred(x: torch.Tensor, off: float = 0.0) -> torch.Tensor:
    """What is left of the elements of a channel, added up, when a mean that was rounded before is taken away: nearly
    nothing, as is the gradient of a bias in front of a batch norm."""
    total = x.sum((0, 2), keepdim=True) * (1 + 5e-7) * (1 + off)
    return (x - total / (x.numel() // x.shape[1])).sum((0, 2))


@pytest.mark.parametrize(("off", "verdict"), [(1.5e-5, "rounding"), (1e-2, "fails")])
def test_what_the_order_of_a_sum_moves_is_no_fault_where_the_result_cancels(off: float, verdict: str) -> None:
    x = torch.rand(8, 4, 576, generator=torch.Generator().manual_seed(0))
    gm = make_fx(lambda x: (centred(x),))(x)
    outcome = judge(Live(gm, [x], ReplaySpec("inference")), Scaled(off))
    assert outcome.verdict.verdict == verdict, outcome.verdict.reason
