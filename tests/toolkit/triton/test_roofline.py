"""Where a kernel stands under measured ceilings, and which peak is its own."""

from __future__ import annotations

import pytest

from graphdbg.toolkit.launching.asking import Against, Argument, Ceilings, JudgedLaunch, kind_of, placed, report

LIMITS = Ceilings("a GPU", 90, 4e12, {"fp32": 50e12, "bf16": 700e12}, 2e-6)


def test_bytes_and_operations_over_time_and_ceilings() -> None:
    place = placed(20e-6, 40_000_000, 10_000_000, "fp32", LIMITS)
    assert (place.bandwidth, place.bandwidth_share) == (pytest.approx(2e12), pytest.approx(0.5))
    assert (place.rate, place.rate_share) == (pytest.approx(5e11), pytest.approx(0.01))
    assert (place.intensity, place.bound) == (0.25, "memory")


@pytest.mark.parametrize(
    ("seconds", "moved", "flops", "kind", "bound"),
    [
        (20e-6, 1_000_000, 12_400_000, "fp32", "memory"),  # the ridge is at 12.5 operations for a byte
        (20e-6, 1_000_000, 12_600_000, "fp32", "compute"),
        (20e-6, 1_000_000, 12_600_000, "bf16", "memory"),
        (3.9e-6, 1_000_000, 12_600_000, "fp32", "launch"),
        (20e-6, 1_000_000, None, "fp32", ""),
        (20e-6, None, 5, "fp32", ""),
        (20e-6, 0, 5, "fp32", ""),
        (20e-6, 10, 5, "tf32", ""),
    ],
)
def test_what_binds(seconds: float, moved: int | None, flops: int | None, kind: str, bound: str) -> None:
    assert placed(seconds, moved, flops, kind, LIMITS).bound == bound


DOT = "acc = tl.dot(a, b, acc, allow_tf32=ALLOW_TF32)"


@pytest.mark.parametrize(
    ("source", "dtypes", "kind"),
    [
        ("tl.store(out_ptr0, x)", ["bfloat16"], "fp32"),
        ("tl.store(out_ptr0, x)", ["float32", "float64"], "fp64"),
        (DOT, ["bfloat16", "float32"], "bf16"),
        (DOT, ["float16"], "fp16"),
        (DOT, ["float32"], "tf32"),
        ("tl.dot(a, b, input_precision='ieee')", ["float32"], "fp32"),
        ("ALLOW_TF32 : tl.constexpr = False\n" + DOT, ["float32"], "fp32"),
        ("# no tl.dotted", ["float32"], "fp32"),
    ],
)
def test_the_peak_is_that_of_the_units_that_a_kernel_uses(source: str, dtypes: list[str], kind: str) -> None:
    assert kind_of(source, dtypes) == kind


def test_the_report_of_one_launch() -> None:
    judged = JudgedLaunch(
        "triton_red_fused_sum_1", 4, 1, 1, (512, 1, 1), "XBLOCK=64 warps=8 stages=1", "a GPU", ["sum_1"]
    )
    right = Against(0.0, 7.6e-6, True)
    judged.arguments = [Argument("out_ptr0", "buf3", "sum_1", "f32[4096]", right, Against(3.1e-7, 1e-5, True))]
    judged.place = placed(21.4e-6, 67_100_000, 16_800_000, "fp32", LIMITS)
    assert report(judged, LIMITS).splitlines() == [
        "triton_red_fused_sum_1, launch 1 of 1, grid (512,1,1), XBLOCK=64 warps=8 stages=1   a GPU",
        "out_ptr0 = buf3 = node sum_1  f32[4096]  interpreter 0 (tolerance 7.6e-06) · eager 3.1e-07 "
        "(tolerance 1e-05)   ok",
        "time      21.4 us (do_bench, median)",
        "bytes     64.0 MiB -> 3.14 TB/s, 78% of 4.00 TB/s measured here     FLOPs 16.8M, 0.25 per byte, "
        "1.6% of the fp32 peak"
        " -> memory bound",
    ]
    assert judged.ok
    judged.arguments[0].interpreter = Against(0.5, 7.6e-6, False, "3 of 4096 elements far off")
    assert (
        not judged.ok
        and "3 of 4096 elements far off" in report(judged)
        and report(judged).splitlines()[1].endswith("DIFFERS")
    )
