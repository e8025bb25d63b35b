"""Dimensions of size 1 at the front of inputs go, as far as eager takes it."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier.passes import pass_of
from graphdbg.toolkit.live.case import Live

ranks = pass_of("ranks")


def case(f: Any, *inputs: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs))


def shapes(case: Live) -> list[tuple[int, ...]]:
    case.gm(*case.inputs)
    return [tuple(value.shape) for value in case.inputs]


def test_one_number_becomes_a_vector() -> None:
    given = case(lambda x, y: [x.relu() + y, x * 2], torch.ones(1, 1, 1), torch.ones(1))
    assert ranks.propose(given) == [["ranks 1"], ["ranks 2"]]
    small = ranks.apply(given, "ranks 1")
    assert shapes(small) == [(1,), (1,)]
    assert ranks.propose(small) == []
    assert shapes(given) == [(1, 1, 1), (1,)]


def test_a_matrix_stays_where_one_is_needed() -> None:
    given = case(lambda x, w: [torch.mm(x[0], w)], torch.ones(1, 1, 4, requires_grad=True), torch.ones(4, 1))
    assert ranks.propose(given) == [], "x[0] would be a vector"
    given = case(lambda x, w: [torch.matmul(x, w)], torch.ones(1, 1, 2, 4, requires_grad=True), torch.ones(4, 1))
    assert ["ranks 2"] in ranks.propose(given)
    small = ranks.apply(given, "ranks 2")
    assert shapes(small)[0] in ((2, 4), (1, 1, 2, 4))
    assert small.inputs[0].requires_grad


def test_only_ones_at_the_front_go() -> None:
    given = case(lambda x: [x.sin()], torch.ones(1, 3, 1))
    assert ranks.propose(given) == [["ranks 1"], ["ranks 2"]]
    assert shapes(ranks.apply(given, "ranks 1")) == [(3, 1)]
    assert ranks.propose(case(lambda x: [x.sin()], torch.ones(3, 1))) == []


def test_shared_memory_stays_shared() -> None:
    x = torch.ones(1, 1, 2)
    small = ranks.apply(case(lambda x, y: [x + y], x, x[0]), "ranks 1")
    assert shapes(small) == [(2,), (2,)]
    assert small.inputs[0].untyped_storage().data_ptr() == small.inputs[1].untyped_storage().data_ptr()
