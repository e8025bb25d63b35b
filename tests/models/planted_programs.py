"""One training step of a small model under a planted fault: `python planted_programs.py MODEL MODULE`.

Six models; each has what the faults are planted in: tanh, silu, relu, an input that is written, a backward; dropout
where DROPOUT says how much.
"""

from __future__ import annotations

import importlib
import os
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH = 32
DROPOUT = float(os.environ.get("DROPOUT", "0"))


class Counting(nn.Module):
    """Keeps a running mean of what it sees, as a normalisation does; dropout behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.mul_(0.9).add_(x.detach().float().reshape(-1, WIDTH).mean(0), alpha=0.1)
        return F.dropout(x, DROPOUT) if DROPOUT else x


class Transformer(nn.Module):
    """A causal block with SwiGLU and rotary halves."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.counting = Counting()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)) * WIDTH**-0.5
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = x + self.out(scores.masked_fill(mask, -1e4).softmax(-1) @ v)
        x = self.counting(x + self.down(F.silu(self.gate(x)) * F.relu(self.up(x))))
        return torch.tanh(x)


class Convnet(nn.Module):
    """Two convolutions with batch norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head, self.counting = nn.BatchNorm2d(8), nn.Linear(8 * 16, WIDTH), Counting()

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.first(x)))
        x = F.max_pool2d(F.relu(x + self.second(x)), 2)
        return torch.tanh(self.counting(self.head(x.flatten(1))))


class Recurrent(nn.Module):
    """A gated cell, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gates, self.counting = nn.Linear(16, WIDTH), nn.Linear(2 * WIDTH, 2 * WIDTH), Counting()

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], WIDTH)
        for step in F.silu(self.inner(x)).unbind(1):
            new, keep = self.gates(torch.cat([step, state], -1)).chunk(2, -1)
            state = torch.sigmoid(keep) * state + (1 - torch.sigmoid(keep)) * torch.tanh(new)
        return self.counting(F.relu(state) + state)


class Embedding(nn.Module):
    """Bags of indices, two towers and their likeness."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.users = nn.Embedding(100, WIDTH), nn.EmbeddingBag(50, WIDTH, mode="sum")
        self.tower, self.counting = nn.Linear(WIDTH, WIDTH), Counting()

    def forward(self, items: Tensor, users: Tensor) -> Tensor:
        left = self.counting(F.silu(self.tower(self.items(items).mean(1))))
        return torch.tanh(left * F.relu(self.tower(self.users(users))))


class Experts(nn.Module):
    """Four experts, the best two of them weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.counting = nn.Linear(WIDTH, 4), Counting()
        self.up, self.down = (
            nn.Parameter(torch.randn(4, WIDTH, 48) * 0.2),
            nn.Parameter(torch.randn(4, 48, WIDTH) * 0.2),
        )

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        hidden = F.silu(torch.einsum("td,edh->teh", x, self.up))
        every = torch.einsum("teh,ehd->ted", hidden, self.down)
        best = every.gather(1, chosen[..., None].expand(-1, -1, WIDTH))
        return torch.tanh(self.counting(F.relu((best * weights[..., None]).sum(1)) + x))


class Dynamic(nn.Module):
    """A sequence of any length under autocast, its middle computed again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.middle, self.counting = nn.Linear(16, WIDTH), nn.Linear(WIDTH, WIDTH), Counting()

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = F.silu(self.inner(x))
            x = checkpoint(lambda y: F.relu(self.middle(y)) + y, x, use_reentrant=False)
        x = self.counting(x.float())
        return torch.tanh(x.cumsum(1) / x.shape[1])


MODELS = {
    "transformer": (Transformer, lambda: (torch.randn(2, 8, WIDTH),)),
    "convnet": (Convnet, lambda: (torch.randn(2, 3, 8, 8),)),
    "recurrent": (Recurrent, lambda: (torch.randn(4, 4, 16),)),
    "embedding": (Embedding, lambda: (torch.randint(0, 100, (4, 6)), torch.randint(0, 50, (4, 5)))),
    "experts": (Experts, lambda: (torch.randn(12, WIDTH),)),
    "dynamic": (Dynamic, lambda: (torch.randn(3, 10, 16),)),
}
"""Name -> what makes the model and what makes its inputs."""


def main(name: str, fault: str) -> None:
    """One step."""
    importlib.import_module(fault)
    torch.manual_seed(0)
    model, inputs = MODELS[name]
    net = model()
    compiled = torch.compile(net, dynamic=True if name == "dynamic" else None)
    loss = compiled(*inputs()).square().mean()
    loss.backward()
    gradients = sum(float(parameter.grad.norm()) for parameter in net.parameters() if parameter.grad is not None)
    written = sum(float(buffer.float().norm()) for buffer in net.buffers())
    print(f"loss {loss.item():.5g} gradients {gradients:.5g} written {written:.5g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
