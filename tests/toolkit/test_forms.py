"""The form of a wrong result keeps a search at one bug, and lets true reductions through."""

from __future__ import annotations

import msgspec
import pytest
import torch

from graphdbg.toolkit.numerics.comparison import compare
from graphdbg.toolkit.verdicts.signature import Form, Signature, alike


def form_between(exact: torch.Tensor, got: torch.Tensor) -> Form:
    eager = exact.float() if exact.is_floating_point() else exact
    comparison = compare([exact], [eager], [got])
    assert comparison is not None
    assert comparison.form is not None
    return comparison.form


X = torch.linspace(1, 2, 200, dtype=torch.float64)


def test_a_constant_factor_is_read_and_one_that_is_none_is_not() -> None:
    assert form_between(X, X.float() * 1.5).factor == pytest.approx(1.5, rel=1e-5)
    assert form_between(X, X.float() + 0.5).factor is None
    few = X.float().clone()
    few[:3] *= 2
    result = form_between(X, few)
    assert (result.factor, result.count) == (None, 200)
    assert result.wrong == pytest.approx(0.015)
    assert result.over > 100


def test_integers_that_are_all_off_by_one() -> None:
    counted = torch.arange(20)
    assert form_between(counted, counted + 1).offset == 1
    assert form_between(counted, counted.flip(0)).offset is None
    assert form_between(counted > 5, counted > 15).offset is None


@pytest.mark.parametrize(
    ("wanted", "result", "same"),
    [
        (Form(600, 1.0, 1e5, factor=2.0), Form(64, 1.0, 1e5, factor=2.0), True),
        (Form(600, 1.0, 1e5, factor=2.0), Form(64, 1.0, 1e5, factor=0.5), True),
        (Form(600, 1.0, 1e5, factor=2.0), Form(64, 1.0, 1e5, factor=1.1), False),
        (Form(600, 1.0, 1e5), Form(64, 0.1, 1e4, factor=1.1), True),
        (Form(600, 1.0, 1e5), Form(64, 0.1, 1.5), False),
        (Form(600, 1.0, 5.0), Form(64, 0.1, 1.5), True),
        (Form(600, 1.0, 1e5), Form(64, 0.1), True),
        (Form(600, 0.01, 1e5), Form(64, 1.0, 1e5), False),
        (Form(600, 0.01, 1e5), Form(4, 1.0, 1e5), True),
        (Form(20, 1.0, offset=1), Form(8, 1.0, offset=-1), True),
        (Form(20, 1.0, offset=1), Form(8, 1.0, offset=3), False),
        (None, Form(8, 1.0, offset=3), True),
    ],
)
def test_what_both_say_sharply_must_agree(wanted: Form | None, result: Form | None, same: bool) -> None:
    assert alike(wanted, result) is same
    item, other = (Signature("accuracy", "compare", size=0.5, form=form) for form in (wanted, result))
    assert item.same_as(other) is same


def test_non_finite_kinds_of_one_origin_are_one_and_weak_kinds_stay_apart() -> None:
    def nan(detail: str) -> Signature:
        return Signature("nan", "compare", detail=detail)

    assert nan("nan").same_as(nan("inf"))
    assert not nan("nan").same_as(nan("no nan"))
    wrong = Signature("accuracy", "compare", size=0.5)
    assert wrong.same_as(Signature("accuracy", "compare", detail="integers", size=0.5))
    for weak in ("signed zero", "rounding"):
        assert not wrong.same_as(Signature("accuracy", "compare", detail=weak, size=0.5))


@pytest.mark.parametrize(
    ("exact", "got"), [(0.0, 1.0), (0.0, 1e300), (1e200, 3e200), (1e-300, 5e-300), (1e308, -1e308)]
)
def test_an_error_of_any_size_is_a_finite_number_and_survives_json(exact: float, got: float) -> None:
    truth = torch.full((80,), exact, dtype=torch.float64)
    comparison = compare([truth], [truth], [torch.full((80,), got, dtype=torch.float64)])
    assert comparison is not None
    signature = Signature("accuracy", "compare", size=comparison.size, form=comparison.form)
    assert msgspec.json.decode(msgspec.json.encode(signature), type=Signature) == signature
    assert signature.same_as(signature)
    assert compare([truth], [truth], [truth.clone()]) is None
    if exact == 1e200:
        assert comparison.size == pytest.approx(2.0)
