"""Small models that between them have what breaks compilers: attention, buffers that change, cells, bags, routing, tied
weights.

>>> model, inputs = BUILD["transformer"]()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Transformer(nn.Module):
    """One layer; the output projection is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.fold = nn.Linear(16, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.fold(mixed.transpose(1, 2).reshape(batch, length, 16))
        return self.head(nn.functional.gelu(x))


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(4, 6)
        self.gru = nn.GRUCell(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, c = self.lstm(x)
        return self.gru(h, c)


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(20, 6, mode="mean")
        self.table = nn.Embedding(20, 6)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.bag(ids, offsets) + self.table(ids)[: offsets.shape[0]].tanh()


class Routing(nn.Module):
    """Two experts of three for each row, gathered and scattered, with a mask by index."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.Parameter(torch.randn(3, 8, 8) * 0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mixed = torch.einsum("td,tkde->tke", x, self.experts[chosen])
        out = torch.zeros_like(x).index_add(0, torch.arange(x.shape[0]), (mixed * weight[..., None]).sum(1).to(x.dtype))
        counts = torch.zeros(3).scatter_add(0, chosen.flatten(), torch.ones(chosen.numel()))
        return torch.where(out > 0, out, out * 0.1)[:, [0, 2, 4]] * counts.sum()


class Checkpointed(nn.Module):
    """Dropout inside a checkpointed region: the backward runs it again with the same random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def block(x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(torch.relu(self.one(x)), 0.5, self.training).sin()

        return self.two(checkpoint(block, x, use_reentrant=False))  # type: ignore[arg-type]


def _bags() -> tuple[Any, ...]:
    return torch.arange(8) * 2 % 20, torch.tensor([0, 3, 5])


BUILD: dict[str, Callable[[int], tuple[nn.Module, tuple[Any, ...]]]] = {
    "transformer": lambda rows: (Transformer(), (torch.arange(rows * 6).reshape(rows, 6) % 32,)),
    "convnet": lambda rows: (Convnet(), (torch.randn(rows, 3, 8, 8),)),
    "cells": lambda rows: (Cells(), (torch.randn(rows, 4),)),
    "bags": lambda rows: (Bags(), _bags()),
    "routing": lambda rows: (Routing(), (torch.randn(rows, 8),)),
    "checkpointed": lambda rows: (Checkpointed(), (torch.randn(rows, 8),)),
}
"""Name -> function of the number of rows that gives the model and its inputs."""


def built(name: str, rows: int = 4, seed: int = 0) -> tuple[nn.Module, tuple[Any, ...]]:
    """The same weights and inputs for the same seed."""
    torch.manual_seed(seed)
    return BUILD[name](rows)


def step(
    model: nn.Module, call: Callable[..., torch.Tensor], inputs: tuple[Any, ...], seed: int = 7
) -> list[torch.Tensor]:
    """One training step: the output, all gradients in the order of the parameters, all buffers."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    out = call(*inputs)
    out.float().square().mean().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    return [out.detach().clone(), *gradients, *(buffer.clone() for buffer in model.buffers())]
