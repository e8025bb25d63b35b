"""Tensors that hold other tensors: saved by what they hold, together again on loading, and never of a class that a dump
names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.testing._internal.two_tensor import TwoTensor

import graphdbg
from graphdbg.dumps import live
from graphdbg.dumps.errors import EnvironmentLackError, GraphdbgError, RefusedError
from graphdbg.dumps.schema import GraphRecord, TensorValue
from graphdbg.dumps.tensors import TensorStore
from graphdbg.dumps.torchside import observed


class Scaled(torch.Tensor):
    """A tensor times a number that is part of its class's own state."""

    def __new__(cls, inner: torch.Tensor, factor: Any) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor, factor: Any) -> None:
        self.inner, self.factor = inner, factor

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], (self.factor, "times")

    @staticmethod
    def __tensor_unflatten__(held: dict[str, Any], context: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(held["inner"], context[0])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return NotImplemented


def traced(x: Any) -> fx.GraphModule:
    """A graph that hands such a tensor through, as Dynamo leaves it."""
    g = fx.Graph()
    node = g.placeholder("x")
    node.meta["example_value"] = x
    g.output(node)
    return fx.GraphModule({}, g)


def again(x: Any, tmp_path: Path) -> Any:
    graphdbg.save_graph(traced(x), [x], tmp_path / "case", stage="dynamo")
    return graphdbg.load_graph(tmp_path / "case").inputs()[0]


def test_two_tensors_come_back_as_one(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    x = TwoTensor(base[:12].view(4, 3).t(), base[:12].view(4, 3).t()).requires_grad_()
    result = again(x, tmp_path)
    assert (type(result), result.shape, result.stride()) == (TwoTensor, x.shape, x.stride())
    assert result.requires_grad and result.is_leaf
    assert torch.equal(result.a, x.a)
    result.a.data[0, 0] = 7.0
    assert result.b[0, 0] == 7.0, "they lay in one memory"


def test_what_else_such_a_tensor_is_made_of_comes_back(tmp_path: Path) -> None:
    result = again(Scaled(TwoTensor(torch.ones(2), torch.zeros(2)), 3), tmp_path)
    assert (type(result), result.factor, result.inner.a.tolist(), result.inner.b.tolist()) == (
        Scaled,
        3,
        [1, 1],
        [0, 0],
    )


def test_one_that_is_made_of_something_else_is_refused(tmp_path: Path) -> None:
    graphdbg.save_graph(traced(Scaled(torch.ones(2), object())), [torch.ones(2)], tmp_path / "case", stage="dynamo")
    saved = graphdbg.load_graph(tmp_path / "case")
    with pytest.raises(RefusedError, match=r"a value of type .*Scaled cannot be saved"):
        live.fake_module(saved.record, saved.tensors)


def record_of(x: Any) -> GraphRecord:
    return live.encode(traced(x), id="0_0/dynamo", stage="dynamo")


def value_in(record: GraphRecord) -> TensorValue:
    value = record.graph.nodes[0].value
    assert isinstance(value, TensorValue)
    return value


def test_values_that_were_not_kept_are_synthesised_part_by_part() -> None:
    record = record_of(TwoTensor(torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)))
    (result,) = live.inputs(record, None, None)
    assert (type(result), result.a.dtype) == (TwoTensor, torch.float64)
    assert not torch.equal(result.a, result.b)


def test_fakes_are_such_tensors_too() -> None:
    _, (result,), mode = live.fake_module(record_of(TwoTensor(torch.ones(3), torch.ones(3))), None)
    assert (type(result), result.a.fake_mode is mode) == (TwoTensor, True)


@pytest.mark.parametrize("name", ["os.system", "torch.Tensor", "__main__.Mine", "mine.Tensor", "torch.nn.Parameter"])
def test_a_class_that_is_not_defined_here_is_not_looked_for(name: str) -> None:
    record = record_of(TwoTensor(torch.ones(3), torch.ones(3)))
    value_in(record).subclass = name
    with pytest.raises(EnvironmentLackError, match=r"is not defined in this process.*--import"):
        live.fake_module(record, None)


def test_a_class_that_does_not_fit_is_refused_in_a_sentence() -> None:
    record = record_of(TwoTensor(torch.ones(3), torch.ones(3)))
    value_in(record).subclass = f"{__name__}.Scaled"
    for load in (lambda: live.fake_module(record, None), lambda: live.inputs(record, None, None)):
        with pytest.raises(GraphdbgError, match="cannot be rebuilt from what was recorded"):
            load()


def test_held_inputs_keep_what_such_a_tensor_holds() -> None:
    base = torch.arange(6.0)
    items, held = observed.snapshot(["x", "y"], [TwoTensor(base[:3], base[3:].clone()), base])
    assert [item.nbytes() for item in held] == [24, 12]
    assert items[0].stored is not None
    assert {name: part.storage for name, part in items[0].stored.inner.items()} == {"a": "#0", "b": "#1"}
    assert items[1].stored is not None
    assert items[1].stored.value.storage == items[0].stored.inner["a"].value.storage == 0


def test_integers_inside_are_kept_where_numbers_are_not(tmp_path: Path) -> None:
    store = TensorStore(tmp_path)
    x, y = TwoTensor(torch.ones(3), torch.ones(3)), TwoTensor(torch.tensor([5, 6]), torch.tensor([7, 8]))
    g = fx.Graph()
    g.output([g.placeholder("x"), g.placeholder("y")])
    seen = live.observe(fx.GraphModule({}, g), [x, y], "index", store)
    kept = [[bool(part.storage) for part in tensor.stored.inner.values()] for tensor in seen.inputs if tensor.stored]
    assert kept == [[False, False], [True, True]]
