"""Imported, plants a death of the device: a post-grad pass replaces `planted_cuda::scale` by a Triton kernel that is
wrong.

`planted_cuda::scale` doubles its input, by a Triton kernel of its own, and is right in eager. PLANTED_CUDA is "illegal"
(the kernel in its place writes far outside of its tensor) or "hang" (it never ends).
"""

import os

import torch
import triton
import triton.language as tl
from torch import fx
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

KIND = os.environ.get("PLANTED_CUDA", "illegal")
_BLOCK = 256


@triton.jit
def _double(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(target + places, 2 * tl.load(source + places, mask=inside), mask=inside)


@triton.jit
def _outside(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    far = places.to(tl.int64) * 1073741824 + 35184372088832
    tl.store(target + far, 2 * tl.load(source + places, mask=inside), mask=inside)


@triton.jit
def _endless(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(source + places, mask=inside)
    waiting = tl.load(target, volatile=True) * 0 + 1.0
    while waiting > 0.5:
        waiting = tl.load(target, volatile=True) * 0 + 1.0
    tl.store(target + places, value, mask=inside)


def _launch(kernel: object, x: torch.Tensor) -> torch.Tensor:
    source = x.contiguous()
    target = torch.zeros_like(source)
    kernel[(triton.cdiv(source.numel(), _BLOCK),)](source, target, source.numel(), BLOCK=_BLOCK)  # type: ignore[index]
    return target


@torch.library.custom_op("planted_cuda::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    """Twice the input."""
    return _launch(_double, x)


@torch.library.custom_op("planted_cuda::deadly", mutates_args=())
def deadly(x: torch.Tensor) -> torch.Tensor:
    """What takes its place."""
    return _launch({"illegal": _outside, "hang": _endless}[KIND], x)


@scale.register_fake
@deadly.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class Replace(CustomGraphPass):
    """Puts the deadly op in the place of the right one."""

    def __call__(self, graph: fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.planted_cuda.scale.default):
            node.target = torch.ops.planted_cuda.deadly.default

    def uuid(self) -> None:
        return None


config.post_grad_custom_post_pass = Replace()
