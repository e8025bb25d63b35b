# pyright: basic
"""The user's own Triton kernels on CPU tensors: launched, judged under rungs, refused where nothing can run them."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import msgspec
import torch
import triton
import triton.language as tl

from graphdbg.dumps import live, trust
from graphdbg.dumps.schema import GraphRecord
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live import gpu_only
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from graphdbg.toolkit.rungs import rung
from graphdbg.toolkit.triton.user_kernels import interpreting


@triton.jit
def doubled(x):
    return x + x


@triton.autotune(configs=[triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 4})], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
@triton.jit
def kernel(x, out, n, shift, BLOCK: tl.constexpr, EVEN: tl.constexpr, MASKED: tl.constexpr = True):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = doubled(tl.load(x + at, at < n)) + shift
    if EVEN:
        value = -value
    if MASKED:
        tl.store(out + at, value, at < n)
    else:
        tl.store(out + at, value)


@pytest.mark.parametrize("count", [5, 6])
def test_a_launch_on_cpu_tensors_is_interpreted(count: int) -> None:
    x, out = torch.arange(float(count)), torch.zeros(count)
    with interpreting():
        kernel[lambda meta: (triton.cdiv(count, meta["BLOCK"]),)](x, out, count, shift=0.5)
    sign = -1 if count % 2 == 0 else 1
    assert torch.equal(out, sign * (2 * x + 0.5))


def test_an_access_out_of_bounds_is_told_and_harms_nothing() -> None:
    x, out = torch.ones(5), torch.zeros(5)
    with interpreting(), pytest.raises(Exception, match="store out of bounds: element 5 of out, whose storage has 5"):
        kernel[(1,)](x, out, 5, 0.5, MASKED=False)


def test_everything_is_put_back() -> None:
    from triton.runtime import Autotuner, JITFunction, driver

    before = JITFunction.run, Autotuner.run, JITFunction.__call__, getattr(driver, "_active", None)
    with interpreting():
        kernel[(1,)](torch.ones(2), torch.ones(2), 2, 0.0)
        assert before[0] is not JITFunction.run
    assert before == (JITFunction.run, Autotuner.run, JITFunction.__call__, getattr(driver, "_active", None))


@pytest.fixture(scope="module")
def record() -> GraphRecord:
    from ...dumps import triton_models as models
    from ...dumps.test_triton_kernels import captured

    return live.encode(captured(models.Tuned(), torch.randn(5, 9)), id="0_0/dynamo", stage="dynamo")


@pytest.mark.parametrize("name", ["eager", "decomposed", "triton_interpret"])
def test_rungs_that_run_it_agree_with_eager(record: GraphRecord, name: str) -> None:
    with trust.granted(), interpreting():
        gm, _, _ = live.fake_module(msgspec.json.decode(msgspec.json.encode(record), type=GraphRecord), None)
        outcome = judge(Live(gm, [torch.randn(5, 9)], ReplaySpec("dynamo")), name)
    assert outcome.text == "ok"


@pytest.mark.parametrize("name", ["inductor", "inductor_nofuse", "aot_inductor"])
def test_rungs_that_cannot_run_it_on_the_cpu_say_so(record: GraphRecord, name: str) -> None:
    with trust.granted():
        gm, _, _ = live.fake_module(record, None)
        assert gpu_only.notes(gm) == [
            f"no independent reference for {kernel}: eager runs on the interpreter too" for kernel in ("tuned", "add")
        ]
        reason = rung(name).cannot_take(gm, ReplaySpec("dynamo"))
    assert reason is not None
    assert "cannot call the Triton kernels tuned, add of the user's; --rung triton_interpret can" in reason
