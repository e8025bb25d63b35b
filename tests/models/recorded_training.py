"""A training run of a small transformer for bench_recorder: trains some steps, or one step for each line on stdin.

    python recorded_training.py --layers 12 --steps 3
    python recorded_training.py --layers 12 --paced          # a line in: one step; a line out: its seconds
    python recorded_training.py --recompiles 500             # one function compiled again for each of 500 shapes

The seconds of the first step (compilation) are the first line of stdout.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, WORDS, BATCH, LENGTH = 128, 4, 500, 4, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, HEADS, width // HEADS)
        q, k, v = self.qkv(self.norms[0](x)).view(shape).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(layers: int, steps: int, paced: bool) -> None:
    torch.manual_seed(0)
    model = Model(layers)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    words, targets = (torch.randint(0, WORDS, (BATCH, LENGTH)) for _ in range(2))

    def step() -> float:
        start = time.perf_counter()
        loss = F.cross_entropy(compiled(words).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    print(step(), flush=True)
    if paced:
        for _ in sys.stdin:
            print(step(), flush=True)
    else:
        for _ in range(steps - 1):
            step()


def recompile(times: int) -> None:
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = times + 1

    @torch.compile(dynamic=False)
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x.shape[0]).relu().sum(-1)

    start = time.perf_counter()
    for size in range(2, times + 2):
        function(torch.ones(size, 3))
    print(time.perf_counter() - start, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--paced", action="store_true")
    parser.add_argument("--recompiles", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.recompiles:
        recompile(arguments.recompiles)
    else:
        train(arguments.layers, arguments.steps, arguments.paced)


if __name__ == "__main__":
    main()
