"""CUDA graphs on a GPU: ours (plain recording, torch's trees, none) and stock's (the same three), on the same models in
one run.

    python -m tests.bench.bench_cudagraphs [--repeats 100] [--models small,mlp,wide]

small: 120 kernels of 32 × 32, bound by launches; mlp: 30 layers of 256, sixteen rows; wide: two matrix products of 4096
× 4096, bound by the GPU, where a recording can win nothing. Median milliseconds of a call with synchronisation, in
rounds in which ours and stock's take turns. Results are held against eager. Prints the ratio to the same way without
graphs, and ours to stock's. Caches are off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from graphdbg.toolkit.compile_fx import compile_fx

WAYS = {"none": (False, False), "plain": (True, False), "trees": (True, True)}
ROUNDS = 5


class Small(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 32) / 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.tanh(x @ self.weight)
        return x


class Mlp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(30)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Wide(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4096, 4096) / 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ self.weight) @ self.weight


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, int]]] = {
    "small": (Small, (32, 32)),
    "mlp": (Mlp, (16, 256)),
    "wide": (Wide, (4096, 4096)),
}


def compiled(model: torch.nn.Module, who: str, way: str) -> Callable[..., Any]:
    """The model compiled by us or by stock, with that way's settings."""
    graphs, trees = WAYS[way]
    settings: dict[str, Any] = {"triton.cudagraphs": graphs, "triton.cudagraph_trees": trees, "fx_graph_cache": False}
    if who == "stock":
        from torch._inductor.compile_fx import compile_fx as stock

        return torch.compile(model, backend=lambda gm, inputs: stock(gm, inputs, config_patches=settings))
    return torch.compile(model, backend=lambda gm, inputs: compile_fx(gm, inputs, config_patches=settings))


def measure(call: Callable[..., Any], x: torch.Tensor, repeats: int) -> float:
    """Median seconds of one call."""
    taken: list[float] = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.compiler.cudagraph_mark_step_begin()
        call(x)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def run(name: str, repeats: int) -> bool:
    """All six ways on one model; whether all gave the right result."""
    make, size = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = make().cuda(), torch.randn(*size, device="cuda")
    expected, right = model(x), True
    rounds: dict[tuple[str, str], list[float]] = {}
    for (
        way
    ) in WAYS:  # one after the other: recordings of stock's plain way do not outlive torch's trees in the same process
        calls = {who: compiled(model, who, way) for who in ("ours", "stock")}
        for who, call in calls.items():
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                result = call(x).clone()
            error = ((result - expected).abs().max() / expected.abs().max()).item()
            if error > 1e-2:
                right = False
                print(f"{name} {who} {way}: WRONG, off by {error:.1e} of the greatest value")
        for _ in range(ROUNDS):
            for who, call in calls.items():
                rounds.setdefault((who, way), []).append(measure(call, x, repeats // ROUNDS))
    medians = {key: statistics.median(values) * 1e3 for key, values in rounds.items()}
    for way in WAYS:
        ours, stock = medians["ours", way], medians["stock", way]
        print(
            f"{name:6} {way:6} ours {ours:8.3f} ms ({medians['ours', 'none'] / ours:5.2f}x none)   "
            f"stock {stock:8.3f} ms ({medians['stock', 'none'] / stock:5.2f}x none)   ours/stock {ours / stock:5.2f}"
        )
    return right


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--models", default=",".join(MODELS))
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("not run: no CUDA device")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, medians of {asked.repeats} calls")
    torch._functorch.config.enable_autograd_cache = False
    with torch.no_grad():
        wrong = [name for name in asked.models.split(",") if not run(name, asked.repeats)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
