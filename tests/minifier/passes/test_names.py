"""Canonical names and order: before and after; the roles of inputs go with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.names import RENAMED
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

names = pass_of("names")


def case(f: Any, *inputs: Any, **spec: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs), ReplaySpec(**spec))


def all_names(case: Live) -> list[str]:
    return [node.name for node in case.gm.graph.nodes]


def test_inputs_are_named_in_the_order_in_which_they_are_read() -> None:
    inputs = torch.randn(4, 3), torch.randn(3, 3), torch.randn(4, 3)
    given = case(
        lambda a, b, c: [torch.softmax(c @ b, 1) * a * 2 * a], *inputs, compile_kwargs={"static_input_idxs": [0, 1]}
    )
    assert names.propose(given) == [["names canonical"]]
    plain = names.apply(given, "names canonical")
    assert all_names(plain) == ["x", "y", "z", "mm", "softmax", "mul", "mul_1", "mul_2", "output"]
    assert [value is inputs[place] for value, place in zip(plain.inputs, (2, 1, 0), strict=True)] == [True] * 3
    assert torch.equal(plain.gm(*plain.inputs)[0], given.gm(*inputs)[0])
    assert sorted(plain.spec.compile_kwargs["static_input_idxs"]) == [1, 2]
    assert names.propose(plain) == []
    assert all_names(given)[0] == "a_1", "the case itself is left alone"
    assert plain.gm.meta[RENAMED] == {"a_1": "z", "b_1": "y", "c_1": "x"}


def test_inputs_whose_names_the_partitioner_reads_keep_them() -> None:
    given = case(
        lambda primals_1, tangents_1: [primals_1.sin() * tangents_1], torch.ones(2), torch.ones(2), stage="joint"
    )
    before = all_names(given)[:2]
    assert all_names(names.apply(given, "names canonical"))[:2] == before


def test_names_of_functions_and_methods_and_of_what_python_calls_so() -> None:
    gm = torch.fx.symbolic_trace(lambda tanh, b: torch.sum(tanh.relu_()) + abs(b))
    given = Live(gm, [torch.ones(2), torch.ones(2)], ReplaySpec("dynamo"))
    plain = names.apply(given, "names canonical")
    assert all_names(plain) == ["x", "y", "relu", "sum_1", "abs_1", "add", "output"]
    assert names.propose(plain) == []
    with pytest.raises(ValueError, match="no edit"):
        names.apply(given, "names other")
