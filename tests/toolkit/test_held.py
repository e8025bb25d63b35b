"""What a graph holds and writes to, as a compiled optimizer does: compared like a result, and put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import Rung

X = torch.arange(1.0, 9.0)


class Writing(Rung):
    """Adds so many times the input to what the graph holds."""

    name = "writing"

    def __init__(self, times: float) -> None:
        self.times = times

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Any:
        def run(inputs: list[Any]) -> list[Any]:
            gm.state.add_(self.times * inputs[0])  # type: ignore[union-attr, operator]
            return [inputs[0] * 2]

        return run


@pytest.mark.parametrize(
    ("times", "word", "kind", "text"),
    [
        (1.0, "ok", None, ""),
        (0.0, "fails", "metadata", "held is as it was; eager changes it in place"),
        (1.5, "fails", "wrong_numbers", "held, written in place"),
        (float("nan"), "fails", "nan", "held, written in place"),
    ],
)
def test_what_a_graph_holds_is_compared(times: float, word: str, kind: str | None, text: str) -> None:
    graph = fx.Graph()
    x, held = graph.placeholder("x"), graph.get_attr("state")
    held.name = "held"
    graph.call_function(torch.ops.aten.add_.Tensor, (held, x))
    graph.output([graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))])
    owner = torch.nn.Module()
    owner.register_buffer("state", torch.ones(8))
    gm = fx.GraphModule(owner, graph)
    outcome = judge(Live(gm, [X], ReplaySpec("inference")), Writing(times))
    assert (outcome.verdict.verdict, outcome.verdict.kind) == (word, kind)
    assert text in outcome.verdict.reason
    assert torch.equal(gm.get_buffer("state"), torch.ones(8))
