"""Train a small convnet in channels-last memory format on images made on the spot: bright squares against bright discs.

Plain PyTorch, no data file, seeded. Batch norm in training mode, dropout, gradient clipping, autocast on request.

    python train_convnet.py
    python train_convnet.py --steps 20 --autocast --device cuda
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def make_batch(batch: int, size: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy images [batch, 3, size, size] of a disc (label 1) or a square (label 0) somewhere in the picture."""
    labels = torch.randint(2, (batch,))
    centres = torch.randint(size // 4, 3 * size // 4, (batch, 2, 1, 1))
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    distance = (grid - centres).abs().float()
    square = distance.amax(1) <= size // 6
    disc = distance.square().sum(1) <= (size // 6) ** 2
    shape = torch.where(labels.view(-1, 1, 1) == 1, disc, square)
    images = shape.float().unsqueeze(1) + 0.1 * torch.randn(batch, 3, size, size)
    return images.to(device, memory_format=torch.channels_last), labels.to(device)


def make_model(width: int) -> nn.Sequential:
    """Two convolution blocks, global average pooling, a linear classifier."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(2 * width, 2),
    )


def main() -> None:
    """Trains and prints one loss a step."""
    parser = argparse.ArgumentParser(description="Train a small convnet on random images.")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--autocast", action="store_true", help="run the forward in bfloat16 autocast")
    parser.add_argument("--no-compile", action="store_true", help="train in eager mode, to compare the losses")
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    model: nn.Module = make_model(arguments.width).to(arguments.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled = model if arguments.no_compile else torch.compile(model)

    for step in range(arguments.steps):
        images, labels = make_batch(arguments.batch, arguments.size, arguments.device)
        with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.autocast):
            loss = F.cross_entropy(compiled(images), labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
