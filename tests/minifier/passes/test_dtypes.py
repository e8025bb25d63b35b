"""Plainer dtypes everywhere at once: before and after; and a planted bug of bfloat16 code that has nothing to do with
it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.minifier.minify import minify
from graphdbg.minifier.passes import pass_of
from graphdbg.toolkit.live.case import Live

dtypes = pass_of("dtypes")


def case(f: Any, *inputs: Any) -> Live:
    return Live(make_fx(f)(*inputs), list(inputs))


def plain(case: Live) -> Live:
    for edit in dtypes.propose(case)[0]:
        case = dtypes.apply(case, edit)
    return case


def test_inputs_constants_and_arguments_change_together() -> None:
    def f(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        half = x.to(torch.float16) * torch.zeros(3, dtype=torch.float16)
        return half.double()[at] + torch.tensor([1.0, 2.0], dtype=torch.float64)

    given = case(f, torch.randn(3, dtype=torch.float64), torch.tensor([0, 1], dtype=torch.int32))
    assert dtypes.propose(given) == [["dtypes float64 float32", "dtypes float16 float32", "dtypes int32 int64"]]
    result = plain(given)
    assert [value.dtype for value in result.inputs] == [torch.float32, torch.int64]
    assert not any(text in result.gm.code for text in ("float64", "float16", "int32"))
    assert result.gm(*result.inputs).dtype is torch.float32
    assert given.gm(*given.inputs).dtype is torch.float64, "the case itself is left alone"
    assert dtypes.propose(result) == []


def test_methods_and_modules_change_too() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2, dtype=torch.bfloat16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.bfloat16()).double()

    given = Live(torch.fx.symbolic_trace(Net()), [torch.randn(4, 3)])
    result = plain(given)
    assert "bfloat16()" not in result.gm.code
    assert "double()" not in result.gm.code
    assert result.gm(*result.inputs).dtype is torch.float32
    assert given.gm.linear.weight.dtype is torch.bfloat16


def test_complex_numbers_become_plain_ones_then_real_ones() -> None:
    given = case(lambda x: x * x.sin(), torch.randn(3, dtype=torch.complex128))
    half = plain(given)
    assert half.inputs[0].dtype is torch.complex64
    assert dtypes.propose(half) == [["dtypes complex64 float32"]]
    assert plain(half).inputs[0].dtype is torch.float32
    needed = case(lambda x: torch.view_as_real(x), torch.randn(3, dtype=torch.complex64))
    assert dtypes.propose(needed) == [], "eager takes no real numbers there"


def test_memory_that_is_shared_stays_shared() -> None:
    base = torch.arange(6, dtype=torch.float64)
    given = Live(make_fx(lambda a, b: a[:3] + b)(base, base[3:]), [base, base[3:]])
    result = plain(given)
    result.inputs[0][3] = 9.0
    assert result.inputs[1][0] == 9.0
    assert result.inputs[1].dtype is torch.float32


@pytest.mark.slow
def test_a_bug_that_does_not_need_bfloat16_is_shown_in_float32(tmp_path: Path) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        y = torch.relu(x @ w) * 0.5
        return ((y @ w).float().sum(1),)

    torch.manual_seed(0)
    inputs = [torch.randn(6, 6).bfloat16(), torch.randn(6, 6).bfloat16()]
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}):
        result = minify(make_fx(f)(*inputs), inputs, out=tmp_path / "out")
    (value,) = result.inputs
    assert value.dtype is torch.float32
    assert [node.name for node in result.module.graph.nodes] == ["x", "relu", "output"]
    assert result.verified == (3, 3)
    assert result.asked["search"] <= 13, result.asked
