"""Two programs' numbers are compared where the text around them is the same; what eager itself does not repeat is left out."""

from __future__ import annotations

import pytest

from graphdbg.toolkit.triage.texts import departures, nan_lines

TRAINING = "".join(f"step {step}: loss {2.0 - step / 100:.4f} lr 1e-3\n" for step in range(50))


def test_the_first_departing_line_is_named() -> None:
    wrong = TRAINING.replace("loss 1.6600", "loss 2.3100")
    found = departures(TRAINING, TRAINING, wrong).first
    assert found is not None
    assert (found.line, found.expected, found.got) == (35, 1.66, 2.31)
    assert found.place == "step #: loss # lr #"


def test_equal_texts_do_not_depart() -> None:
    found = departures(TRAINING, TRAINING, TRAINING)
    assert found.first is None
    assert found.compared == 150


@pytest.mark.parametrize(
    ("one", "again", "other"),
    [
        ("loss 2.0 took 3.2s", "loss 2.0 took 3.2s", "loss 2.0 took 48.9s"),
        ("loss 2.0, 120 ms/it", "loss 2.0, 120 ms/it", "loss 2.0, 9 ms/it"),
        ("12:00:01 loss 2.0", "12:00:01 loss 2.0", "13:44:59 loss 2.0"),
        ("2026-01-02 loss 2.0", "2026-01-02 loss 2.0", "2026-01-03 loss 2.0"),
        ("loss 2.0 1,234 tok/s", "loss 2.0 1,234 tok/s", "loss 2.0 99 tok/s"),
        ("run 7712 loss 2.0", "run 8813 loss 2.0", "run 99 loss 2.0"),
        ("loss 2.0", "loss 2.0", "warning 3\nloss 2.0"),
        ("loss 2.0", "loss 2.0", "loss 2.0001"),
        ("loss 2.000", "loss 2.001", "loss 2.025"),
        ("grad 1.0\ngrad 1e-9", "grad 1.0\ngrad 1e-9", "grad 1.0\ngrad 3e-9"),
        ("loss nan", "loss nan", "loss 2.0"),
    ],
)
def test_what_says_nothing_about_the_compiler_is_no_departure(one: str, again: str, other: str) -> None:
    assert departures(one, again, other).first is None


def test_a_nan_that_eager_does_not_print_is_one() -> None:
    found = departures("loss 2.0", "loss 2.0", "loss nan").first
    assert found is not None
    assert found.is_nan
    assert nan_lines("loss 2.0\nloss nan\n") == [(2, "loss nan")]


def test_places_that_differ_between_two_eager_runs_are_listed() -> None:
    assert departures("run 7712 loss 2.0", "run 8813 loss 2.0", "run 99 loss 2.0").noisy == ["run # loss #"]


def test_texts_too_long_for_a_diff_are_aligned_by_count() -> None:
    eager = "".join(f"step {step} loss 1.0\n" for step in range(2500))
    assert (
        departures(eager, eager, "one line more 1\n" + eager.replace("2400 loss 1.0", "2400 loss 7.0")).first
        is not None
    )
