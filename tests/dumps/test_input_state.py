"""Inputs come back as autograd knew them: base, storage, overlap, leaf, parameter, buffer, subclass; whatever the
policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import graphdbg
from graphdbg.dumps import live
from graphdbg.dumps.errors import UnreadableError
from graphdbg.dumps.schema import TensorValue
from graphdbg.dumps.store import SavedGraph, load_graph, open_run
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.live.eager import clone_inputs


class Tagged(torch.Tensor):
    """A subclass without a dispatch of its own."""


W = torch.arange(12.0).reshape(3, 4).requires_grad_()


def _parted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.mul_(2)
    return (a.sum() + b.sin().sum()) * 1.5


def _only_read(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.cos().sum() * b.sum()


def _two_views() -> list[Any]:
    base = torch.arange(8.0)
    return [base[:3], base[4:]]


def _views_of_a_result() -> list[Any]:
    result = W * 3
    return [result[0], result]


def _overlapping() -> list[Any]:
    result = (W * 2).flatten()
    return [result[:8], result[4:]]


def _base_and_view() -> list[Any]:
    base = torch.arange(6.0)
    return [base[2:], base]


def _leaf_and_its_view() -> list[Any]:
    leaf = torch.arange(6.0).requires_grad_()
    return [leaf, leaf[2:]]


def _rows_of_what_is_no_input() -> list[Any]:
    base = torch.arange(12.0).reshape(3, 4).t()
    return [base[1], base[1:, 0]]


def _row_without_gradient() -> list[Any]:
    with torch.no_grad():
        return [W[0], W]


def _imaginary_parts() -> list[Any]:
    numbers = torch.arange(6.0).to(torch.complex64).mul(1j)
    return [numbers.conj().imag, torch.arange(12.0).reshape(6, 2)[:, 1]]


def _conjugates() -> list[Any]:
    numbers = torch.arange(6.0).to(torch.complex64).mul(1j).add(2).reshape(2, 3)
    return [numbers.conj(), numbers.t().conj()]


def _empty_parts() -> list[Any]:
    base = torch.arange(6.0)
    return [base[3:3], base[2:]]


def _parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(3))


def _written_under_grad(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.add_(b)
    return a.sin().sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "two views of one base": (_parted, _two_views),
    "a base and its view": (_parted, _base_and_view),
    "views of a result": (_parted, _views_of_a_result),
    "overlapping parts of a result": (_parted, _overlapping),
    "a leaf and its view": (_only_read, _leaf_and_its_view),
    "expanded": (_only_read, lambda: [torch.ones(1, 3).expand(4, 3), (W[:1] * 2).expand(2, 4)]),
    "a buffer written in place": (_written_under_grad, lambda: [torch.nn.Buffer(torch.zeros(3)), _parameter()]),
    "views of a base that is no input": (_parted, _rows_of_what_is_no_input),
    "a view of a leaf without gradients": (_only_read, _row_without_gradient),
    "a negative view": (_only_read, _imaginary_parts),
    "conjugate views": (_only_read, _conjugates),
    "an empty view": (_only_read, _empty_parts),
    "one tensor twice": (_parted, lambda: [entry := W.exp(), entry]),
}


def _recorded(
    folder: Path, function: Callable[..., Any], make: Callable[[], list[Any]], policy: str = "first"
) -> SavedGraph:
    torch.compiler.reset()
    with graphdbg.record(str(folder), inputs=policy):
        torch.compile(function, backend="eager")(*make())
    (graph,) = [graph for graph in open_run(folder).graphs() if graph.stage == "dynamo"]
    return graph


def _facts(values: list[Any]) -> list[tuple[Any, ...]]:
    storages = [value.untyped_storage().data_ptr() for value in values]
    return [
        (
            item.shape,
            item.stride(),
            item.storage_offset(),
            item.untyped_storage().nbytes(),
            storages.index(storage),
            _base(item, values),
            item.requires_grad,
            item.is_leaf,
            item.is_neg(),
            item.is_conj(),
            isinstance(item, torch.nn.Parameter),
            isinstance(item, torch.nn.Buffer),
            item.tolist(),
        )
        for item, storage in zip(values, storages, strict=True)
    ]


def _base(value: torch.Tensor, values: list[Any]) -> Any:
    """The input that it is a view of, or the form of what is none; of the same dtype."""
    base = value._base
    if base is None or base.dtype != value.dtype:
        return None
    known = [place for place, item in enumerate(values) if item is base]
    return known or (base.shape, base.stride(), base.storage_offset(), base.requires_grad, base.is_leaf)


def _in_order(saved: SavedGraph, values: list[Any]) -> list[Any]:
    """A program's values in the order of the graph's inputs, which are named after them."""
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    return [values["ab".index(name.strip("_l"))] for name in names]


@pytest.mark.parametrize("policy", ["first", "last"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_inputs_come_back_as_they_were(tmp_path: Path, name: str, policy: str) -> None:
    function, make = PROGRAMS[name]
    saved = _recorded(tmp_path / "run", function, make, policy)
    wanted = _in_order(saved, make()) if len(saved.inputs()) == 2 else make()[:1]
    assert _facts(saved.inputs()) == _facts(wanted)
    assert _facts(clone_inputs(saved.inputs())) == _facts(wanted)
    outcome = judge(Case(saved).live(), "nop")
    assert outcome.verdict.verdict == "ok", outcome.text


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "expanded" not in name])
def test_without_their_bytes_they_have_the_same_form(tmp_path: Path, name: str) -> None:
    function, make = PROGRAMS[name]
    saved = _recorded(tmp_path / "run", function, make, "index")
    wanted = _in_order(saved, make()) if len(saved.inputs()) == 2 else make()[:1]
    assert [fact[:-1] for fact in _facts(saved.inputs())] == [fact[:-1] for fact in _facts(wanted)]


def test_a_case_and_a_run_from_before_are_read(tmp_path: Path) -> None:
    saved = _recorded(tmp_path / "run", *PROGRAMS["views of a result"])
    live = Case(saved).live()
    again = load_graph(graphdbg.save_graph(live.gm, live.inputs, tmp_path / "case"))
    assert _facts(again.inputs()) == _facts(live.inputs)
    for item in saved.inputs_record.inputs if saved.inputs_record else ():
        for value in (item.value, item.stored and item.stored.value):
            assert value is not None
            value.leaf, value.base = True, None  # pyright: ignore
    old = Case(saved).live()
    assert all(tensor.is_leaf for tensor in old.inputs)
    assert judge(old, "nop").verdict.verdict == "ok"  # a program cannot write to a leaf


def test_a_subclass_is_said_to_be_plain_here(tmp_path: Path) -> None:
    saved = _recorded(tmp_path / "run", lambda x: x * 2, lambda: [torch.ones(3).as_subclass(Tagged)])
    live = Case(saved).live()
    assert type(live.inputs[0]) is torch.Tensor
    assert live.notes == [f"x was a {Tagged.__module__}.Tagged in the run and is a plain tensor here"]


@pytest.mark.parametrize("strides", [[-4], [], [1, 1]])
def test_a_base_that_makes_no_sense_is_told(tmp_path: Path, strides: list[int]) -> None:
    saved = _recorded(tmp_path / "run", *PROGRAMS["two views of one base"])
    record = saved.inputs_record
    assert record is not None
    for item in record.inputs:
        assert isinstance(item.value, TensorValue)
        assert item.value.base is not None
        item.value.base.stride = [*strides]
    with pytest.raises(UnreadableError, match="a view of a tensor with impossible sizes or strides"):
        live.inputs(saved.record, record, saved.tensors)
