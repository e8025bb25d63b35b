# pyright: basic
"""What is seen of small kernels: races and what orders them, memory of other widths, NaN that is born and such that is
not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton")

import torch
import triton
import triton.language as tl

from graphdbg.toolkit.kernel_checks.findings import KernelFault
from graphdbg.toolkit.kernel_checks.tracking import checking_builder
from graphdbg.toolkit.kernel_checks.watching import Checking
from graphdbg.toolkit.kernel_checks.wrapper import Wrappers
from graphdbg.toolkit.triton.interpreting import launching
from graphdbg.toolkit.triton.interpreting.language import interpreted
from graphdbg.toolkit.triton.interpreting.memory import Memory
from graphdbg.toolkit.triton.interpreting.session import InterpretedLaunch


def checked(
    kernel: Any, grid: int, *tensors: torch.Tensor, fresh: tuple[int, ...] = (), **constants: Any
) -> dict[str, KernelFault]:
    """The first finding or note of each kind. `fresh`: which tensors hold nothing yet."""
    function = kernel.fn
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    arguments = {**dict(zip(names, tensors, strict=False)), **constants}
    checking = Checking(Wrappers())
    for place in fresh:
        checking.allocated(tensors[place])
    launch = InterpretedLaunch(
        function.__name__,
        0,
        arguments,
        set(constants),
        (grid, 1, 1),
        None,
        {},
        function,
        SimpleNamespace(inductor_meta={}),
    )
    with interpreted(), checking_builder(checking):
        launch.memory = Memory(checking.before(launch))
        launching.run(function, arguments, set(constants), launch.grid, launch.memory, {})
        checking.after(launch)
    return {finding.kind: finding for finding in reversed(checking.findings())}


@triton.jit
def neighbour(x, y):
    at = tl.program_id(0)
    tl.store(x + at, at + 1.0)
    tl.store(y + at, tl.load(x + (at + 3) % 4))


@triton.jit
def ordered(x, y, flag):
    at = tl.program_id(0)
    tl.store(x + at, at + 1.0)
    tl.atomic_add(flag, 1, sem="release")
    tl.atomic_add(flag, 0, sem="acquire")
    tl.store(y + at, tl.load(x + tl.maximum(at - 1, 0)))


@triton.jit
def counted(x):
    tl.atomic_add(x + tl.arange(0, 8) % 2, 1.0)


@triton.jit
def same(x):
    tl.store(x, 3.0)


@triton.jit
def lanes(x):
    at = tl.arange(0, 8)
    tl.store(x + at % 4, at * 1.0)


@triton.jit
def copied(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at))


@triton.jit
def logarithm(x, y, KEEP: tl.constexpr):
    at = tl.arange(0, 4)
    value = tl.load(x + at)
    tl.store(y + at, tl.where(value > 0, tl.log(value), 0.0) if KEEP else tl.log(value))


@triton.jit
def overflowing(x, y, TIMES: tl.constexpr):
    at = tl.arange(0, 4) + 1
    tl.store(y + at - 1, tl.load(x + (at * TIMES) % 4))


def test_a_value_that_another_program_wrote() -> None:
    result = checked(neighbour, 4, torch.zeros(4), torch.zeros(4))
    assert set(result) == {"read-write"}
    assert "(at + 3) % 4" in result["read-write"].text
    assert not checked(neighbour, 1, torch.zeros(4), torch.zeros(4))


def test_what_atomics_order_is_no_race() -> None:
    assert not checked(ordered, 4, torch.zeros(4), torch.zeros(4), torch.zeros(1, dtype=torch.int32))
    assert not checked(counted, 4, torch.zeros(2))


def test_one_value_by_all_is_a_note() -> None:
    result = checked(same, 4, torch.zeros(1))
    assert result["write-write"].note
    assert result["write-write"].programs == 3


def test_two_lanes_of_one_store() -> None:
    result = checked(lanes, 1, torch.zeros(4))
    assert (result["lanes"].first_lane, result["lanes"].lanes) == (0, 4)


def test_memory_that_nothing_wrote_is_known_by_bytes() -> None:
    x, y = torch.zeros(8), torch.zeros(8)
    assert checked(copied, 1, x, y, fresh=(0,), N=8)["uninitialised"].lanes == 8
    assert not checked(copied, 1, x, y, fresh=(1,), N=8)
    halves = x.view(torch.int16)
    assert checked(copied, 1, halves, y, fresh=(0,), N=16)["uninitialised"].lanes == 16


def test_accesses_beyond_the_end_do_not_stop_the_run() -> None:
    result = checked(copied, 1, torch.zeros(8), torch.zeros(6), N=8)
    assert set(result) == {"store"}
    assert (result["store"].element, result["store"].storage, result["store"].lanes) == (6, 6, 2)


def test_a_nan_that_no_lane_keeps_is_not_born() -> None:
    x = torch.tensor([1.0, -1.0, 2.0, -2.0])
    assert not checked(logarithm, 1, x, torch.zeros(4), KEEP=True)
    born = checked(logarithm, 1, x, torch.zeros(4), KEEP=False)["nan"]
    assert (born.first_lane, born.last_lane, born.lanes) == (1, 3, 2)
    assert "tl.log(value)" in born.text
    assert not checked(logarithm, 1, torch.full((4,), float("nan")), torch.zeros(4), KEEP=False)


def test_an_overflow_counts_where_it_reaches_an_address() -> None:
    result = checked(overflowing, 1, torch.zeros(4), torch.zeros(4), TIMES=1 << 30)
    assert set(result) - {"load"} == {"overflow"}
    assert not checked(overflowing, 1, torch.zeros(4), torch.zeros(4), TIMES=1 << 20)
