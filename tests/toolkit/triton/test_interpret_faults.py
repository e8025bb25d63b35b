"""What goes wrong inside an interpreted kernel is told with the kernel's name and line; what cannot be run says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from graphdbg.toolkit.rungs import CannotRun
from graphdbg.toolkit.triton.interpreting import session as sessions
from graphdbg.toolkit.triton.interpreting.builder import BUILDER
from graphdbg.toolkit.triton.interpreting.language import interpreted
from graphdbg.toolkit.triton.interpreting.launching import KernelError, run
from graphdbg.toolkit.triton.interpreting.memory import Memory

from .interpreted import run as compiled

ONE = (1, 1, 1)


@triton.jit
def reads_behind(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, BLOCK)
    value = tl.load(source + place)
    tl.store(target + place, value)


@triton.jit
def never_ends(target):  # type: ignore[no-untyped-def]
    while tl.load(target) == 0.0:
        tl.debug_barrier()


@triton.jit
def says_not(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, BLOCK)
    value = tl.load(source + place)
    half = 0.5
    low = not (value > half)
    tl.store(target + place, tl.where(low, half, value))


@triton.jit
def odd_assembly(target):  # type: ignore[no-untyped-def]
    value = tl.inline_asm_elementwise(
        "brev.b32 $0, $1;", "=r,r", [tl.load(target)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(target, value)


def interpret(kernel: Any, grid: tuple[int, int, int] = ONE, **arguments: Any) -> None:
    with interpreted():
        run(kernel.fn, arguments, {name for name in arguments if name.isupper()}, grid, Memory())


def test_an_access_out_of_bounds_names_kernel_line_and_argument() -> None:
    with pytest.raises(KernelError) as caught:
        interpret(reads_behind, source=torch.zeros(5), target=torch.zeros(8), BLOCK=8)
    text = str(caught.value)
    assert "load out of bounds: element 5 of source, whose storage has 5 (3 lanes)" in text
    assert "kernel reads_behind, line " in text
    assert "value = tl.load(source + place)" in text


def test_an_index_out_of_range_is_a_failed_assertion_of_the_kernel() -> None:
    table = torch.zeros(5)
    with pytest.raises(KernelError, match=r"index out of bounds: .*kernel triton_\w+, line \d+: tl.device_assert"):
        compiled(lambda table, at: table[at] + 1, table, torch.tensor([1, 7]), traced=[table, torch.tensor([1, 2])])


def test_a_loop_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BUILDER, "patience", 50)
    with pytest.raises(KernelError, match=r"50 times: a loop does not end \(kernel never_ends"):
        interpret(never_ends, target=torch.zeros(1))


def test_not_of_a_block_and_a_number_that_is_assigned() -> None:
    target = torch.zeros(4, dtype=torch.bfloat16)
    interpret(says_not, source=torch.tensor([0.0, 0.25, 1.0, 2.0]).bfloat16(), target=target, BLOCK=4)
    assert target.tolist() == [0.5, 0.5, 1.0, 2.0]


def test_unknown_inline_assembly_is_no_failure_of_the_kernel() -> None:
    with pytest.raises(CannotRun, match=r"brev\.b32"):
        interpret(odd_assembly, target=torch.zeros(1, dtype=torch.int32))


def test_a_run_of_too_many_programs_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "LIMIT", 3)
    with pytest.raises(CannotRun, match=r"run 40 programs up to triton_\w+ \(launch 1\), and more than 3 take"):
        compiled(lambda x: x.sum(-1), torch.zeros(40, 300), triton__persistent_reductions=True)


def test_everything_is_put_back() -> None:
    before = tl.load, tl.reduce, tl.tensor.__init__, tl.block_type.__init__
    initialized = torch.cuda.is_initialized()
    compiled(lambda x: x + 1, torch.zeros(4))
    assert (tl.load, tl.reduce, tl.tensor.__init__, tl.block_type.__init__) == before
    assert torch.cuda.is_initialized() == initialized
    if torch.cuda.is_available():
        return
    with pytest.raises((RuntimeError, AssertionError, NotImplementedError)):
        torch.empty(1, device="cuda")


def test_a_number_of_bfloat16_is_rounded_as_torch_does() -> None:
    """Triton's own interpreter has no such constants (3.6.0): a bfloat16 tensor times a Python number needs one."""
    from graphdbg.toolkit.triton.interpreting.builder import BUILDER

    handle = BUILDER.get_bf16(1.00390625)
    assert int(handle.data[0]) == torch.tensor(1.00390625).bfloat16().view(torch.int16).item()
