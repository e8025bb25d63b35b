"""NaN and Inf that are missing, zeros of the wrong sign, and what rounding may decide of them."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.judging.baseline import NoReference, reference
from graphdbg.toolkit.judging.comparing import ALLOWANCE, noise
from graphdbg.toolkit.live.eager import run_graph
from graphdbg.toolkit.numerics.comparison import Noise, compare

NAN, INF = float("nan"), float("inf")


def row(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu])
def test_numbers_of_8_bits_are_asked_too(dtype: torch.dtype) -> None:
    narrow = [row(1.0, 2.0).to(dtype), row(1.0, NAN).to(dtype)]
    assert [compare([row(1.0, 2.0).double()], narrow[:1], [got]) is None for got in narrow] == [True, False]


@pytest.mark.parametrize(
    ("eager", "got", "detail"),
    [
        (NAN, INF, "no nan"),
        (NAN, 2.0, "no nan"),
        (INF, 2.0, "no inf"),
        (INF, -INF, "no inf"),
        (-INF, NAN, "no inf"),
        (2.0, INF, "inf"),
        (INF, INF, None),
        (NAN, NAN, None),
        (-INF, -INF, None),
    ],
)
def test_what_is_not_finite_must_be_what_eager_and_float64_have(eager: float, got: float, detail: str | None) -> None:
    comparison = compare([row(1.0, eager).double()], [row(1.0, eager)], [row(1.0, got)])
    assert (None if comparison is None else (comparison.kind, comparison.detail)) == (
        None if detail is None else ("nan", detail)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("eager", [NAN, INF])
def test_on_a_gpu_eagers_nan_is_compared_with_a_float64_run_that_lies_on_the_cpu(eager: float) -> None:
    comparison = compare([row(1.0, eager).double()], [row(1.0, eager).cuda()], [row(1.0, 2.0).cuda()])
    assert comparison is not None and comparison.detail == f"no {eager}"


def test_an_overflow_that_float64_does_not_have_is_not_asked_for() -> None:
    assert compare([row(70000.0).double()], [row(INF).half()], [row(60000.0).half()], check=["nan"]) is None
    assert compare(None, [row(INF)], [row(2.0)], check=["nan"]) is None


def test_an_overflow_of_eagers_alone_differs_by_rounding() -> None:
    for eager, seen in ((INF, 70000.0), (NAN, 2.0), (INF, NAN)):
        three = [row(70000.0, 1.0).double()], [row(eager, 1.0)], [row(seen, 1.0)]
        comparison = compare(*three, rounding=(0,))
        assert comparison is not None and (comparison.detail, comparison.size) == ("rounding", 0.5)
        assert compare(*three) is None


@pytest.mark.parametrize("beyond", [INF, NAN])
def test_as_many_beyond_float64_as_eager_has_itself_differ_by_rounding(beyond: float) -> None:
    truth, eager = row(2.0, 3.0, -INF).double(), row(beyond, 3.0, -INF)
    comparison = compare([truth], [eager], [row(2.0, beyond, -INF)], rounding=(0,))
    assert comparison is not None and comparison.detail == "rounding"
    many = compare([row(2.0, 3.0, 4.0).double()], [row(beyond, 3.0, 4.0)], [row(2.0, beyond, beyond)], check=["nan"])
    assert many is not None and many.detail == str(beyond)
    missing = compare([truth], [eager], [row(2.0, beyond, 1.0)], rounding=(0,), check=["nan"])
    assert missing is not None and missing.detail == "no inf"


def test_what_rounding_decides_is_not_missing() -> None:
    three = [row(INF).double()], [row(INF)], [row(1e30)]
    assert compare(*three, check=["nan"]) is not None
    assert compare(*three, check=["nan"], noise=lambda output: Noise(1)) is None


def test_the_sign_of_a_zero_counts_where_float64_has_eagers() -> None:
    comparison = compare([row(-0.0, 1.0).double()], [row(-0.0, 1.0)], [row(0.0, 1.0)])
    assert comparison is not None
    assert (comparison.kind, comparison.detail) == ("accuracy", "signed zero")
    assert "the first is -0.0 in eager" in comparison.text
    assert compare([row(0.0).double()], [row(-0.0)], [row(0.0)]) is None
    assert compare([row(-1e-60, dtype=torch.float64)], [row(-0.0)], [row(0.0)]) is None
    worse = compare([row(-0.0, 1.0).double()], [row(-0.0, 1.0)], [row(0.0, 2.0)])
    assert worse is not None
    assert worse.detail == ""


def test_rounding_decides_nothing_where_nothing_is_rounded() -> None:
    def clamped(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(x > 1e30, 9.223372036854775807e18, x).long(), torch.log(torch.relu(-x))]

    x = row(INF, 2.0, 1.0)
    gm = make_fx(clamped)(x)
    truth = reference(gm, [x])
    assert not isinstance(truth, NoReference)
    assert [
        item.flips for item in noise(gm, [x], truth, lambda wide, given, hook: run_graph(wide, given, hook=hook))
    ] == [0, 0]
    half = make_fx(lambda x: [torch.log(x * 0.1 - 0.1)])(row(1.0))
    truth = reference(half, [row(1.0)])
    assert not isinstance(truth, NoReference)
    assert (
        noise(half, [row(1.0)], truth, lambda wide, given, hook: run_graph(wide, given, hook=hook))[0].flips
        == ALLOWANCE
    )


def test_an_overflow_that_rounding_decides_convicts_nobody() -> None:
    near, far = row(65500.0, dtype=torch.float64), row(900.0, dtype=torch.float64)
    moved = Noise(0, torch.tensor([40.0], dtype=torch.float64))
    half = row(65500.0, dtype=torch.float16)
    assert compare([near], [half], [row(INF, dtype=torch.float16)], noise=lambda output: moved) is None
    comparison = compare([near], [half], [row(INF, dtype=torch.float16)], noise=lambda output: moved, rounding=(0,))
    assert comparison is not None
    assert comparison.detail == "rounding"
    wrong = compare(
        [far], [row(900.0, dtype=torch.float16)], [row(INF, dtype=torch.float16)], noise=lambda output: moved
    )
    assert wrong is not None
    assert wrong.detail == "inf"
