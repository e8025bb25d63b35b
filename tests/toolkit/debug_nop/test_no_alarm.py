"""Healthy programs whose records promise less than they say: nothing is found, and what is not compared is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, hessian, vmap

from graphdbg.toolkit.compilers.debug_nop import collecting


@torch.compiler.nested_compile_region
def _block(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu()


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.view(-1)[5:].copy_(torch.ones(59))
    y.diagonal().copy_(y[0])
    y[1:, 2].add_(3)
    return y


HEALTHY: dict[str, Callable[[torch.Tensor], Any]] = {
    "writes through views": _written,
    "regions": lambda x: _block(_block(_block(x))),
    "vmap of grad": lambda x: vmap(grad(lambda v: v.sin().sum()))(x),
    "hessian": lambda x: hessian(lambda v: (v.sin() * v.sum()).sum())(x[0]),
    "scatter of a slice": lambda x: torch.select_scatter(x.t()[1:], x[0], 0, 2),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_raises_no_alarm(name: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(8, 8)
    with collecting() as outcome, torch.no_grad():
        result = torch.compile(HEALTHY[name], backend="graphdbg_debug_nop")(x)
    torch.testing.assert_close(result, HEALTHY[name](x))
    assert outcome == []
