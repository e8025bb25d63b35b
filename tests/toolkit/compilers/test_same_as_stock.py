"""functorch's compilers and ours on the same graphs of the same models give equal results."""

from __future__ import annotations

import copy
import io
from typing import Any

import functorch.compile as stock
import pytest
import torch

from graphdbg.toolkit import compilers as ours

from .captured import Case, captured
from .models import BUILD, built, step

NAMES = [name for name in BUILD if name != "checkpointed"]


def outcome(compiler: Any, case: Case) -> list[Any]:
    """What a compiled graph gives on fresh inputs, for one seed, on its third call: TorchScript specialises before."""
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in case.inputs]
    compiled = compiler(copy.deepcopy(case.gm), inputs)
    for _ in range(3):
        torch.manual_seed(3)
        result = compiled([value.clone() if isinstance(value, torch.Tensor) else value for value in case.inputs])
    return list(result)


def assert_equal(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for item, other in zip(got, wanted, strict=True):
        if isinstance(other, torch.Tensor):
            assert (item.dtype, item.stride()) == (other.dtype, other.stride())
            torch.testing.assert_close(item, other, rtol=0, atol=0)
        else:
            assert item == other


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_results_are_equal_on_forward_and_backward(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cases = captured(name)
    assert [case.stage for case in cases] == ["forward", "backward"]
    for case in cases:
        wanted = outcome(stock.nop, case)
        assert_equal(outcome(ours.nop, case), wanted)
        assert_equal(outcome(ours.print_compile.to(io.StringIO()), case), outcome(stock.print_compile, case))
        assert_equal(outcome(ours.ts_compile, case), outcome(stock.ts_compile, case))


def test_the_simple_ones_are_equal_too() -> None:
    from torch._functorch.compilers import simple_ts_compile

    for case in captured("cells"):
        assert_equal(outcome(ours.simple_ts_compile, case), outcome(simple_ts_compile, case))


def test_a_function_compiled_by_nnc_jit() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x).cos().sum()

    item, other = (torch.linspace(-2, 2, 9).requires_grad_() for _ in range(2))
    ours.nnc_jit(function)(item).backward()
    stock.nnc_jit(function)(other).backward()
    assert item.grad is not None
    assert torch.equal(item.grad, other.grad)


def test_the_decompositions_are_the_same_table() -> None:
    assert ours.default_decompositions == stock.default_decompositions


@pytest.mark.parametrize("name", ["convnet", "bags"])
def test_memory_efficient_fusion_is_equal(name: str) -> None:
    model, inputs = built(name)
    twin = copy.deepcopy(model)
    wanted = step(twin, stock.memory_efficient_fusion(twin), inputs)
    assert_equal(step(model, ours.memory_efficient_fusion(model), inputs), wanted)
