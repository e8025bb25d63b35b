# pyright: basic
"""Where a kernel stands under the roofline of the GPU at hand: bytes over bandwidth, operations over peak.

The ceilings are measured on the spot, in the same conditions as the kernel: a copy of a large tensor, a large product
of two matrices for each dtype, the shortest launch. Source of the model: Williams, Waterman, Patterson, Roofline: An
Insightful Visual Performance Model, CACM 52(4), 2009. Importing this module imports no torch.

>>> placed(21.4e-6, 67_100_000, 16_800_000, "fp32", Ceilings("a GPU", 90, 3.97e12, {"fp32": 50e12}, 2e-6)).bound
'memory'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

COPY_BYTES = 1 << 30
MATRIX = 8192
SMALL_MEMORY = 8 << 30
SHORTEST = 2.0
"""A kernel that takes less than so many times the shortest launch is bound by neither."""


class Ceilings(msgspec.Struct, frozen=True):
    """Of one GPU: bytes a second read plus written, operations a second by kind ("bf16", "fp16", "tf32", "fp32",
    "fp64"), seconds that a launch takes at least."""

    device: str
    capability: int
    bandwidth: float
    peaks: dict[str, float]
    launch_s: float


class KernelBound(msgspec.Struct, frozen=True):
    """One kernel. Shares are of the measured ceilings; None: not known. `bound`: "memory", "compute", "launch" or
    ""."""

    seconds: float
    bytes: int | None
    flops: int | None
    kind: str
    bandwidth: float | None
    bandwidth_share: float | None
    rate: float | None
    rate_share: float | None
    intensity: float | None
    bound: str


def placed(seconds: float, moved: int | None, flops: int | None, kind: str, ceilings: Ceilings) -> KernelBound:
    """The place of a kernel that moves so many bytes and does so many operations of a kind in `seconds`."""
    peak = ceilings.peaks.get(kind)
    bandwidth = moved / seconds if moved is not None else None
    rate = flops / seconds if flops is not None else None
    intensity = flops / moved if flops is not None and moved else None
    bound = ""
    if seconds < SHORTEST * ceilings.launch_s:
        bound = "launch"
    elif intensity is not None and peak:
        bound = "memory" if intensity < peak / ceilings.bandwidth else "compute"
    return KernelBound(
        seconds,
        moved,
        flops,
        kind,
        bandwidth,
        bandwidth / ceilings.bandwidth if bandwidth is not None else None,
        rate,
        rate / peak if rate is not None and peak else None,
        intensity,
        bound,
    )


_DOT = re.compile(r"\btl\.dot(?:_scaled)?\s*\(")
_PLAIN = re.compile(
    r"input_precision\s*=\s*[\"']ieee[\"']|allow_tf32\s*=\s*False|ALLOW_TF32\s*:\s*tl\.constexpr\s*=\s*False"
)


def kind_of(source: str, dtypes: Iterable[str]) -> str:
    """Which peak is a kernel's: of tensor cores by its narrowest floating-point input where it calls `tl.dot`, else of
    the widest type that it works in, at least float32."""
    known = set(dtypes)
    if "float64" in known or "complex128" in known:
        return "fp64"
    if not _DOT.search(source):
        return "fp32"
    if "bfloat16" in known:
        return "bf16"
    if "float16" in known:
        return "fp16"
    return "fp32" if _PLAIN.search(source) else "tf32"


def measured(bench: Callable[[Callable[[], object]], float]) -> Ceilings:
    """Measures the GPU that is device 0; `bench` gives the seconds of a call. Takes a few seconds. Puts settings
    back."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    small = properties.total_memory < SMALL_MEMORY
    ones = torch.ones(COPY_BYTES // (8 if small else 1) // 4, device="cuda")
    copy = torch.empty_like(ones)
    bandwidth = 2 * ones.nbytes / bench(lambda: copy.copy_(ones))
    launch_s = bench(lambda: copy[:1].zero_())
    peaks = {}
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for kind, dtype, tf32, share in (
            ("bf16", torch.bfloat16, False, 1),
            ("fp16", torch.float16, False, 1),
            ("tf32", torch.float32, True, 1),
            ("fp32", torch.float32, False, 2),
            ("fp64", torch.float64, False, 4),
        ):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            size = MATRIX // (2 if small else 1) // share
            left, right = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
            matrix = torch.empty(size, size, device="cuda", dtype=dtype)
            peaks[kind] = (
                2 * size**3 / bench(lambda left=left, right=right, matrix=matrix: torch.mm(left, right, out=matrix))
            )
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return Ceilings(properties.name, properties.major * 10 + properties.minor, bandwidth, peaks, launch_s)
