"""The drop-in reaches the minima that functorch's own minifier tests ask for, and its results fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps.errors import UsageError
from graphdbg.minifier import minifier
from graphdbg.minifier.minified import Interrupted
from graphdbg.minifier.minify import minify

Predicate = Callable[[fx.GraphModule, Any], Any]


def has(target: Any) -> Predicate:
    return lambda gm, inputs: target in {node.target for node in gm.graph.nodes}


def makes_nans(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> bool:
    """True where finite inputs give NaN: the node that makes it must be there."""
    if any(torch.isnan(value).any() for value in inputs):
        return False
    return bool(torch.isnan(gm(*inputs)[0]).any())


def returns_an_input(gm: fx.GraphModule, inputs: Any) -> bool:
    output = next(node for node in gm.graph.nodes if node.op == "output")
    return any(node.op == "placeholder" for node in output.all_input_nodes)


def check(gm: fx.GraphModule, inputs: list[Any], predicate: Predicate, nodes: int, left: int) -> fx.GraphModule:
    module, smaller = minifier(gm, inputs, predicate)
    assert predicate(module, smaller)
    assert (len(module.graph.nodes), len(smaller)) == (nodes, left), module.code
    module(*smaller)
    return module


def test_has_mul() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y = y / 3
        x = x + 3
        x = x * y
        return x + y

    inputs = [torch.randn(3), torch.randn(3)]
    check(make_fx(f)(*inputs), inputs, has(torch.ops.aten.mul.Tensor), 4, 2)


def test_nan_from_zero_by_zero() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor]:
        x = (x * 3 + 5).cos()
        zero = x - x
        return ((zero / zero + 3) * 2,)

    inputs = [torch.randn(3)]
    module = check(make_fx(f)(*inputs), inputs, makes_nans, 3, 1)
    assert has(torch.ops.aten.div.Tensor)(module, [])


def test_input_returned() -> None:
    def f(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, c = a.sin(), c.cos()
        return a, b, c, a * c

    inputs = [torch.randn(3) for _ in range(3)]
    check(make_fx(f)(*inputs), inputs, returns_an_input, 2, 1)


def test_tuple_use() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor]:
        spread, mean = torch.std_mean(a)
        return (spread + b * mean,)

    inputs = [torch.randn(3), torch.randn(3)]
    check(make_fx(f)(*inputs), inputs, has(torch.ops.aten.add.Tensor), 4, 2)


def test_module() -> None:
    class Mock(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = torch.nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.relu(x)
            zero = y - y
            return zero / zero + 3

    check(fx.symbolic_trace(Mock()), [torch.randn(3)], makes_nans, 3, 1)


def test_original_is_checked_once_and_refused_where_it_passes() -> None:
    gm = make_fx(lambda x: x.sin().cos())(torch.randn(3))
    calls: list[int] = []
    with pytest.raises(UsageError, match="does not fail"):
        minifier(gm, [torch.randn(3)], lambda gm, inputs: calls.append(len(gm.graph.nodes)))
    assert calls == [4]


def test_exceptions_of_the_predicate_propagate() -> None:
    gm = make_fx(lambda x: x.sin().cos())(torch.randn(3))

    def predicate(gm: fx.GraphModule, inputs: Any) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        minifier(gm, [torch.randn(3)], predicate)


def test_offloaded_values_give_the_same_result(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.sin().cos().exp().t() @ x).relu().sum()

    inputs = [torch.randn(3, 4)]
    gm = make_fx(f)(*inputs)
    wanted = has(torch.ops.aten.exp.default)
    item, first = minifier(gm, inputs, wanted)
    two, second = minifier(gm, inputs, wanted, save_dir=str(tmp_path / "values"), offload_to_disk=True)
    assert item.code == two.code
    assert torch.equal(first[0], second[0])
    assert list((tmp_path / "values").iterdir()) == []


def test_fake_inputs_are_taken_as_they_are() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    gm = make_fx(lambda x: x.sin().cos().exp())(torch.randn(3))
    inputs = [FakeTensorMode().from_tensor(torch.randn(3))]
    module, left = minifier(gm, inputs, has(torch.ops.aten.cos.default))
    assert len(module.graph.nodes) == 3
    assert type(left[0]) is type(inputs[0])


def test_inputs_and_graph_of_the_caller_are_left_alone() -> None:
    def f(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.add_(x)
        return state.sin()

    gm = make_fx(f)(torch.ones(3), torch.zeros(3))
    inputs = [torch.ones(3), torch.zeros(3)]
    code, ran = gm.code, []

    def predicate(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> bool:
        if len(gm.graph.nodes) < 6:
            ran.append(gm(*inputs))
        return has(torch.ops.aten.sin.default)(gm, inputs)

    minifier(gm, inputs, predicate)
    assert ran
    assert gm.code == code
    assert torch.equal(inputs[1], torch.zeros(3))


def test_granularity_must_be_a_power_of_two_and_bounds_the_steps() -> None:
    gm = make_fx(lambda x: x.sin().cos().exp().neg().abs().sqrt())(torch.randn(3))
    with pytest.raises(UsageError, match="power of two"):
        minifier(gm, [torch.randn(3)], lambda *_: True, max_granularity=3)
    module, _ = minifier(gm, [torch.randn(3)], has(torch.ops.aten.exp.default), max_granularity=1)
    assert len(module.graph.nodes) == 3


def test_each_smaller_case_is_dumped() -> None:
    gm = make_fx(lambda x: x.sin().cos().exp().neg().abs().sqrt())(torch.randn(3))
    sizes: list[int] = []
    minifier(
        gm,
        [torch.randn(3)],
        has(torch.ops.aten.exp.default),
        dump_state=lambda gm, _: sizes.append(len(gm.graph.nodes)),
    )
    assert sizes[0] == 8
    assert sizes[-1] == 3
    assert sizes == sorted(sizes, reverse=True)


def test_one_input_stands_in_for_others_where_a_cut_left_more_bytes_than_the_original_needed() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.sin()) * torch.sigmoid(x.cos())

    inputs = [torch.randn(3)]
    module = check(make_fx(f)(*inputs), inputs, has(torch.ops.aten.mul.Tensor), 3, 1)
    assert module.graph.find_nodes(op="placeholder")[0].name in ("tanh", "sigmoid")


def test_a_stand_in_that_does_not_fail_is_not_taken() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.sin()) * torch.sigmoid(x.cos())

    def differ(gm: fx.GraphModule, inputs: Any) -> bool:
        return has(torch.ops.aten.mul.Tensor)(gm, inputs) and len(inputs) == 2

    inputs = [torch.randn(3)]
    graph = make_fx(f)(*inputs)
    module, left = minifier(graph, inputs, differ, skip_sanity=True)
    assert (len(module.graph.nodes), len(left)) == (4, 2)


def test_an_interrupt_of_a_predicate_keeps_the_best_so_far() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.tanh(x) + 1
        return torch.relu(x) * 2

    gm, seen = make_fx(f)(torch.ones(4)), list[int]()

    def fails(smaller: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        if seen:
            raise KeyboardInterrupt
        shown = "relu" in smaller.code
        seen.extend([len(smaller.graph.nodes)] if shown and len(smaller.graph.nodes) < len(gm.graph.nodes) else [])
        return shown

    with pytest.raises(Interrupted) as caught:
        minify(gm, [torch.ones(4)], check=fails)
    best = caught.value.minified
    assert best is not None and best.nodes == seen[0] and "relu" in best.module.code
