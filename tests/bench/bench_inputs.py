"""A training step with its inputs held, against the same step without a recording. Prints milliseconds, ratios and
bytes.

    python -m tests.bench.bench_inputs [--layers 12] [--width 128] [--steps 60] [--device cpu]

One model four times in one process: without a recording, with the default (index), with --inputs last, with --when nan.
Their steps alternate, so that whatever slows the machine down slows all of them; the ratio is of medians."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import graphdbg

WAYS = {"none": None, "index": {}, "last": {"inputs": "last"}, "nan": {"when": "nan"}, "error": {"when": "error"}}


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(500, width), nn.Linear(width, 500)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.table(tokens)))


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def trained(name: str, options: argparse.Namespace) -> Callable[[], None]:
    """A function that makes one training step; its code is its own, so that Dynamo compiles it anew."""
    torch.manual_seed(0)
    model = Model(options.layers, options.width).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    own = types.FunctionType(loss.__code__.replace(co_name=f"loss_{name}"), globals())
    compiled = torch.compile(own)
    tokens = torch.randint(0, 500, (options.batch, options.length), device=options.device)

    def step() -> None:
        compiled(model, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        if options.device != "cpu":
            torch.cuda.synchronize()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (("layers", 12), ("width", 128), ("steps", 60), ("batch", 4), ("length", 64)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    steps: dict[str, Callable[[], None]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, how in WAYS.items():
            if how is not None:
                stack.enter_context(graphdbg.record(folder / name, **how))
            steps[name] = trained(name, options)
            steps[name]()
        for _ in range(options.steps):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                seconds[name].append(time.perf_counter() - start)
        held = sum(path.stat().st_size for path in folder.glob("last/*/held/*/*"))
    median = {name: statistics.median(times[2:]) for name, times in seconds.items()}
    print(
        f"{options.layers} layers, width {options.width}, {options.device}: inputs of the held graphs "
        f"{held / 2**20:.1f} MiB"
    )
    for name, value in median.items():
        print(f"{name:6} {value * 1e3:8.2f} ms  {value / median['none']:.3f}")


if __name__ == "__main__":
    main()
