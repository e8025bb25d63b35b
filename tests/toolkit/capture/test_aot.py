"""Joint and inference graphs of plain functions: node for node AOTAutograd's own, described, saved, replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

import graphdbg
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.capture import inference_graph, joint_graph

from .programs import PROGRAMS, arguments


class Function(torch.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


FAST = (
    "linear with batch norm",
    "tensor subclass",
    "one storage, written",
    "ordered custom operator",
    "recomputed",
    "nested",
)
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PROGRAMS]


def lines(gm: Any) -> list[tuple[str, ...]]:
    return [
        (node.op, node.name, str(node.target), str(node.args), str(node.kwargs), str(node.meta.get("desc")))
        for node in gm.graph.nodes
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_joint_graph_is_torchs_own_node_for_node(name: str) -> None:
    torch.manual_seed(0)
    f, args, kwargs = arguments(name)
    ours = joint_graph(f, args, kwargs)
    torch.manual_seed(0)
    f, args, kwargs = arguments(name)
    module = f if isinstance(f, torch.nn.Module) else Function(f)
    with contextlib.ExitStack() as stack:
        theirs: Any = aot_export_joint_with_descriptors(stack, module, args, kwargs).graph_module  # type: ignore[attr-defined]
    assert ours.module.code == theirs.code
    assert lines(ours.module) == lines(theirs)


UNSAVED = {"prints": "RefusedError", "a hook on a value": "RuntimeError"}
"""A print is no computation, so a case with one is not loaded; a hook needs a gradient, so it has no inference
graph."""


@pytest.mark.slow
@pytest.mark.parametrize("capture", [joint_graph, inference_graph])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in UNSAVED])
def test_a_graph_is_the_same_when_it_is_loaded(name: str, capture: Any, tmp_path: Path) -> None:
    captured = capture(*arguments(name))
    captured.save(tmp_path / "case")
    saved = graphdbg.load_graph(tmp_path / "case")
    assert lines(saved.module()) == lines(captured.module)
    missing = [item.role for item, value in zip(captured.inputs_described, captured.real, strict=True) if value is None]
    none = [None for node, value in zip(captured.inputs, captured.real, strict=True) if node is None and value is None]
    assert set(missing) <= {"tangent", "token"} or none
    assert len(saved.inputs()) == len(captured.inputs)


def test_inputs_and_outputs_are_described() -> None:
    captured = joint_graph(*arguments("linear with batch norm"))
    roles = [item.role for item in captured.inputs_described]
    assert roles == ["parameter"] * 4 + ["buffer"] * 3 + ["user", "tangent"]
    assert "0.weight" in captured.inputs_described[0].source
    kinds = [output.kind for output in captured.outputs_described]
    assert kinds[:8] == ["mutation"] * 3 + ["user"] + ["gradient"] * 4
    assert len(captured.mutated) == 3
    assert captured.mutated[0] == "1.running_mean"


def test_writes_become_outputs_or_stay() -> None:
    def f(x: torch.Tensor, y: list[torch.Tensor]) -> torch.Tensor:
        x.add_(1)
        return x * y[0]

    args = (torch.randn(2), [torch.ones(2)])
    functional = inference_graph(f, args)
    targets = {str(node.target) for node in functional.module.graph.nodes}
    assert "aten.copy_.default" not in targets
    assert [output.kind for output in functional.outputs_described] == ["mutation", "user"]
    assert functional.mutated == ["args[0]"]
    kept = inference_graph(f, args, keep_mutations=True)
    assert "aten.copy_.default" in {str(node.target) for node in kept.module.graph.nodes}


def test_the_graph_computes_what_the_function_does() -> None:
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 8)
    captured = joint_graph(model, (x,))
    values = captured.values()
    count = captured.compile_kwargs["num_fwd_outputs"]
    with torch.no_grad():
        result = captured.module(values[:-1], values[-1:])
    result = torch.utils._pytree.tree_leaves(result)
    expected = model(x)
    expected.backward(values[-1])
    assert torch.equal(result[0], expected)
    for value, parameter in zip(result[count:], model.parameters(), strict=False):
        assert torch.equal(value, parameter.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=pytest.mark.slow), True])
def test_it_is_saved_with_its_descriptions_and_replays(dynamic: bool, tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    captured = joint_graph(model, (torch.randn(6, 4),), dynamic=dynamic)
    captured.save(tmp_path / "case")
    saved = graphdbg.load_graph(tmp_path / "case")
    assert [item.role for item in saved.record.inputs] == ["parameter", "parameter", "user", "tangent"]
    assert bool(saved.record.symbols) == dynamic
    outcome = graphdbg.replay(saved, rung="nop")
    assert outcome.ok, outcome
    with pytest.raises(UsageError, match="exists already"):
        captured.save(tmp_path / "case")


def test_without_a_gradient_there_is_no_joint_graph() -> None:
    with pytest.raises(UsageError, match="no output requires a gradient"):
        joint_graph(torch.sin, (torch.randn(2),))


def test_a_functions_own_error_stays_its_own() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        inference_graph(f, (torch.randn(2),))
