"""Kinds of kernels that Inductor writes, interpreted beside eager: what a kernel is tried for is asserted of its
source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import torch.nn.functional as nn

from .interpreted import Seen, agree

torch.manual_seed(0)


def rand(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size).to(dtype)


def heuristics(seen: Seen) -> list[str]:
    return [str(launch.autotuner.heuristic_type).split(".")[-1] for launch in seen.launches]


Case = tuple[Callable[..., Any], list[Any], dict[str, Any], str]
"""Function, inputs, settings, and what a kernel's source must hold ("" for no more than a kernel)."""


def case(function: Callable[..., Any], *inputs: Any, holds: str = "", **settings: Any) -> Case:
    return function, list(inputs), settings, holds


BINS = torch.randint(0, 16, (200,))
EIGHT = torch.cat([rand(300) * 10, torch.tensor([0.0, -0.0, 2**-9, 2**-10, 2**-11, 3e-5, 1e-6, 0.3, 440.0])])
EVERY = torch.arange(256, dtype=torch.uint8)
COMPLEX = torch.complex(rand(8, 6), rand(8, 6))

CASES: dict[str, Case] = {
    # pointwise
    "two tiles": case(lambda x: x.transpose(0, 1).contiguous() + 1, rand(40, 24, 8)),
    "many strides": case(lambda x, y: x.permute(2, 0, 1) * y[:, None] - 1, rand(5, 6, 7), rand(7, 12)[:, ::2]),
    "storage offset": case(lambda x: x[3:, 1::2] * 2, rand(9, 12)[1:]),
    "scalars of the CPU": case(lambda x, s: x * s + 1, rand(8, 8), torch.tensor(2.5)),
    "no element": case(lambda x, y: [x + 1, y * 2], rand(0, 4), rand(3)),
    "one element": case(lambda x: (x * 2).sum(), rand(1)),
    "0-dim": case(lambda x: x.sin() + 1, rand()),
    "bool": case(lambda x, y: [x & y, x.float() + y, torch.where(x, 1, 2), x.sum(0)], rand(8, 5) > 0, rand(8, 5) > 0),
    "int8": case(lambda x: [x + x, x * 3, x.to(torch.int32) - 1], torch.randint(-128, 127, (50,), dtype=torch.int8)),
    "int64 large": case(lambda x: [x * 3, x // 7, x % 11, x >> 3], torch.tensor([2**62, -(2**62), 2**53 + 1, -5])),
    "bfloat16": case(
        lambda x, y: [x + y, x * y, (x.exp() + 1).log(), x.float()], *(rand(9, 7, dtype=torch.bfloat16) for _ in "ab")
    ),
    "float16": case(lambda x, y: [x + y, x * y, x.softmax(-1)], *(rand(9, 7, dtype=torch.float16) for _ in "ab")),
    "complex views": case(lambda x: [torch.view_as_real(x) * 2, x.real + x.imag], COMPLEX),
    "complex": case(lambda x: [x + x, x * 2, x.conj().resolve_conj(), x.abs()], COMPLEX),
    "to 8-bit floats": case(
        lambda x: [x.to(torch.float8_e4m3fn), (x * 2).to(torch.float8_e5m2), (x > 0).to(torch.float8_e5m2)], EIGHT
    ),
    "from 8-bit floats": case(
        lambda x, y: [x.float() * 2, y.to(torch.bfloat16) + 1, y.half()],
        EVERY.view(torch.float8_e4m3fn),
        EVERY.view(torch.float8_e5m2),
    ),
    "cat": case(lambda x, y: torch.cat([x.sin(), y.cos(), x * y[:, :5]], 1), rand(6, 5), rand(6, 9)),
    "stack": case(lambda x, y: torch.stack([x, y * 2], -1), rand(6, 5), rand(6, 5)),
    "pad": case(lambda x: [nn.pad(x, (1, 2, 3, 0), value=2.0), nn.pad(x, (2, 2), mode="reflect")], rand(3, 4, 5)),
    "upsample": case(
        lambda x: [
            nn.interpolate(x, scale_factor=2.0, mode="nearest"),
            nn.interpolate(x, size=(9, 7), mode="bilinear"),
        ],
        rand(2, 3, 5, 4),
    ),
    "pooling": case(
        lambda x: [nn.max_pool2d(x, 3, 2, 1), nn.avg_pool2d(x, 2), nn.adaptive_avg_pool2d(x, 3)], rand(2, 3, 9, 9)
    ),
    "flip and roll": case(lambda x: [x.flip(0), x.roll(2, 1), x.tril(1), x.unfold(1, 3, 2)], rand(6, 8)),
    # reductions
    "persistent": case(lambda x: [x.sum(-1), x.amax(-1), x.softmax(-1)], rand(37, 65), holds="R0_BLOCK: tl.constexpr"),
    "looped": case(lambda x: [x.sum(-1), x.mean(-1), x.amin(-1)], rand(5, 3000), holds="for r0_offset"),
    "outer": case(lambda x: x.sum(0), rand(300, 17)),
    "two dimensions": case(lambda x: x.sum((0, 2)), rand(9, 11, 13)),
    "split": case(lambda x: [x.sum(), x.amax()], rand(300, 1000)),
    "welford": case(lambda x: list(torch.var_mean(x, -1)), rand(9, 2000)),
    "layer norm": case(lambda x, w, b: nn.layer_norm(x, (48,), w, b), rand(10, 48), rand(48), rand(48)),
    "batch norm": case(lambda x, w, b: nn.batch_norm(x, None, None, w, b, True), rand(8, 6, 5, 5), rand(6), rand(6)),
    "group norm": case(lambda x, w, b: nn.group_norm(x, 2, w, b), rand(3, 6, 5, 5), rand(6), rand(6)),
    "std": case(lambda x: [x.std(0), x.var(unbiased=False), torch.linalg.vector_norm(x, dim=1)], rand(40, 30)),
    "argmax": case(lambda x: [x.argmax(-1), x.argmin(0), *x.max(-1), *x.min(0)], rand(20, 30).round()),
    "any and all": case(lambda x: [(x > 2).any(-1), (x > -2).all(0), (x > 0).sum()], rand(20, 30)),
    "product": case(lambda x: [x.prod(-1), (x * 2).to(torch.int64).prod(0)], rand(6, 9)),
    "xor": case(
        lambda x: [x.sum(0, dtype=torch.int64), x.amax(0)], torch.randint(-100, 100, (33, 5), dtype=torch.int32)
    ),
    "logsumexp": case(lambda x: [x.logsumexp(-1), x.log_softmax(0)], rand(20, 30)),
    "online softmax": case(lambda x: x.softmax(-1), rand(4, 5000)),
    "bfloat16 sum": case(lambda x: [x.sum(-1), x.softmax(-1), x.mean(0)], rand(20, 300, dtype=torch.bfloat16)),
    "NaN": case(
        lambda x: [x.amax(-1), x.amin(0), x.argmax(-1), *x.max(0), x.relu(), x.clamp(-1, 1), x.sum(-1)],
        torch.where(rand(7, 9) > 1, float("nan"), rand(7, 9)),
    ),
    # scans and sorts
    "cumsum": case(lambda x: [x.cumsum(-1), x.cumsum(0), x.flip(0).cumsum(0)], rand(9, 33)),
    "cumsum of integers": case(lambda x: [x.cumsum(0), x.cumprod(0)], torch.randint(-3, 4, (20, 3))),
    "cumprod": case(lambda x: x.cumprod(-1), rand(4, 20)),
    "logcumsumexp": case(lambda x: x.logcumsumexp(-1), rand(4, 20)),
    "cummax": case(lambda x: [*x.cummax(-1), *x.cummin(0)], rand(5, 20).round()),
    "looped scan": case(lambda x: x.cumsum(-1), rand(3, 5000)),
    "split scan": case(lambda x: x.cumsum(0), rand(70_000).double(), holds="exclusive_scan_decoupled_lookback"),
    "sort": case(
        lambda x: [*x.sort(stable=True, dim=-1), x.argsort(stable=True, dim=0, descending=True)], rand(6, 31).round()
    ),
    "topk": case(lambda x: x.sin().topk(3, -1)[0] * 2, rand(6, 31)),
    # indirect
    "gather": case(
        lambda x, at: [x.gather(1, at), x[at[:, 0]], x.index_select(0, at[0])], rand(8, 9), torch.randint(0, 8, (8, 4))
    ),
    "embedding": case(lambda table, at: nn.embedding(at, table), rand(11, 6), torch.randint(0, 11, (4, 3))),
    "scatter add": case(lambda x, at, y: x.scatter_add(0, at, y), rand(16), BINS, rand(200)),
    "scatter reduce": case(
        lambda x, at, y: [x.scatter_reduce(0, at, y, "amax"), x.scatter(0, at[:1], 2.0)], rand(16), BINS, rand(200)
    ),
    "index put": case(
        lambda x, at, y: x.index_put((at,), y, accumulate=True), rand(16, 3), BINS, rand(200, 3), holds="atomic_add"
    ),
    "index put float16": case(
        lambda x, at, y: x.index_put((at,), y, accumulate=True),
        torch.zeros(16, dtype=torch.float16),
        BINS,
        torch.ones(200, dtype=torch.float16),
        holds="atomic_add",
    ),
    "index put bfloat16": case(
        lambda x, at, y: x.index_put((at,), y, accumulate=True),
        torch.zeros(16, dtype=torch.bfloat16),
        BINS,
        torch.ones(200, dtype=torch.bfloat16),
    ),
    "index put int64": case(
        lambda x, at, y: x.index_put((at,), y, accumulate=True), torch.zeros(16, dtype=torch.int64), BINS, BINS * 3
    ),
    "masked fill": case(lambda x, m: [x.masked_fill(m, -1.0), torch.where(m, x, 0)], rand(8, 9), rand(8, 9) > 0),
    "bucketize": case(
        lambda x, e: [torch.bucketize(x, e), torch.searchsorted(e, x)], rand(40), torch.linspace(-1, 1, 7)
    ),
    "one hot": case(lambda at: (at[:, None] == torch.arange(16)).float().mean(0), BINS),
    # inputs that change, and that share memory
    "changed in place": case(lambda x, y: x.add_(y).mul_(2), rand(6, 7), rand(6, 7)),
    "changed part": case(lambda x: x[:, 2:4].zero_() + 1, rand(6, 7)),
    "copied": case(lambda x, y: [x.copy_(y.sin()), x + 1], rand(6, 7), rand(6, 7)),
    # libraries
    "mm": case(lambda x, y: (x @ y).relu(), rand(8, 9), rand(9, 7)),
    "conv": case(lambda x, w, b: nn.conv2d(x, w, b, padding=1).relu(), rand(2, 4, 7, 7), rand(6, 4, 3, 3), rand(6)),
    "conv, channels last": case(
        lambda x, w: nn.conv2d(x, w).relu() + 1,
        rand(2, 4, 7, 7).to(memory_format=torch.channels_last),
        rand(6, 4, 3, 3).to(memory_format=torch.channels_last),
    ),
    "transposed conv": case(lambda x, w: nn.conv_transpose2d(x, w, stride=2) * 2, rand(2, 4, 5, 5), rand(4, 3, 2, 2)),
    "conv, depthwise": case(lambda x, w: nn.conv2d(x, w, groups=4).sin(), rand(2, 4, 7, 7), rand(4, 1, 3, 3)),
    "attention": case(
        lambda q, k, v: nn.scaled_dot_product_attention(q.sin(), k, v), *(rand(2, 2, 8, 16) for _ in "qkv")
    ),
}
TEMPLATES = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}
HALF = torch.bfloat16


def foreach(*given: torch.Tensor) -> list[torch.Tensor]:
    return list(torch._foreach_add(torch._foreach_mul(list(given), 2.0), 1.0))


def adam(*given: torch.Tensor) -> list[torch.Tensor]:
    """A step of Adam on three parameters, in place."""
    weights, gradients, first, second = (list(given[place : place + 3]) for place in (0, 3, 6, 9))
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.99)
    torch._foreach_addcmul_(second, gradients, gradients, 0.01)
    below = torch._foreach_sqrt(second)
    torch._foreach_add_(below, 1e-8)
    torch._foreach_addcdiv_(weights, first, below, -0.1)
    return [weights[0] * 1]


