"""What a failure names by itself: the nodes of a kernel that the compiler refused, the node being lowered, a wrong
output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from msgspec import convert
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.live import save_graph
from graphdbg.toolkit.blame import node_tasks
from graphdbg.toolkit.blame.node_tasks import first_wrong, noticed
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.verdicts.outcome import Outcome

BUG = "cpp.inject_relu_bug_TESTING_ONLY"


def layers() -> tuple[fx.GraphModule, list[Any]]:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        item = (x @ w).tanh()
        two = torch.relu(item @ w)
        three = (two @ w).sin()
        return three, item, two

    torch.manual_seed(0)
    inputs = [torch.randn(4, 4), torch.randn(4, 4)]
    return make_fx(f)(*inputs), inputs


def named(gm: fx.GraphModule, inputs: list[Any]) -> tuple[list[str], Any]:
    results: list[str] = []
    outcome = judge(Live(gm, inputs, ReplaySpec("inference")), "inductor", watch=lambda: noticed(results, gm))
    return results, outcome


@pytest.mark.usefixtures("no_order_of_draws")
@pytest.mark.slow  # `make zoo` has healthy graphs
def test_a_healthy_graph_with_several_draws_departs_nowhere(tmp_path: Path) -> None:
    def masks(x: torch.Tensor) -> list[torch.Tensor]:
        large, small = torch.rand(256, 16) > 0.5, torch.rand(16, 16) > 0.5
        return [((x @ x) * small).square().sum(), large.sum(0), small]

    x = torch.randn(16, 16)
    path = save_graph(make_fx(masks)(x), [x], tmp_path / "case")
    payload = {"path": str(path), "rung": "inductor", "seed": 0, "device": None, "atoms": None, "returned": None}
    assert node_tasks.part(payload) == {"departures": [], "signature": None}
    answer = node_tasks.whole(payload)
    assert (convert(answer["outcome"], Outcome).ok, answer["departures"]) == (True, [])


@pytest.mark.slow
def test_a_refused_kernel_names_its_nodes() -> None:
    gm, inputs = layers()
    with inductor_config.patch({BUG: "compile_error"}):
        result, outcome = named(gm, inputs)
    assert outcome.signature.kind == "crash"
    assert result == ["relu"]


def test_the_node_that_is_lowered_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.lowering as lowering

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("no sine")

    gm, inputs = layers()
    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.sin.default, refuse)
    result, outcome = named(gm, inputs)
    assert outcome.signature.kind == "crash"
    assert result == ["sin"]


@pytest.mark.long
def test_the_earliest_wrong_output_is_named() -> None:
    gm, inputs = layers()
    with inductor_config.patch({BUG: "accuracy"}):
        result, outcome = named(gm, inputs)
    assert result == []
    assert first_wrong(gm, outcome) == ["relu"]
    result, outcome = named(gm, inputs)
    assert (result, first_wrong(gm, outcome)) == ([], [])


def test_a_single_wrong_output_says_nothing_about_the_place() -> None:
    gm, inputs = layers()
    output = next(node for node in gm.graph.nodes if node.op == "output")
    output.args = ((output.args[0][0],),)
    gm.recompile()
    with inductor_config.patch({BUG: "accuracy"}):
        _, outcome = named(gm, inputs)
    assert outcome.signature.kind == "accuracy"
    assert first_wrong(gm, outcome) == []
