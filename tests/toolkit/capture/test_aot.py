"""Joint and inference graphs of plain functions: node for node AOTAutograd's own, described, saved, replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import graphdbg
from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.capture import inference_graph, joint_graph


class Function(torch.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, requires_grad=True)


def nested(x: dict[str, torch.Tensor], scale: float = 2.0) -> dict[str, Any]:
    return {"sum": x["a"] * scale, "both": [x["b"].sin(), x["a"].sum()]}


def writes(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    buffer.add_(x.detach().sum())
    return (x * buffer).relu()


def aliases(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x * 2
    return x.view(-1), y, y.t(), y.sum()


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.mul_(3).clamp_(min=0)
    return y[1:].cumsum(0)


def recomputed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda value: value.sin().exp(), x, use_reentrant=False).sum()  # type: ignore[union-attr]


def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).relu()


def subclass() -> TwoTensor:
    return TwoTensor(torch.randn(2, 3), torch.randn(2, 3)).requires_grad_()


PROGRAMS: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
    "linear with batch norm": (
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()), lambda: (torch.randn(3, 4),),
    ),
    "transformer layer": (
        torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), lambda: (torch.randn(2, 5, 8),),
    ),
    "nested": (nested, lambda: ({"a": leaf(2), "b": leaf(3)},)),
    "writes to an input": (writes, lambda: (leaf(2, 2), torch.ones(1))),
    "aliases": (aliases, lambda: (leaf(2, 3),)),
    "in place": (in_place, lambda: (leaf(4),)),
    "recomputed": (recomputed, lambda: (leaf(4),)),
    "tensor subclass": (two, lambda: (subclass(), torch.randn(2, 3))),
    "dropout": (torch.nn.Dropout(0.5), lambda: (leaf(3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_joint_graph_is_torchs_own_node_for_node(name: str) -> None:
    f, arguments = PROGRAMS[name]
    args = arguments()
    torch.manual_seed(0)
    ours = joint_graph(f, args)
    module = f if isinstance(f, torch.nn.Module) else Function(f)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        theirs: Any = aot_export_joint_with_descriptors(stack, module, args).graph_module  # type: ignore[attr-defined]
    assert ours.module.code == theirs.code
    for one, two in zip(ours.module.graph.nodes, theirs.graph.nodes, strict=True):
        assert (one.op, one.name, str(one.target), str(one.args)) == (two.op, two.name, str(two.target), str(two.args))
        assert str(one.meta.get("desc")) == str(two.meta.get("desc"))


def test_inputs_and_outputs_are_described() -> None:
    f, arguments = PROGRAMS["linear with batch norm"]
    captured = joint_graph(f, arguments())
    roles = [item.role for item in captured.inputs_described]
    assert roles == ["parameter"] * 4 + ["buffer"] * 3 + ["user", "tangent"]
    assert "0.weight" in captured.inputs_described[0].source
    kinds = [one.kind for one in captured.outputs_described]
    assert kinds[:8] == ["mutation"] * 3 + ["user"] + ["gradient"] * 4
    assert len(captured.mutated) == 3
    assert "running_mean" in captured.mutated[0]


def test_writes_become_outputs_or_stay() -> None:
    def f(x: torch.Tensor, y: list[torch.Tensor]) -> torch.Tensor:
        x.add_(1)
        return x * y[0]

    args = (torch.randn(2), [torch.ones(2)])
    functional = inference_graph(f, args)
    targets = {str(node.target) for node in functional.module.graph.nodes}
    assert "aten.copy_.default" not in targets
    assert [one.kind for one in functional.outputs_described] == ["mutation", "user"]
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
        made = captured.module(values[:-1], values[-1:])
    made = torch.utils._pytree.tree_leaves(made)
    expected = model(x)
    expected.backward(values[-1])
    assert torch.equal(made[0], expected)
    for value, parameter in zip(made[count:], model.parameters(), strict=False):
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
