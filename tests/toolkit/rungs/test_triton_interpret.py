"""The rung `triton_interpret`: models at each stage, with symbols and under autocast, judged beside eager and
float64."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import rung
from tests.matrix import triton_matrix
from tests.models import compile_models_more  # noqa: F401
from tests.models.compile_models import MODELS

models = list(MODELS)


@pytest.mark.long
@pytest.mark.parametrize(("way", "stages"), [("static", ("dynamo", "forward", "backward")), ("dynamic", ("joint",))])
def test_a_small_model_agrees_at_its_stages(way: str, stages: tuple[str, ...]) -> None:
    rows = list(triton_matrix.rows("graph_convolution", way, stages))
    assert [row.graph.stage for row in rows] == list(stages)
    for row in rows:
        assert row.verdict == "ok", row.cells()
        assert row.count.launches and row.error is not None and row.error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("way", ["static", "dynamic", "bfloat16"])
@pytest.mark.parametrize("model", models)
def test_a_model_agrees_with_eager(model: str, way: str) -> None:
    if (model, way) in triton_matrix.UNTRACED:
        pytest.skip("torch refuses it: a scatter of two types")
    rows = list(triton_matrix.rows(model, way))
    assert {row.graph.stage for row in rows} >= {"dynamo", "forward", "backward", "joint"}
    wrong = [row.cells() for row in rows if row.verdict != "ok" or not row.count.launches]
    assert not wrong, wrong


def test_dropout_is_judged_by_its_numbers() -> None:
    from torch._inductor import inductor_prims

    def drop(x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        kept = inductor_prims.random([64, 8], inductor_prims.lookup_seed(seeds, 0), "rand") > 0.5
        return torch.where(kept, x * 2, 0.0) + inductor_prims.random(
            [64, 8], inductor_prims.lookup_seed(seeds, 1), "randn"
        )

    gm = make_fx(drop)(torch.randn(64, 8), torch.tensor([7, -9]))
    outcome = judge(Live(gm, [torch.randn(64, 8), torch.tensor([7, -9])], ReplaySpec("forward")), "triton_interpret")
    assert outcome.text == "ok", outcome
    assert outcome.errors[0].rung is not None
    assert any("random numbers" in note for note in outcome.notes)


@pytest.mark.slow
def test_flex_attention_is_a_template_with_the_users_function() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    caught: list[tuple[torch.fx.GraphModule, list[Any]]] = []

    def backend(gm: torch.fx.GraphModule, given: list[Any]) -> Any:
        caught.append((copy.deepcopy(gm), [value.detach().clone() for value in given]))
        return gm.forward

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf)) * 2  # type: ignore[operator]

    torch._dynamo.reset()
    torch.compile(attend, backend=backend)(*(torch.randn(1, 2, 128, 16) for _ in "qkv"))
    counted = triton_matrix.Counted()
    assert judge(Live(*caught[0], ReplaySpec("dynamo")), counted).text == "ok"
    assert any("triton_tem" in name for name in counted.count.kernels)


def test_a_graph_may_be_judged_twice() -> None:
    gm = make_fx(lambda x: [torch.rand_like(x) + x.sin()], tracing_mode="symbolic")(torch.randn(6, 5))
    spec = ReplaySpec("inference", dynamic=True)
    for _ in range(2):  # each time twice itself, for what it draws
        assert judge(Live(gm, [torch.randn(6, 5)], spec), "triton_interpret").text == "ok"
    value = next(iter(gm.graph.nodes)).meta["val"]
    assert value.device.type == "cpu"


def test_wrong_kernels_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codegen.triton import TritonOverrides

    monkeypatch.setattr(TritonOverrides, "maximum", staticmethod(lambda a, b: f"triton_helpers.minimum({a}, {b})"))
    gm = make_fx(lambda x, y: [torch.maximum(x, y)])(torch.randn(9), torch.randn(9))
    inputs = [torch.randn(9), torch.randn(9)]
    assert judge(Live(gm, inputs, ReplaySpec("inference")), "triton_interpret").text.startswith("wrong")
    assert judge(Live(gm, inputs, ReplaySpec("inference")), "inductor").text == "ok"


def test_a_graph_with_operators_of_the_cpu_alone_is_skipped_by_their_name() -> None:
    operator = getattr(torch.ops.aten.mkldnn_rnn_layer, "default", None)
    graph = torch.fx.Graph()
    graph.output((graph.call_function(operator, (graph.placeholder("x"),)),))  # type: ignore[arg-type]
    outcome = judge(Live(torch.fx.GraphModule({}, graph), [torch.ones(2)], ReplaySpec("forward")), "triton_interpret")
    assert outcome.text.startswith("skipped, because it holds aten.mkldnn_rnn_layer.default, which only the CPU has")


def test_where_triton_is_missing_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    reason = rung("triton_interpret").unavailable(ReplaySpec())
    assert reason is not None
    assert "pip install 'graphdbg[triton]'" in reason
