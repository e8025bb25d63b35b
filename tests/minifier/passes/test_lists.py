"""Lists of tensors become shorter, as far as eager takes it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from torch import fx

from graphdbg.minifier.passes import pass_of
from graphdbg.toolkit.live.case import Live

lists = pass_of("lists")


def case(f: Any, *inputs: Any) -> Live:
    return Live(fx.symbolic_trace(f), list(inputs))


def test_a_list_is_cut_down_to_its_first_element() -> None:
    given = case(lambda x, y: torch.cat([x, y, x, y.sin()]), torch.ones(1), torch.zeros(2))
    rounds = lists.propose(given)
    assert rounds == [["lists cat 0 3", "lists cat 0 2", "lists cat 0 1"], ["lists cat 0 0"]]
    small = reduce(lists.apply, rounds[0], given)
    assert [node.name for node in small.gm.graph.nodes] == ["x", "cat", "output"]
    assert torch.equal(small.gm(*small.inputs), torch.ones(1)) and lists.propose(small) == []
    assert len(given.inputs) == 2 and given.gm(*given.inputs).shape == (6,), "the case itself is left alone"


def test_a_list_of_results_loses_what_nothing_reads() -> None:
    given = case(lambda x, y, z: torch._foreach_add([x, y, z], [z, x, y])[1], *map(torch.full, [(1,)] * 3, [1, 2, 4]))
    rounds = lists.propose(given)
    assert rounds[0] == ["lists _foreach_add 0 2"]
    small = lists.apply(lists.apply(given, "lists _foreach_add 0 2"), "lists _foreach_add 0 0")
    assert torch.equal(small.gm(*small.inputs), given.gm(*given.inputs)) and len(small.inputs) == 2
    with pytest.raises(ValueError, match="is read"):
        lists.apply(given, "lists _foreach_add 0 1")


def test_what_eager_refuses_is_not_proposed() -> None:
    given = case(lambda x: torch.einsum("i,i->", [x, x]) + torch.stack([x, x])[1].sum(), torch.ones(2))
    assert lists.propose(given) == []
