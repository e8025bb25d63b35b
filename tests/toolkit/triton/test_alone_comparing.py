"""What is called wrong in a kernel's result: one element, a NaN, an integer; and what is rounding."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from graphdbg.toolkit.launching import alone
from graphdbg.toolkit.launching.alone import against_interpreter, flat, view
from graphdbg.toolkit.launching.launches import TensorLayout

OLD = torch.zeros(1000)
WANT = torch.linspace(-2, 2, 1000)


def test_a_few_roundings_are_right_and_one_far_element_is_wrong() -> None:
    near = WANT * (1 + 4 * torch.finfo(torch.float32).eps)
    assert against_interpreter(OLD, WANT, WANT.clone()).error == 0.0
    result = against_interpreter(OLD, WANT, near)
    assert result.ok and 0 < result.error < result.tolerance
    far = WANT.clone()
    far[500] += 1e-4
    result = against_interpreter(OLD, WANT, far)
    assert not result.ok and result.why == "1 of 1000 elements far off"


HALVES = [(torch.bfloat16, 1, True), (torch.bfloat16, 8, False), (torch.float16, 1, True), (torch.float16, 8, False)]


@pytest.mark.parametrize(("dtype", "steps", "right"), HALVES)
def test_half_precision_may_be_one_rounding_off(dtype: torch.dtype, steps: int, right: bool) -> None:
    want = torch.full((64,), 1.5, dtype=dtype)
    have = want.clone()
    have[7] += steps * torch.finfo(dtype).eps
    assert against_interpreter(torch.zeros_like(want), want, have).ok is right


def test_a_nan_in_one_of_the_two_is_wrong_and_in_both_is_right() -> None:
    want, have = WANT.clone(), WANT.clone()
    want[3] = have[3] = float("nan")
    assert against_interpreter(OLD, want, have).ok
    have[4] = float("inf")
    assert "1 of 1000 elements are NaN or Inf" in against_interpreter(OLD, want, have).why


def test_what_nobody_wrote_does_not_count_and_a_write_beside_it_does() -> None:
    old = torch.full((1000,), 1e30)
    want = old.clone()
    want[:10] = 1e-3
    have = want.clone()
    have[:10] *= 1 + 1e-3
    assert not against_interpreter(old, want, have).ok  # 1e30 is not the scale of what was written
    beside = want.clone()
    beside[900] = 0.0
    assert not against_interpreter(old, want, beside).ok


def test_integers_are_equal_but_for_what_rounding_decides() -> None:
    old, want = torch.zeros(10, dtype=torch.int64), torch.arange(10)
    have = want.clone()
    have[5] = 0
    assert not against_interpreter(old, want, have).ok
    moved = have.clone()
    moved[6] = 0
    assert against_interpreter(old, want, have, moved).ok
    assert not against_interpreter(old, want, have, have.clone()).ok


def test_noise_is_allowed_where_the_result_itself_moves_as_much() -> None:
    want = torch.full((8,), 1e-9)
    have = want + 3e-10
    assert not against_interpreter(torch.zeros(8), want, have).ok
    result = against_interpreter(torch.zeros(8), want, have, have + 2e-10)
    assert result.ok and "rounding" in result.why
    assert not against_interpreter(torch.zeros(8), want, want + 1e-6, want + 1e-6 + 2e-10).ok


@pytest.mark.parametrize(("source", "excused"), [("tl.store(p, x)", False), ("tl.atomic_add(p, x)", True)])
def test_a_kernel_that_races_is_not_excused_by_rounding(
    source: str, excused: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    winners = itertools.cycle([1.0, 2.0, 2.0])  # which of two threads writes last
    as_bytes = lambda value: torch.full((4,), value).view(torch.uint8)  # noqa: E731
    monkeypatch.setattr(alone, "require", lambda _: None)
    monkeypatch.setattr(alone, "loaded", lambda *_: None)
    monkeypatch.setattr(alone, "restricted", lambda *_: None)
    monkeypatch.setattr(alone, "run", lambda *_: {0: as_bytes(next(winners))})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    layout = TensorLayout("float32", (4,), (1,), 0, 0)
    written = SimpleNamespace(argument="out", buffer="buf0", node="sum_1", eager="", truth="")
    storage = SimpleNamespace(before="b", after="a")
    launch: Any = SimpleNamespace(kernel="k", written=[written], tensors={"out": layout}, storages=[storage])
    tensors = {"b": as_bytes(0.0).numpy().tobytes(), "a": as_bytes(1.5).numpy().tobytes()}
    known: Any = SimpleNamespace(source=lambda _: source, tensors=tensors)
    monkeypatch.setattr(alone.JudgedLaunch, "of", lambda launch, where, rows: rows)
    (row,) = cast("list[Any]", alone.launched(launch, known, tmp_path))
    assert row.interpreter.ok is excused


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.bool, torch.complex64])
def test_every_dtype_of_an_argument_is_compared(dtype: torch.dtype) -> None:
    data = torch.ones(64, dtype=torch.uint8)
    want, have, old = flat(data, dtype), flat(data.clone(), dtype), flat(torch.zeros(64, dtype=torch.uint8), dtype)
    assert against_interpreter(old, want, have).ok
    assert not against_interpreter(old, want, old).ok


def test_a_view_of_bytes() -> None:
    data = bytes(memoryview(torch.arange(12, dtype=torch.float32).numpy()))
    assert torch.equal(
        view(data, TensorLayout("float32", (2, 3), (1, 4), 1, 0)), torch.tensor([[1.0, 5, 9], [2, 6, 10]])
    )
    assert view(b"", TensorLayout("float32", (0,), (1,), 0, 0)).shape == (0,)
