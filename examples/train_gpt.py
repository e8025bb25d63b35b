"""Train a small character-level GPT with a ReLU feed-forward on text made on the spot.

Plain PyTorch, no data file, seeded: two runs print the same losses. It is the script that `graphdbg demo` records.

    python train_gpt.py
    python train_gpt.py --layers 12 --steps 4 --device cuda
    python train_gpt.py --plant accuracy          # Inductor's own test hook makes relu wrong: the loss is silently off
    python train_gpt.py --plant compile_error     # ... or makes its kernel fail to compile
"""

from __future__ import annotations

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


def make_text(length: int, seed: int) -> str:
    """Sentences from a tiny seeded grammar: enough structure for the loss to fall."""
    rng = random.Random(seed)
    subjects = ["the compiler", "a small graph", "the kernel", "every node", "the tensor"]
    verbs = ["fuses", "lowers", "reads", "pads", "splits"]
    objects = ["two loops", "the relu", "a stride", "its inputs", "the gradient"]
    sentences: list[str] = []
    size = 0
    while size < length:
        sentence = f"{rng.choice(subjects)} {rng.choice(verbs)} {rng.choice(objects)}.\n"
        sentences.append(sentence)
        size += len(sentence)
    return "".join(sentences)[:length]


class Attention(nn.Module):
    """Causal self-attention with its heads side by side."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    """One transformer layer: attention, then a feed-forward with ReLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """Token and position embeddings, the layers, and the loss of predicting the next character."""

    def __init__(self, vocabulary: int, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parse_arguments() -> argparse.Namespace:
    """The command line; every size is small enough for a slow CPU."""
    parser = argparse.ArgumentParser(description="Train a small character-level GPT on generated text.")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--context", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
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

    text = make_text(20_000, arguments.seed)
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(character) for character in text])

    model: nn.Module = GPT(len(alphabet), arguments.layers, arguments.width, arguments.heads, arguments.context)
    model = model.to(arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    step_loss = model if arguments.no_compile else torch.compile(model)

    for step in range(arguments.steps):
        starts = torch.randint(len(data) - arguments.context - 1, (arguments.batch, 1))
        windows = data[starts + torch.arange(arguments.context + 1)].to(arguments.device)
        loss = step_loss(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
