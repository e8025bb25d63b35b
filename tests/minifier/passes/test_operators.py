"""Simpler operators, arguments and numbers: before and after, as text; and a planted bug in which any operator would
do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier.minify import minify
from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.operators import MOST_NODES, SIMPLEST
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

operators = pass_of("operators")


def case(f: Any, *inputs: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs))


def calls(case: Live) -> list[str]:
    return [str(node.target) for node in case.gm.graph.nodes if node.op == "call_function"]


def applied(case: Live, edits: list[str]) -> Live:
    for edit in edits:
        case = operators.apply(case, edit)
    case.gm(*case.inputs)
    return case


def test_each_operator_gives_way_to_the_simplest_of_its_kind() -> None:
    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.addmm(b, x, w) * 0.37, 1).amax([0], keepdim=True)

    given = case(f, torch.randn(4, 3), torch.randn(3, 5), torch.randn(5))
    first, *_ = operators.propose(given)
    assert [edit.split()[-1] for edit in first] == ["mm", "add", "neg", "sum"]
    result = applied(given, first)
    assert calls(result) == ["aten.mm.default", "aten.add.Tensor", "aten.neg.default", "aten.sum.dim_IntList"]
    assert [tuple(value.shape) for value in result.inputs] == [(4, 3), (3, 5)], "nothing reads the bias any more"
    assert result.gm(*result.inputs).shape == given.gm(*given.inputs).shape
    assert calls(given)[0] == "aten.addmm.default", "the case itself is left alone"
    assert len(given.inputs) == 3


def test_optional_arguments_go() -> None:
    given = case(
        lambda x, w, b: F.gelu(F.conv2d(x, w, b), approximate="tanh"),
        *map(torch.randn, [(1, 2, 5, 5), (4, 2, 3, 3), (4,)]),
    )
    (edits,) = [edits for edits in operators.propose(given) if edits[0].split()[2] == "default"]
    assert edits == ["operators convolution default bias", "operators gelu default approximate"]
    result = applied(given, edits)
    assert len(result.inputs) == 2
    assert "approximate" not in result.gm.code


def test_arguments_at_the_end_go_where_nothing_says_what_they_are() -> None:
    gm = torch.fx.symbolic_trace(lambda x, w: torch.conv2d(x, w, None, (1, 1)).sum(1))
    given = Live(gm, [torch.randn(1, 2, 5, 5), torch.randn(4, 2, 3, 3)], ReplaySpec("dynamo"))
    assert operators.propose(given) == [["operators conv2d default 3"]], "without its dimension it is another sum"
    result = applied(given, ["operators conv2d default 3"])
    assert operators.propose(result) == [["operators conv2d default 2"]]
    assert "conv2d(x, w);" in applied(result, ["operators conv2d default 2"]).gm.code


def test_numbers_become_one_two_or_nothing() -> None:
    given = case(lambda x: torch.clamp(x * 0.37, -3, 7) + 2, torch.randn(4))
    rounds = operators.propose(given)
    assert rounds[-3:] == [
        [f"operators mul other {number}.0", f"operators clamp min {number}", f"operators clamp max {number}"]
        for number in (1, 2, 0)
    ]
    result = applied(given, rounds[-3])
    assert "mul.Tensor(x_1, 1.0)" in result.gm.code
    assert [edits for edits in operators.propose(result) if edits[0].split()[2] not in ("to", "default")] == []


def test_functions_and_methods_of_a_dynamo_graph_give_way_too() -> None:
    gm = torch.fx.symbolic_trace(lambda x, y: F.gelu(x.tanh(), approximate="tanh") / y)
    given = Live(gm, [torch.randn(3), torch.randn(3)], ReplaySpec("dynamo"))
    result = applied(given, operators.propose(given)[0])
    assert [node.target for node in result.gm.graph.nodes][2:-1] == ["neg", torch.neg, __import__("operator").add]


def test_what_eager_takes_otherwise_is_not_proposed() -> None:
    whole = case(lambda x: x / x, torch.arange(1, 4))
    assert operators.propose(whole) == [], "a sum of whole numbers is no quotient of them"
    assert operators.propose(case(lambda x: x.argmax(0), torch.randn(3, 2))) == []
    with pytest.raises(ValueError, match="no node"):
        operators.apply(whole, "operators gone to neg")


def test_larger_cases_have_no_edits() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(MOST_NODES - 1):
            x = x.tanh()
        return x

    assert operators.propose(case(f, torch.randn(3))) == []


def test_the_simplest_operators_exist() -> None:
    for name, (simplest, _) in SIMPLEST.items():
        assert hasattr(torch.ops.aten, simplest), name
        assert simplest not in SIMPLEST, "else a case would never be done"


@pytest.mark.slow
def test_a_bug_that_needs_some_operator_before_a_sum_is_shown_with_the_simplest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(Path(__file__).parents[2] / "planted")
    monkeypatch.setenv("PYTHONPATH", here)
    monkeypatch.syspath_prepend(here)

    def f(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        y = torch.tanh(x @ w) @ w.t()
        return [((F.softplus(y) / 0.37).sum(1, keepdim=True) @ x[:1]).cos()]

    torch.manual_seed(0)
    inputs = [torch.randn(6, 5), torch.randn(5, 4)]
    result = minify(make_fx(f)(*inputs), inputs, imports=["planted_sum"], out=tmp_path / "out")
    assert [node.target for node in result.module.graph.nodes][1:-1] == [torch.add, torch.sum]
    assert ", 1.0)" in result.module.code
    assert [node.name for node in result.module.graph.nodes] == ["x", "add", "sum_1", "output"]
    assert result.verified == (3, 3)
    assert result.asked["search"] <= 14, result.asked
