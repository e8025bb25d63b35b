"""Trains a model, armed; from a step of its seed's on, Inductor's relu is wrong in what is compiled, and the program
notices.

    python armed_training.py KIND SEED

KIND: crash (the kernel does not compile), nan (a check of the loss trips), wrong (an assertion against eager),
segfault.
"""

from __future__ import annotations

import copy
import random
import sys

import armed_fault  # noqa: F401  pyright: ignore  beside this file
import torch
from torch import nn

import graphdbg

KINDS = {"crash": "compile_error", "nan": "accuracy", "wrong": "accuracy", "segfault": "segfault"}


class Attention(nn.Module):
    """A layer of a transformer, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8, 32) as x."""
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + nn.functional.dropout(torch.relu(x), 0.1, self.training)


class Broken(nn.Module):
    """Two halves with a graph break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8, 32) as x."""
        x = torch.tanh(self.first(x))
        torch._dynamo.graph_break()
        return torch.relu(self.second(x)) + x


class Experts(nn.Module):
    """A mixture of two experts by soft gates."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 8, 32) as x."""
        gates = self.gate(x).softmax(-1)
        return sum(gates[..., index : index + 1] * expert(x) for index, expert in enumerate(self.experts))  # type: ignore[return-value]


class Words(nn.Module):
    """Embeddings, a normalisation that keeps statistics, a relu."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(100, 32), nn.BatchNorm1d(8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """(batch, 8) to (batch, 8, 32)."""
        return torch.relu(self.norm(self.words(words)))


MODELS = [Attention, Broken, Experts, Words]


def main() -> None:
    """One run."""
    kind, seed = sys.argv[1], int(sys.argv[2])
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    inner = MODELS[seed % len(MODELS)]()
    model = nn.Sequential(inner, nn.Linear(32, 8))
    optimizer = chosen.choice([torch.optim.SGD, torch.optim.AdamW])(model.parameters(), lr=0.01)
    late = chosen.random() < 0.5
    """Whether the check comes after the optimizer has written to the parameters."""

    def loss_of(module: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        result = module(batch)
        if kind == "nan":
            return torch.log(0.2 - torch.relu(-torch.tanh(result / 4).square()).mean())
        return (result - 1).square().mean().sqrt()

    graphdbg.arm()
    compiled = torch.compile(loss_of, dynamic=False)
    steps = chosen.randrange(1, 30)
    for step in range(40):
        size = 4 if step < steps else 6
        batch = torch.randint(0, 100, (size, 8)) if isinstance(inner, Words) else torch.randn(size, 8, 32)
        if step == steps:
            torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = KINDS[kind]
        before = copy.deepcopy(model) if kind == "wrong" and step >= steps else None
        state = torch.get_rng_state()
        loss = compiled(model, batch)
        if not late:
            check(kind, loss, before, batch, loss_of, state)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        check(kind, loss, before, batch, loss_of, state)
    raise SystemExit(9)


def check(kind, loss, before, batch, loss_of, state) -> None:
    """What a program would notice."""
    if kind == "nan" and not torch.isfinite(loss):
        raise FloatingPointError("the loss is not finite")
    if before is not None:
        torch.set_rng_state(state)
        before.eval(), before.train()
        expected = loss_of(before, batch)
        assert torch.allclose(loss, expected, rtol=1e-2), f"loss {loss.item()}, in eager {expected.item()}"


if __name__ == "__main__":
    main()
