"""An error that eager raises and compiled code does not: judged, told apart from errors that say nothing, and cut
out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from graphdbg.toolkit.cutting.atoms import Atoms
from graphdbg.toolkit.cutting.eager_values import record_values
from graphdbg.toolkit.cutting.subgraph import build, until
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.judging.missing import missing_error
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.eager import GraphRunError
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.verdicts.ladder_records import RungResult, row_of
from graphdbg.toolkit.verdicts.signature import RAISED_TOO

INFERENCE = ReplaySpec("inference")
aten = torch.ops.aten


def sums() -> tuple[fx.GraphModule, list[Any]]:
    """cos(x), then a + b in uint16, which eager refuses, then what is made of both."""
    inputs = [torch.linspace(0, 1, 8), torch.arange(8).to(torch.uint16), torch.arange(8).to(torch.uint16)]
    graph = fx.Graph()
    mode = FakeTensorMode()
    x, a, b = (graph.placeholder(name) for name in ("x", "a", "b"))
    for node, value in zip((x, a, b), inputs, strict=True):
        node.meta["val"] = mode.from_tensor(value)
    cosine = graph.call_function(aten.cos.default, (x,))
    total = graph.call_function(aten.add.Tensor, (a, b))
    wide = graph.call_function(aten._to_copy.default, (total,), {"dtype": torch.float32})
    last = graph.call_function(aten.mul.Tensor, (cosine, wide))
    graph.output((cosine, last))
    for node, value in ((cosine, inputs[0]), (total, inputs[1]), (wide, inputs[0]), (last, inputs[0])):
        node.meta["val"] = mode.from_tensor(value)
    return fx.GraphModule(torch.nn.Module(), graph), inputs


def test_a_rung_that_does_not_raise_is_told() -> None:
    gm, inputs = sums()
    outcome = judge(Live(gm, inputs, INFERENCE), "inductor")
    assert not outcome.ok
    assert outcome.signature is not None
    assert (outcome.signature.kind, outcome.signature.detail) == ("missing_error", "aten.add.Tensor")
    assert outcome.signature.error == "NotImplementedError"
    assert outcome.signature.text().startswith(
        "missing error: NotImplementedError (aten.add.Tensor): eager raises at node add"
    )
    assert row_of(outcome, "inductor").verdict.kind == "missing_error"
    where = outcome.verdict.where
    assert (outcome.verdict.kind, where and where.node) == ("missing_error", "add_tensor")


def test_beside_a_kernel_that_ended_the_device_nothing_is_judged() -> None:
    def dying(x: torch.Tensor) -> torch.Tensor:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert'")

    graph = fx.Graph()
    graph.output(graph.call_function(dying, (graph.placeholder("x"),)))
    outcome = judge(Live(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2)], INFERENCE), "inductor")
    assert outcome.verdict.verdict == "cannot_tell"
    assert outcome.verdict.reason == (
        "error in eager: AcceleratorError: eager itself fails, at node dying: AcceleratorError: CUDA error: "
        "device-side assert triggered; nothing can run on the device after it, so the rung was not run"
    )


def test_an_error_of_a_kernel_shows_at_the_node_that_launched_it(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[torch.Tensor] = []

    def failing() -> None:
        if launched:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    def launching(x: torch.Tensor) -> torch.Tensor:
        launched.append(x)
        return x

    monkeypatch.setattr("graphdbg.toolkit.judging.judge.settle", failing)
    graph = fx.Graph()
    graph.output(graph.call_function(torch.neg, (graph.call_function(launching, (graph.placeholder("x"),)),)))
    outcome = judge(Live(fx.GraphModule(torch.nn.Module(), graph), [torch.ones(2)], INFERENCE), "inductor")
    assert "eager itself fails, at node launching: AcceleratorError" in outcome.verdict.reason


@pytest.mark.parametrize("check", ["crash", "accuracy"])
def test_it_is_looked_for_only_where_asked(check: str) -> None:
    gm, inputs = sums()
    outcome = judge(Live(gm, inputs, INFERENCE), "inductor", check)
    assert outcome.text.startswith("cannot tell: ")
    assert outcome.signature is not None
    assert outcome.signature.kind == "error"


@pytest.mark.parametrize("rung", ["eager", "nop"])
def test_a_rung_that_raises_the_same_cannot_be_judged_and_says_why(rung: str) -> None:
    gm, inputs = sums()
    outcome = judge(Live(gm, inputs, INFERENCE), rung, "missing-error")
    assert outcome.signature is not None
    assert (outcome.signature.kind, outcome.signature.detail) == ("error", RAISED_TOO)
    row: RungResult = row_of(outcome, rung)
    assert row.verdict.verdict == "cannot_tell"
    assert not row.failed


def test_errors_that_promise_nothing() -> None:
    gm, _ = sums()
    cause = NotImplementedError("not implemented for 'UInt16'")

    def asked(node: str, raised: BaseException, spec: ReplaySpec = INFERENCE) -> bool:
        error = GraphRunError(node, raised)
        error.__cause__ = raised
        return missing_error(error, gm, spec) is not None

    assert asked("add_tensor", cause)
    assert not asked("add_tensor", torch.OutOfMemoryError("no memory left"))
    assert not asked("add_tensor", cause, ReplaySpec("post_grad_forward"))
    next(node for node in gm.graph.nodes if node.name == "add_tensor").target = torch.ops.prims.inductor_seed.default
    assert not asked("add_tensor", cause)


def test_values_are_recorded_up_to_the_node_that_raises() -> None:
    gm, inputs = sums()
    with pytest.raises(NotImplementedError):
        record_values(gm, inputs)
    values = record_values(gm, inputs, errors=True)
    assert values.raised == "add_tensor"
    atoms = Atoms.of(until(gm, values.raised), values)
    assert atoms.nodes == [("cos_default",), ("add_tensor",)]
    module, given = build(gm, atoms, values, keep={1})
    assert [node.name for node in module.graph.nodes] == ["a", "b", "add_tensor", "output"]
    assert [value.dtype for value in given] == [torch.uint16, torch.uint16]
    result = judge(Live(module, given, INFERENCE), "inductor").signature
    whole = judge(Live(gm, inputs, INFERENCE), "inductor").signature
    assert result is not None and whole is not None
    assert whole.same_as(result)


def test_an_error_of_eagers_backward_has_no_node_to_be_at() -> None:
    gm = fx.symbolic_trace(lambda x: (x.sigmoid().add_(1),))
    outcome = judge(Live(gm, [torch.ones(3, requires_grad=True)], ReplaySpec("dynamo")), "nop")
    said = "error in eager: RuntimeError: eager itself fails: one of the variables needed for gradient computation"
    assert outcome.verdict.verdict == "cannot_tell"
    assert outcome.verdict.reason.startswith(said), outcome.verdict.reason
