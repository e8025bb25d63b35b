"""What `graphdbg.arm()` costs: training steps of three models, armed and not, in turns; compile time; and the ring's
size.

    python -m tests.bench.bench_armed [--steps 200] [--recompiles 1000] [--cuda]

Two copies of each model are compiled, one before `arm()` and one after it, and take their steps in turns: noise hits
both. Prints the ratio of the cheapest quarters, which noise touches less than medians; the microseconds that are added
to one step, measured by themselves (what begins and ends a call, on the step's own inputs) over the step; the seconds
of recording over those of compiling; and the bytes of the ring after that many recompiles. Bars: 0.005 of a step, 0.03
of compile time, 64 MB.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import graphdbg
from graphdbg.toolkit.recorder.armed.entry import armed, end


class Block(nn.Module):
    """A convolution with batch norm and a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images like x."""
        return x + self.norm(self.conv(x)).relu()


def models() -> dict[str, tuple[nn.Module, Callable[[], tuple[Any, ...]]]]:
    """Name -> model and what makes a batch."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    layers = [item for _ in range(6) for item in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    mixed = nn.Sequential(nn.EmbeddingBag(1000, 256), *layers)
    return {
        "transformer": (
            nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
            lambda: (torch.randn(8, 64, 128),),
        ),
        "convnet": (nn.Sequential(*[Block(32) for _ in range(6)]), lambda: (torch.randn(8, 32, 32, 32),)),
        "embeddings": (mixed, lambda: (torch.randint(0, 1000, (512, 16)),)),
    }


def stepping(
    model: nn.Module, batch: Callable[[], tuple[Any, ...]], device: str, fusion: int = 64
) -> Callable[[], float]:
    """A training step of a compiled model that says how long it took. `fusion`: the same code is recompiled for
    another."""
    model = model.to(device)
    compiled = torch.compile(model, options={"max_fusion_size": fusion})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> float:
        inputs = [item.to(device) for item in batch()]
        wait()
        began = time.perf_counter()
        compiled(*inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        wait()
        return time.perf_counter() - began

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def alone(name: str, calls: int = 200) -> float:
    """Seconds that the graphs of the last step add to it: their calls are begun and ended with nothing between, spread
    over the time that the steps would take, as what may be done rests on the time that has gone by."""
    session = armed()
    assert session is not None and session.calls is not None, name
    took, other = list[float](), torch.randn(512, 512)
    kept = [
        (item, tuple(item.values(item.newest))) for item in session.calls.last_step()[:1] if item.newest is not None
    ]
    for _ in range(calls):
        until = time.perf_counter() + 0.02
        while time.perf_counter() < until:
            _ = other @ other
        began = time.perf_counter()
        for item, inputs in kept:
            item.begins(inputs)
            item.ended(())
        took.append(time.perf_counter() - began)
    return statistics.mean(took)


def main() -> int:
    """Prints the ratios; 1 where one is over its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--recompiles", type=int, default=1000)
    parser.add_argument("--cuda", action="store_true")
    asked = parser.parse_args()
    device = "cuda" if asked.cuda else "cpu"
    torch.manual_seed(0)
    over = False
    for name in models():
        torch._dynamo.reset()  # what other models leave in Dynamo made the second copy slower, armed or not
        plain = stepping(*models()[name], device)
        plain()
        graphdbg.arm()
        session = armed()
        assert session is not None
        before, began = session.recording_seconds, time.perf_counter()
        watched = stepping(*models()[name], device, 63)
        watched()
        share = (session.recording_seconds - before) / (time.perf_counter() - began)
        pairs = [(watched(), plain()) if number % 2 else (plain(), watched())[::-1] for number in range(asked.steps)]
        ours, theirs = [sorted(column) for column in zip(*pairs, strict=True)]
        cheapest = statistics.mean(theirs[: asked.steps // 4])
        quarter = statistics.mean(ours[: asked.steps // 4]) / cheapest
        added = alone(name)
        print(
            f"{name:12} step {cheapest * 1e3:7.2f} ms, armed x{quarter:.4f}; {added * 1e6:.1f} us a step by "
            "themselves: "
            f"+{added / cheapest:.3%}; compile +{share:.2%}",
            flush=True,
        )
        over = over or added / cheapest > 0.005 or share > 0.03
        end()
    graphdbg.arm()
    if asked.recompiles:
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = asked.recompiles + 8
        scaled = torch.compile(lambda x, n: (x * n).relu().sum(), backend="eager", dynamic=False)
        most, ring = 0, armed().path  # type: ignore[union-attr]
        for number in range(asked.recompiles):
            scaled(torch.ones(4), number + 0.5)
            if number % 50 == 49:
                most = max(most, sum(path.stat().st_size for path in Path(ring).rglob("*") if path.is_file()))
        print(f"ring after {asked.recompiles} recompiles: {most / 2**20:.1f} MB at most")
        over = over or most > 64 << 20
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
