"""Calls of compiled NumPy: saved by name, loaded again, written in programs; nothing else of NumPy is callable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

import graphdbg
from graphdbg.dumps import live
from graphdbg.dumps.errors import RefusedError
from graphdbg.dumps.program.function import program_of
from graphdbg.dumps.schema import GraphRecord
from graphdbg.dumps.torchside import targets


def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = x.numpy(), y.numpy()
    scaled = np.exp(a - a.max(axis=-1, keepdims=True)) / np.linalg.norm(b)
    return torch.from_numpy(scaled.T @ np.maximum(a, b)), torch.from_numpy((scaled > 0.5).astype(np.int32))


@pytest.fixture(scope="module")
def graph() -> fx.GraphModule:
    """What Dynamo makes of it."""
    results: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        results.append(gm)
        return gm

    torch.compile(f, backend=backend, fullgraph=True)(torch.randn(3, 4), torch.randn(3, 4))
    return results[0]


INPUTS = torch.linspace(-1, 1, 12).reshape(3, 4), torch.linspace(2, -1, 12).reshape(3, 4)


def test_a_graph_of_numpy_comes_back(graph: fx.GraphModule, tmp_path: Path) -> None:
    graphdbg.save_graph(graph, INPUTS, tmp_path / "case", stage="dynamo")
    saved = graphdbg.load_graph(tmp_path / "case")
    named = {node.target for node in saved.record.graph.nodes if node.target.startswith("numpy.")}
    assert named == {
        "numpy.exp",
        "numpy.maximum",
        "numpy.linalg.norm",
        "numpy.ndarray.max",
        "numpy.ndarray.astype",
        "numpy.getattr",
        "numpy.operator.sub",
        "numpy.operator.truediv",
        "numpy.operator.matmul",
        "numpy.operator.gt",
    }
    for result, wanted in zip(saved.module()(*saved.inputs()), graph(*INPUTS), strict=True):
        assert result.dtype == wanted.dtype
        assert torch.equal(result, wanted)


def test_a_program_of_it_computes_the_same_compiled(graph: fx.GraphModule) -> None:
    program = program_of(live.encode(graph, id="0_0/dynamo", stage="dynamo"))
    names: dict[str, Any] = {}
    imports = "\n".join(["import operator", "import torch", *(f"import {name}" for name in program.imports)])
    exec(f"{imports}\n{program.source}", names)
    compiled = torch.compile(names["graph"], backend="aot_eager", fullgraph=True)
    for result, wanted in zip(compiled(*INPUTS), graph(*INPUTS), strict=True):
        assert torch.equal(result, wanted)


@pytest.mark.parametrize(
    "name",
    [
        "numpy.load",
        "numpy.save",
        "numpy.ndarray.tolist",
        "numpy.ndarray.tofile",
        "numpy.random.seed",
        "numpy.from_dlpack",
        "numpy.operator.methodcaller",
        "numpy.linalg.linalg_errors",
        "numpy.os.system",
        "numpy.f2py",
    ],
)
def test_what_is_no_computation_is_refused_by_name(name: str) -> None:
    with pytest.raises(RefusedError, match=name):
        targets.resolve(name, "node x")


def test_only_known_attributes_of_arrays_are_read(graph: fx.GraphModule) -> None:
    record = live.encode(graph, id="0_0/dynamo", stage="dynamo")
    [node] = [node for node in record.graph.nodes if node.target == "numpy.getattr"]
    node.args[1] = "__class__"
    with pytest.raises(RefusedError, match="getattr of '__class__'"):
        live.module(record, None)


def method(name: str) -> GraphRecord:
    g = fx.Graph()
    g.output(g.call_method(name, (g.placeholder("x"),)))
    return live.encode(fx.GraphModule({}, g), id="0_0/dynamo", stage="dynamo")


def test_numbers_are_rounded_by_their_method() -> None:
    assert live.module(method("__round__"), None)(2.6) == 3


def test_a_refusal_says_what_can_be_replayed_instead() -> None:
    with pytest.raises(
        RefusedError, match=r"'numpy' is not on the list.*The graphs of 0_0 behind AOTAutograd .* replay one"
    ):
        live.module(method("numpy"), None)


def test_a_python_function_of_the_users_can_be_registered_one_of_torch_cannot() -> None:
    for name, reported in (
        ("opaque:mine.scale", "Register it as a custom op"),
        ("opaque:torch._x.scale", "behind AOTAutograd"),
    ):
        record = method("sin")
        record.graph.nodes[1].op, record.graph.nodes[1].target = "call_function", name
        with pytest.raises(RefusedError, match=reported):
            live.module(record, None)


def test_references_of_torch_are_on_the_list() -> None:
    assert targets.name_of(torch._refs.tensor) == "torch._refs.tensor"
    assert targets.resolve("torch._refs.nn.functional.softplus", "") is torch._refs.nn.functional.softplus
    with pytest.raises(RefusedError):
        targets.resolve("torch._refs.torch.load", "node x")
