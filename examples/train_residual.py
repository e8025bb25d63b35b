"""Train a deep residual network that continues noisy waves: 16 samples in, the next 16 out, made on the spot.

Plain PyTorch, no data file, seeded: two runs print the same losses. It is the script that `graphdbg demo` records: with
24 blocks its forward graph has over 150 nodes, and Inductor makes few kernels of them, so that it compiles in seconds.

    python train_residual.py
    python train_residual.py --layers 40 --steps 100 --device cuda
    python train_residual.py --plant accuracy          # Inductor's own test hook makes relu wrong: the loss is silently
    off
    python train_residual.py --plant compile_error     # ... or makes its kernel fail to compile
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn

SAMPLES = 16


class Block(nn.Module):
    """Adds to its input what a layer with a ReLU makes of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Continuation(nn.Module):
    """The blocks between two linear layers, and the loss of the samples that they predict."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(SAMPLES, width, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.outer = nn.Linear(width, SAMPLES, bias=False)

    def forward(self, seen: torch.Tensor, next_samples: torch.Tensor) -> torch.Tensor:
        x = self.inner(seen)
        for block in self.blocks:
            x = block(x)
        return nn.functional.mse_loss(self.outer(x), next_samples)


def make_waves(batch: int) -> torch.Tensor:
    """Sine waves of random frequency and phase with a little noise, (batch, 32)."""
    times = torch.arange(2 * SAMPLES) / SAMPLES
    frequency, phase = torch.rand(batch, 1) * 2 + 1, torch.rand(batch, 1) * 2 * math.pi
    return torch.sin(frequency * times * math.pi + phase) + 0.05 * torch.randn(batch, 2 * SAMPLES)


def parse_arguments() -> argparse.Namespace:
    """The command line; every size is small enough for a slow CPU."""
    parser = argparse.ArgumentParser(description="Train a deep residual network on generated waves.")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--no-compile", action="store_true", help="train in eager mode, to compare the losses")
    parser.add_argument("--plant", choices=["accuracy", "compile_error"], help="switch on Inductor's own relu test bug")
    return parser.parse_args()


def main() -> None:
    """Trains and prints one loss a step."""
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    if arguments.plant:
        import torch._inductor.config as inductor

        backend = inductor.cpp if arguments.device == "cpu" else inductor.triton
        backend.inject_relu_bug_TESTING_ONLY = arguments.plant

    model: nn.Module = Continuation(arguments.layers, arguments.width).to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    step_loss = model if arguments.no_compile else torch.compile(model)

    for step in range(arguments.steps):
        waves = make_waves(arguments.batch).to(arguments.device)
        loss = step_loss(waves[:, :SAMPLES], waves[:, SAMPLES:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
