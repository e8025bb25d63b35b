"""Graphs of the caller's own may return one tensor or nested values; Inductor's inner compiler takes a flat tuple
only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import rung


def one(x: torch.Tensor) -> Any:
    return x.sin().sum()


def nested(x: torch.Tensor) -> Any:
    return [x.sin(), {"a": x.cos(), "b": (x + 1,)}]


@pytest.mark.parametrize("function", [one, nested])
@pytest.mark.parametrize("stage", ["inference", "forward"])
def test_outputs_come_flat(function: Any, stage: str) -> None:
    x = torch.arange(4.0)
    gm = make_fx(function, tracing_mode="fake")(x)
    fakes = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    got = rung("inductor").build(gm, fakes, ReplaySpec(stage))([x])
    wanted = [x.sin().sum()] if function is one else [x.sin(), x.cos(), x + 1]
    assert len(got) == len(wanted)
    for left, right in zip(got, wanted, strict=True):
        torch.testing.assert_close(left, right)
