"""What is no fault is not reported as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphdbg.toolkit.live.case import Live

pytest.importorskip("triton")

import torch

from .planted import INPUTS, captured, graph


def _found(function: Callable[..., Any], *inputs: Any) -> Any:
    from graphdbg.toolkit.kernel_checks.run import checked

    return checked(Live(*captured(function, lambda: list(inputs))), plain=False)


def scattered(x: Any, i: Any) -> Any:
    return torch.zeros(5).index_add(0, i, x) + 1


def halves(x: Any, y: Any) -> Any:
    return torch.cat([x.exp(), y.sin()], 1).sum(0)


def saturating(x: Any) -> Any:
    return torch.sigmoid(x) + torch.tanh(x * 1000)


def below_zero(x: Any) -> Any:
    return torch.log(x) * 2


def masked_out(x: Any, m: Any) -> Any:
    return torch.softmax(x.masked_fill(m, float("-inf")), -1)


def twice(x: Any, i: Any) -> Any:
    return x.index_put((i,), torch.arange(6.0))


def hashes(x: Any) -> Any:
    return (x * 1103515245 + 12345) & 255


@pytest.mark.parametrize(
    "name", [item if item in ("chain", "rows") else pytest.param(item, marks=pytest.mark.slow) for item in INPUTS]
)
def test_kernels_as_inductor_wrote_them(name: str) -> None:
    from graphdbg.toolkit.kernel_checks.run import checked

    result = checked(Live(*graph(name)), plain=False)
    assert result.ok and not result.notes, result
    assert result.launches


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (scattered, [torch.ones(2000), torch.arange(2000) % 5]),
        (saturating, [torch.tensor([-1000.0, 0.0, 1000.0])]),
        pytest.param(halves, [torch.randn(40, 30), torch.randn(40, 7)], marks=pytest.mark.slow),
        pytest.param(hashes, [torch.arange(3000, dtype=torch.int32) * 7919], marks=pytest.mark.slow),
    ],
)
def test_no_report(function: Any, inputs: list[Any]) -> None:
    result = _found(function, *inputs)
    assert result.ok and not result.notes, result


@pytest.mark.parametrize(
    ("function", "inputs", "kind"),
    [
        (below_zero, [torch.linspace(-1, 1, 300)], "nan"),
        (twice, [torch.zeros(4), torch.tensor([0, 1, 1, 2, 2, 2])], "lanes"),
        pytest.param(
            masked_out, [torch.randn(5, 40), torch.arange(5)[:, None].expand(5, 40) == 3], "nan", marks=pytest.mark.slow
        ),
    ],
)
def test_what_the_graph_itself_does_is_a_note(function: Any, inputs: list[Any], kind: str) -> None:
    result = _found(function, *inputs)
    assert result.ok, result
    assert kind in {note.kind for note in result.notes}
