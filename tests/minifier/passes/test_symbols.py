"""Symbols go one by one: before and after, as text; and a planted bug that needs one of three to stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphdbg.dumps.live import save_graph
from graphdbg.dumps.schema import Ambient, TensorValue
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.torchside.values import fake_of
from graphdbg.minifier.minify import minify_saved
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.symbolic import symbols_of
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

PLANTED = Path(__file__).parents[2] / "planted"
symbols, dims, dtypes = pass_of("symbols"), pass_of("dims"), pass_of("dtypes")


def dynamic(f: Any, *tensors: torch.Tensor) -> Live:
    """What Dynamo captures of a function with dynamic=True."""
    seen: list[Any] = []

    def keep(gm: Any, _: Any) -> Any:
        seen.append(gm)
        return gm

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(f, backend=keep, dynamic=True)(*tensors)
    given = iter(tensors)
    fakes = [fake_of(node) for node in seen[0].graph.find_nodes(op="placeholder")]
    inputs = [next(given) if isinstance(fake, torch.Tensor) else fake.node.hint for fake in fakes]
    return Live(seen[0], inputs, ReplaySpec("dynamo", dynamic=True))


def shapes(case: Live) -> list[str]:
    """The sizes that the compiler is told, of every tensor in the graph."""
    fakes = [fake_of(node) for node in case.gm.graph.nodes]
    return [str(tuple(fake.shape)) for fake in fakes if isinstance(fake, torch.Tensor)]


def f(x: torch.Tensor) -> torch.Tensor:
    return x.tanh().repeat(2, 1).view(x.size(0) * 2, -1)


def test_one_symbol_becomes_its_number_and_the_other_stays() -> None:
    given = dynamic(f, torch.randn(3, 4))
    first, second = symbols_of(given)
    assert len(symbols.propose(given)[0]) == 2
    assert sorted(shapes(given)) == sorted([f"({second}, {first})"] * 2 + [f"(2*{second}, {first})"] * 2)
    item = symbols.apply(given, f"symbols {first}")
    assert item.spec.dynamic
    assert symbols_of(item) == [second]
    assert sorted(shapes(item)) == sorted([f"({second}, 4)"] * 2 + [f"(2*{second}, 4)"] * 2)
    assert torch.equal(item.gm(*item.inputs)[0], given.gm(*given.inputs)[0])
    assert len(given.inputs) == 3, "the case itself is left alone"


def test_without_the_last_symbol_the_case_is_static_and_its_arithmetic_done() -> None:
    given = dynamic(f, torch.randn(3, 4))
    case = given
    for edit in symbols.propose(given)[0]:
        case = symbols.apply(case, edit)
    assert not case.spec.dynamic
    assert [type(value) for value in case.inputs] == [torch.Tensor]
    assert "view(6, -1)" in case.gm.code
    assert torch.equal(case.gm(*case.inputs)[0], given.gm(*given.inputs)[0])
    assert symbols.propose(case) == []
    with pytest.raises(ValueError, match="no symbol"):
        symbols.apply(case, symbols.propose(given)[0][0])


def test_smaller_sizes_keep_their_symbols_down_to_two() -> None:
    given = dynamic(f, torch.randn(6, 5))
    first, second = symbols_of(given)
    small = dims.apply(given, "dims 6 2")
    assert symbols_of(small) == [first, second]
    assert [value if isinstance(value, int) else tuple(value.shape) for value in small.inputs] == [2, 5, (2, 5)]
    assert sorted(shapes(small)) == sorted([f"({second}, {first})"] * 2 + [f"(2*{second}, {first})"] * 2)
    assert symbols_of(dims.apply(given, "dims 6 1")) == [first], "a size of 1 has no symbol"


@torch._dynamo.config.patch(capture_scalar_outputs=True)
def test_a_size_that_is_read_from_a_tensor_stays_one_beside_those_of_inputs() -> None:
    given = dynamic(lambda k, x: torch.ones(k.item(), x.size(0)).tanh(), torch.tensor(7), torch.randn(3))
    narrower = dtypes.apply(given, "dtypes int64 int32")
    assert narrower.spec.dynamic and narrower.inputs[0].dtype == torch.int32
    (_, before, *_), (_, after, *same) = shapes(given), shapes(narrower)
    read, bound = (text.strip("()").split(", ")[0] for text in (after, before))
    assert same == [after] and read.isidentifier() and after == before.replace(bound, read)


@pytest.mark.slow
def test_a_bug_of_one_symbolic_size_keeps_that_one_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLANTED))
    monkeypatch.syspath_prepend(str(PLANTED))
    torch.manual_seed(0)

    def net(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x @ w) * 0.5
        for _ in range(3):
            y = torch.sin(y @ w.t() @ w) + y
        return y.sum(1)

    given = dynamic(net, torch.randn(6, 12), torch.randn(12, 10) / 3)
    assert len(symbols_of(given)) == 3
    path = save_graph(given.gm, given.inputs, tmp_path / "case", stage="dynamo", ambient=Ambient(grad=False))
    result = minify_saved(load_graph(path), out=tmp_path / "out", options=MinifyOptions(imports=("planted_dynamic",)))
    assert result.verified == (3, 3)
    record = load_graph(tmp_path / "out" / "case").record
    (value,) = (node.value for node in record.graph.nodes if node.op == "placeholder")
    assert isinstance(value, TensorValue)
    assert [isinstance(size, int) for size in value.shape] == [False, True]
    assert [symbol.hint for symbol in record.symbols] == [2]
    assert result.asked["search"] <= 15, result.asked
