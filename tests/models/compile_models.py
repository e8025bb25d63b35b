"""Twenty small models for comparing compilers: each is named, described, and built for one size of its dynamic
dimension.

A model is `make(size) -> (module, inputs)`; `dynamic` says which dimension of which input has that size. The first ten
are here, the others in `compile_models_more.py`. Must not compile anything.

>>> module, inputs = MODELS["gpt_block"].make(8)
>>> MODELS["gpt_block"].dynamic
{0: 1}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...]]


@dataclass(frozen=True)
class Model:
    """`dynamic`: index of an input -> its dimension whose size is `make`'s argument; `random`: it draws from a
    generator."""

    name: str
    about: str
    make: Callable[[int], Made]
    dynamic: dict[int, int]
    random: bool = False


MODELS: dict[str, Model] = {}
"""Name -> model, in the order of their definition."""


def model(dynamic: dict[int, int], random: bool = False) -> Callable[[Callable[[int], Made]], Callable[[int], Made]]:
    """Registers a function under its name, with the first line of its docstring."""

    def register(make: Callable[[int], Made]) -> Callable[[int], Made]:
        assert make.__doc__
        MODELS[make.__name__] = Model(
            make.__name__, " ".join(make.__doc__.partition("\n\n")[0].split()), make, dynamic, random
        )
        return make

    return register


def mask_of(size: int, keep: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """A (size, size) mask of -inf wherever `keep(query place - key place)` is false."""
    places = torch.arange(size, device=like.device)
    return torch.zeros(size, size, dtype=like.dtype).masked_fill(~keep(places[:, None] - places), float("-inf"))


class Attention(nn.Module):
    """Self-attention. `groups` heads of keys are shared by all heads; `bias(size, like)` is added to the scores."""

    def __init__(self, width: int, heads: int, groups: int = 0, bias: Callable[[int, Tensor], Tensor] | None = None):
        super().__init__()
        self.heads, self.groups, self.bias, self.each = heads, groups or heads, bias, width // heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * self.groups * self.each)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x).unflatten(-1, (self.heads, self.each)).transpose(1, 2)
        key, value = self.key_value(x).unflatten(-1, (2 * self.groups, self.each)).transpose(1, 2).chunk(2, 1)
        key, value = (item.repeat_interleave(self.heads // self.groups, 1) for item in (key, value))
        if self.bias is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-1, -2) / self.each**0.5 + self.bias(x.shape[1], x)
            mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A pre-norm transformer block around a given attention."""

    def __init__(self, width: int, attention: nn.Module):
        super().__init__()
        self.attention, self.norm1, self.norm2 = attention, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@model({0: 1})
def transformer_encoder(size: int) -> Made:
    """torch's own encoder layer, with three heads: an odd number has no fused operator, which not every torch
    traces."""
    return nn.TransformerEncoderLayer(24, 3, 32, dropout=0.0, batch_first=True), (torch.randn(2, size, 24),)


@model({0: 1})
def gpt_block(size: int) -> Made:
    """Token embedding, a causal block on scaled_dot_product_attention, and logits that share the embedding's weight."""

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.block, self.norm = nn.Embedding(50, 16), Block(16, Attention(16, 2)), nn.LayerNorm(16)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.norm(self.block(self.tokens(tokens))) @ self.tokens.weight.t()

    return Gpt(), (torch.randint(0, 50, (2, size)),)


@model({0: 1})
def grouped_query_attention(size: int) -> Made:
    """Four heads that share two heads of keys and values (GQA), with a causal mask."""
    return Block(16, Attention(16, 4, groups=2)), (torch.randn(2, size, 16),)


@model({0: 1})
def alibi_attention(size: int) -> Made:
    """Attention whose scores fall linearly with distance, each head at its own slope (ALiBi)."""

    def bias(length: int, like: Tensor) -> Tensor:
        places = torch.arange(length, device=like.device)
        slopes = (2.0 ** -torch.arange(1, 3, device=like.device)).to(like.dtype)
        return slopes[:, None, None] * (places - places[:, None]).tril() + mask_of(length, lambda gap: gap >= 0, like)

    return Block(16, Attention(16, 2, bias=bias)), (torch.randn(2, size, 16),)


@model({0: 1})
def sliding_window_attention(size: int) -> Made:
    """Causal attention that sees the last four places alone."""
    bias = lambda length, like: mask_of(length, lambda gap: (gap >= 0) & (gap < 4), like)  # noqa: E731
    return Block(16, Attention(16, 2, bias=bias)), (torch.randn(2, size, 16),)


@model({0: 0})
def vision_transformer(size: int) -> Made:
    """Patches by a strided convolution, a class token, learnt places, a block with a head on the class token."""

    class Vit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 1, 16))
            self.places, self.head = nn.Parameter(torch.randn(1, 5, 16)), nn.Linear(16, 10)
            self.block = Block(16, Attention(16, 2, bias=lambda length, like: like.new_zeros(length, length)))

        def forward(self, x: Tensor) -> Tensor:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
            return self.head(self.block(x)[:, 0])

    return Vit(), (torch.randn(size, 3, 8, 8),)


@model({0: 0})
def convnet(size: int) -> Made:
    """Convolutions with batch norm and pooling, and a linear head: running statistics are buffers that training
    writes."""
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))
    return nn.Sequential(*layers), (torch.randn(size, 3, 8, 8),)


@model({0: 0})
def residual_network(size: int) -> Made:
    """Two residual blocks with a strided shortcut, and average pooling."""

    class Residual(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int):
            super().__init__()
            conv = lambda a, b, k, s: nn.Sequential(nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b))  # noqa: E731
            self.first, self.second = conv(inside, outside, 3, stride), conv(outside, outside, 3, 1)
            self.shortcut = conv(inside, outside, 1, stride)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))

    layers = (Residual(3, 8, 1), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    return nn.Sequential(*layers), (torch.randn(size, 3, 8, 8),)


@model({0: 0})
def separable_convolutions(size: int) -> Made:
    """Depthwise and pointwise convolutions with hardswish and squeeze-and-excitation, inputs in channels-last
    layout."""

    class Separable(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.depth, self.point = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1)
            self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.hardswish(self.point(self.depth(x)))
            return x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))

    return Separable(), (torch.randn(size, 8, 6, 6).contiguous(memory_format=torch.channels_last),)


@model({0: 0})
def unet(size: int) -> Made:
    """One level down by a strided convolution, one up by a transposed one, joined by a skip connection."""

    class Unet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.down = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, 2, 1)
            self.up, self.leave = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 1, 3, padding=1)
            self.norm = nn.GroupNorm(2, 16)

        def forward(self, x: Tensor) -> Tensor:
            high = F.silu(self.enter(x))
            low = F.silu(self.norm(self.down(high)))
            return self.leave(torch.cat([high, self.up(low)], 1))

    return Unet(), (torch.randn(size, 1, 8, 8),)


from tests.models import compile_models_more  # noqa: E402, F401  (registers the other ten)
