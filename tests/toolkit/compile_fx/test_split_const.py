"""The constant part of a graph: the same two graphs and values as torch's `split_const_gm`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor.compile_fx import split_const_gm as torchs
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.compile_fx.constants import split_const_gm

aten = torch.ops.aten
X = torch.linspace(-1, 1, 16).reshape(4, 4)
W, V = torch.linspace(0, 2, 16).reshape(4, 4), torch.linspace(3, 1, 16).reshape(4, 4)
INTS = torch.arange(16, dtype=torch.int8).reshape(4, 4)


def products(x: torch.Tensor) -> Any:
    wide = W @ V
    return x @ wide, wide.sum() + x, W + x


def pieces(x: torch.Tensor) -> Any:
    first, second = (W * 2).split(2)
    return x[:2] + first, first @ second.t()


def all_pieces_folded(x: torch.Tensor) -> Any:
    first, second = W.split(2)
    return x + torch.cat([second, first])


def numbers(x: torch.Tensor) -> Any:
    return x + torch.arange(4), x * (torch.ones(4) + W), torch.full((4,), 2.0).sin() + x


def draws(x: torch.Tensor) -> Any:
    noisy = torch.bernoulli(W.clamp(0, 1))
    return x * noisy, x * W.cos().sin()


def quantised(x: torch.Tensor) -> Any:
    weight = INTS.permute(1, 0).to(torch.bfloat16)
    return x.bfloat16() @ weight, x + INTS.sum()


def constant_alone(x: torch.Tensor) -> Any:
    return W.exp(), x.relu()


def nothing(x: torch.Tensor) -> Any:
    return x.relu(), x + W


def branches(x: torch.Tensor) -> Any:
    made = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (W.exp(),))
    return made * x, W.exp() + x


GRAPHS = [products, pieces, all_pieces_folded, numbers, draws, quantised, constant_alone, nothing, branches]


def both(gm: fx.GraphModule, *options: Any) -> tuple[Any, Any, fx.GraphModule, fx.GraphModule]:
    mine, theirs = copy.deepcopy(gm), copy.deepcopy(gm)
    return split_const_gm(mine, *options), torchs(theirs, *options), mine, theirs


def same_split(gm: fx.GraphModule, *options: Any) -> tuple[Any, fx.GraphModule]:
    (constants, places), (their_constants, their_places), mine, theirs = both(gm, *options)
    assert str(constants.graph) == str(their_constants.graph)
    assert str(mine.graph) == str(theirs.graph)
    assert mine.code == theirs.code
    assert places == their_places
    for name in places:
        if hasattr(theirs, name):
            assert torch.equal(getattr(mine, name), getattr(theirs, name))
    return (constants, places), mine


@pytest.mark.parametrize("skip_constructor", [True, False])
@pytest.mark.parametrize("function", GRAPHS)
def test_splits_as_torch_does(function: Callable[..., Any], skip_constructor: bool) -> None:
    gm = make_fx(function)(X)
    torch.manual_seed(0)
    wanted = gm(X)
    (constants, places), rest = same_split(gm, skip_constructor)
    torch.manual_seed(0)
    assert all(torch.equal(*pair) for pair in zip(wanted, rest(X), strict=True))
    values = constants()
    assert all(torch.equal(getattr(rest, name), values[place]) for name, place in places.items())


def test_some_of_the_graphs_have_a_constant_part() -> None:
    sizes = {one.__name__: len(both(make_fx(one)(X))[0][1]) for one in GRAPHS}
    assert sizes["products"] == 2
    assert sizes["nothing"] == 0
    assert sizes["draws"] >= 1


def lifted(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> Any:
    wide = (w @ v).relu()
    return wide + x, v + x


def test_constants_among_the_placeholders() -> None:
    gm = make_fx(lifted)(W, V, X)
    names = ["w_1", "v_1"]
    assert [node.name for node in gm.graph.find_nodes(op="placeholder")] == [*names, "x_1"]
    (constants, places), rest = same_split(gm, False, names)
    values = constants(W, V)
    inputs = {"x_1": X, **{name: values[place] for name, place in places.items()}}
    given = [inputs.get(node.target, W) for node in rest.graph.find_nodes(op="placeholder")]
    assert all(torch.equal(*pair) for pair in zip(gm(W, V, X), rest(*given), strict=True))


def test_lifted_constants_without_constructors() -> None:
    same_split(make_fx(lifted)(W, V, X), True, ["w_1", "v_1"])


def test_nodes_that_must_not_be_folded() -> None:
    gm = make_fx(lifted)(W, V, X)
    _, rest = same_split(gm, False, ["w_1", "v_1"], lambda node: node.target is aten.relu.default)
    assert rest.graph.find_nodes(op="call_function", target=aten.relu.default)


def test_what_follows_from_a_skipped_node_stays_too() -> None:
    """Torch's loses the node in such a graph (a KeyError): its values are folded and their origin is not."""
    gm = make_fx(lambda x: [(W @ V).relu().sin() + x])(X)
    skip = lambda node: node.target is aten.relu.default  # noqa: E731
    with pytest.raises(KeyError):
        torchs(copy.deepcopy(gm), True, None, skip)
    wanted = gm(X)[0]
    _, places = split_const_gm(gm, True, None, skip)
    assert list(places) == ["_FOLDED_CONST_mm"]
    assert torch.equal(gm(X)[0], wanted)


def test_values_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gm = make_fx(products)(X)
    calls = []
    usual = fx.Interpreter.call_function

    def counting(self: Any, target: Any, args: Any, kwargs: Any) -> Any:
        calls.append(target)
        return usual(self, target, args, kwargs)

    monkeypatch.setattr(fx.Interpreter, "call_function", counting)
    split_const_gm(gm)
    assert calls.count(aten.mm.default) == 1
