"""The rung `lazy`: right where the graph extracts, a reason with operator and user line where it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.rung import SIDE
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import CannotRun, rung

X, W = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(-1, 1, 16).reshape(4, 4)
INFERENCE = ReplaySpec("inference")


def mlp(x: torch.Tensor, w: torch.Tensor) -> list[Any]:
    h = (x.mm(w) + 1).relu()
    return [h, h.t(), x.add_(h), None]


def test_a_graph_that_extracts_is_judged() -> None:
    outcome = judge(Live(make_fx(mlp)(X.clone(), W), [X, W], INFERENCE), "lazy")
    assert outcome.text == "ok"


def test_a_captured_backward_writes_gradients_in_place() -> None:
    gm = make_fx(lambda old, x, w: [old.add_(x.t().mm(w[:3])), w.t()])(W.clone(), X, W)
    assert judge(Live(gm, [W, X, W + 1], ReplaySpec("compiled_autograd")), "lazy").text == "ok"


def test_with_symbolic_sizes() -> None:
    gm = make_fx(lambda x, w: [x.mm(w).relu(), x.shape[0] * 2], tracing_mode="symbolic")(X, W)
    assert judge(Live(gm, [X, W], INFERENCE), "lazy").text == "ok"
    gm = make_fx(lambda x: [x.sin(), x.shape[0]], tracing_mode="symbolic")(X)
    assert judge(Live(gm, [X], INFERENCE), "lazy").text.startswith("skipped, because aten::sin has no lazy kernel")


def test_wrong_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdbg.toolkit.compilers import lazy_tracing

    right = lazy_tracing.run_lazy
    monkeypatch.setattr(lazy_tracing, "run_lazy", lambda key, values: [item + 0.5 for item in right(key, values) or ()])
    outcome = judge(Live(make_fx(lambda x: [x.relu()])(X), [X], INFERENCE), "lazy")
    assert not outcome.ok
    assert outcome.signature is not None
    assert outcome.signature.kind == "accuracy"


def test_an_operator_without_a_kernel_is_a_reason_with_its_line() -> None:
    gm = make_fx(lambda x: [x.sin()])(X)
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    node.stack_trace = 'File "/home/me/train.py", line 12, in forward\n    return x.sin()'
    outcome = judge(Live(gm, [X], INFERENCE), "lazy")
    assert outcome.text == "skipped, because aten::sin has no lazy kernel (train.py:12)"
    assert outcome.verdict.skipped


def test_stages_and_devices_that_it_does_not_take() -> None:
    lazy = rung("lazy")
    assert lazy.name in SIDE, "it blames nothing but itself"
    for stage in ("dynamo", "pre_grad"):
        assert "AOTAutograd" in (lazy.unavailable(ReplaySpec(stage)) or "")
    with pytest.raises(CannotRun, match="runs on the CPU, and inputs are on meta"):
        lazy.build(fx.symbolic_trace(lambda x: x.relu()), [X.to("meta")], INFERENCE)