CASES |= {
    # many tensors at once
    "foreach": case(foreach, rand(40), rand(30, 3), rand(7), holds="def triton_for_fused"),
    "Adam": case(adam, *(rand(20, 3).abs() for _ in range(12)), holds="def triton_for_fused"),
    "combined": case(lambda x, y: [x.sum(-1), y.amax(-1)], rand(40, 60), rand(30, 30), combo_kernels=True),
    # templates
    "mm template": case(lambda x, y: x @ y, rand(40, 64), rand(64, 48), holds="def triton_tem", **TEMPLATES),
    "addmm template": case(
        lambda x, y, b: torch.addmm(b, x, y).relu() * 2,
        rand(40, 64),
        rand(64, 48),
        rand(48),
        holds="tl.dot",
        **TEMPLATES,
    ),
    "bmm template": case(lambda x, y: x @ y, rand(3, 20, 32), rand(3, 32, 24), holds="tl.dot", **TEMPLATES),
    "bfloat16 template": case(
        lambda x, y: nn.gelu(x @ y / 8), rand(40, 64, dtype=HALF), rand(64, 48, dtype=HALF), holds="tl.dot", **TEMPLATES
    ),
    "int8 template": case(
        lambda x, y: torch._int_mm(x, y) * 2,
        *(torch.randint(-9, 9, size, dtype=torch.int8) for size in ((32, 64), (64, 48))),
        holds="tl.dot",
        **TEMPLATES,
    ),
    "conv template": case(
        lambda x, w: nn.conv2d(x, w, padding=1), rand(1, 16, 8, 8), rand(16, 16, 3, 3), holds="tl.dot", **TEMPLATES
    ),
    # other ways to write a kernel
    "cooperative": case(
        lambda x: x.sum(), rand(300, 400), holds="x_grid_barrier", triton__force_cooperative_reductions=True
    ),
    "cooperative rows": case(
        lambda x: [*torch.var_mean(x, -1), x.amax(-1)],
        rand(3, 40_000),
        holds="x_grid_barrier",
        triton__force_cooperative_reductions=True,
    ),
    "mixed order": case(lambda x: [x.sum(0), x.sum(1)], rand(1024, 64), triton__mix_order_reduction=True),
    "block pointers": case(lambda x, y: [x + y.t(), x.sum(0)], rand(64, 64), rand(64, 64), triton__use_block_ptr=True),
    "tensor descriptors": case(
        lambda x, y: [x + y, x.sum(1)],
        rand(64, 64),
        rand(64, 64),
        triton__use_tensor_descriptor=True,
        assume_aligned_inputs=True,
    ),
}
FAST = (
    "foreach",
    "addmm template",
    "cooperative",
    "two tiles",
    "bfloat16",
    "complex views",
    "cat",
    "pad",
    "looped",
    "split",
    "welford",
    "argmax",
    "NaN",
    "cumsum",
    "split scan",
    "sort",
    "scatter add",
    "index put float16",
    "changed in place",
    "conv, channels last",
    "attention",
)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [item if item in FAST else pytest.param(item, marks=pytest.mark.slow) for item in CASES]
)
def test_kernels_compute_what_eager_does(name: str) -> None:
    function, inputs, settings, holds = CASES[name]
    halves = any(
        isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float16, torch.bfloat16) for tensor in inputs
    )
    loose = {"rtol": 2e-2, "atol": 1e-2} if halves else {"rtol": 1e-4, "atol": 2e-5}
    seen = agree(function, *inputs, **loose, **settings)
    assert holds in seen.sources, seen.sources
