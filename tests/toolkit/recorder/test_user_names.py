"""What a recorded graph's inputs and results are called: by keys, attributes, variables, parameters and lines."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import graphdbg
from graphdbg.dumps import names


@dataclasses.dataclass
class Answer:
    loss: torch.Tensor
    logits: torch.Tensor


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = torch.nn.Embedding(10, 8)
        self.lin = torch.nn.Linear(8, 10)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        h = torch.tanh(self.emb(ids) * mask)
        return {"loss": self.lin(h).sum(), "hidden": [h]}


def attributes(x: torch.Tensor) -> Answer:
    return Answer(x.sum(), logits=x.cos())


def places(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.sin().mean()
    return x.relu(), mean


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> graphdbg.Run:
    torch._dynamo.reset()
    path: Path = tmp_path_factory.mktemp("names") / "run"
    with graphdbg.record(path):
        model = torch.compile(Model(), backend="aot_eager_decomp_partition")
        model(torch.zeros(3, 2, dtype=torch.long), torch.ones(3, 2, 8))["loss"].backward()
        for function in (attributes, places):
            torch.compile(function, backend="aot_eager")(torch.randn(3))
    return graphdbg.open_run(path)


def results(record):
    return [name for _, name in names.outputs(record)]


def test_a_model(run):
    forward, backward = run.graph("0_0/forward").record, run.graph("0_0/backward").record
    assert list(names.input_names(forward).values()) == ["emb.weight", "ids", "mask", "lin.weight", "lin.bias"]
    called = results(forward)
    assert called[:2] == ["loss", "hidden[0]"]
    assert "saved for backward: ids" in called
    assert any(item.startswith("saved for backward: tanh, test_user_names.py:") for item in called)
    assert set(results(backward)) >= {"grad of emb.weight", "grad of lin.weight", "grad of lin.bias"}
    assert {"grad of loss", "grad of hidden[0]"} <= set(names.input_names(backward).values())


def test_what_a_function_returns(run):
    assert results(run.graph("1_0/inference").record) == ["loss", "logits"]
    relu, mean = results(run.graph("2_0/inference").record)
    assert relu.startswith("relu, test_user_names.py:")
    assert mean.startswith("mean")


def test_a_module_loaded_again_knows_them(run):
    saved = run.graph("0_0/dynamo")
    assert names.of_module(saved.module()).outputs == results(saved.record)


def test_a_graph_that_nothing_is_known_of():
    module = torch.fx.symbolic_trace(lambda x: (x.sin(), 2))
    assert names.of_module(module) == names.GraphNames({"x": "x"}, ["sin", "the constant 2"])
