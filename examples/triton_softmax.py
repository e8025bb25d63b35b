"""A small attention block whose softmax is a Triton kernel of its own, compiled; runs with a GPU or without.

Without a GPU the kernel is traced for a pretended one and interpreted. Faults can be planted in the kernel: one that
forgets the mask of its last block, one that forgets to subtract the maximum.

    graphdbg dump -o softmax --inputs first -- python triton_softmax.py
    graphdbg dump -o broken --inputs first -- python triton_softmax.py --plant mask
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext

import torch
import triton
import triton.language as tl
from torch import nn

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp(x):
    return tl.exp2(x * LOG2E)


@triton.jit
def softmax_kernel(out, scores, columns, BLOCK: tl.constexpr, MASKED: tl.constexpr, SHIFTED: tl.constexpr):
    """One row a program: the row is as long as `columns`, the block a power of two."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(scores + row * columns + at, mask=at < columns, other=float("-inf"))
    if SHIFTED:
        x = x - tl.max(x, axis=0)
    powers = exp(x)
    result = powers / tl.sum(powers, axis=0)
    if MASKED:
        tl.store(out + row * columns + at, result, mask=at < columns)
    else:
        tl.store(out + row * columns + at, result)


def softmax(scores: torch.Tensor, plant: str = "") -> torch.Tensor:
    """Softmax over the last dimension of a contiguous tensor."""
    out = torch.empty_like(scores)
    columns = scores.shape[-1]
    softmax_kernel[(scores.numel() // columns,)](
        out, scores, columns, BLOCK=triton.next_power_of_2(columns), MASKED=plant != "mask", SHIFTED=plant != "overflow"
    )
    return out


class Block(nn.Module):
    """Attention of one head with the kernel's softmax, then a feed-forward layer; [batch, time, width] in and out."""

    def __init__(self, width: int, plant: str) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.plant = plant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = (q @ k.transpose(1, 2)) * (100.0 if self.plant == "overflow" else x.shape[-1] ** -0.5)
        x = self.norm(x + self.out(softmax(scores.contiguous(), self.plant) @ v))
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plant", choices=["", "mask", "overflow"], default="", help="a fault in the kernel")
    parser.add_argument("--backend", default="", help="torch.compile's; without a GPU aot_eager unless said otherwise")
    parser.add_argument("--blocks", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(*(Block(16, options.plant) for _ in range(options.blocks))).to(device)
    x = 4 * torch.randn(2, 12, 16, device=device)
    backend = options.backend or ("inductor" if device == "cuda" else "aot_eager")
    with _without_gpu() if device == "cpu" else nullcontext(), torch.no_grad():
        print(float(torch.compile(model, backend=backend)(x).abs().sum()))


def _without_gpu() -> AbstractContextManager[None]:
    from graphdbg.toolkit.triton.user_kernels import without_gpu

    return without_gpu()


if __name__ == "__main__":
    main()
