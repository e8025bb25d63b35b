"""Programs in which rounding decides what compiled code gives, and faults that look like rounding: both sides of one
line.

ROUNDING: name -> function and inputs; eager and Inductor part beyond the tolerance, and nothing is wrong. FAULTS: name
-> the
function, what a faulty compiler would compute in its place, and inputs. No test here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

BF16, HALF = torch.bfloat16, torch.float16


class Program(NamedTuple):
    """A function of tensors, and its inputs."""

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


class Faulty(NamedTuple):
    """A function, the same with a fault, and the inputs."""

    right: Callable[..., Any]
    wrong: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """The same numbers each time."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)


def chain(x: torch.Tensor) -> torch.Tensor:
    """A dozen roundings, where eager rounds each value."""
    for _ in range(12):
        x = x * 1.1 + 0.3 - x.sin() * 0.2
    return x


def ones(x: torch.Tensor) -> torch.Tensor:
    """Sums that are one but for rounding, which depends on the order."""
    return x.softmax(-1).sum(-1)


SQUARE, WIDE, LONG = normal(64, 64), normal(512, 257), normal(64, 4097)
ROUNDING = {
    "half round trip": Program(lambda x: (x.half().float() * 3).sin(), (SQUARE,)),
    "bf16 round trip": Program(lambda x: (x.bfloat16().float() - x).relu().sum(-1), (SQUARE,)),
    "bf16 chain, difference": Program(lambda x: chain(x) - chain(x + 0.01), (SQUARE.to(BF16),)),
    "half chain, difference": Program(lambda x: (chain(x) - chain(x).round()) * 50, (SQUARE.to(HALF),)),
    "bf16 sine of large": Program(lambda x: (x * x * 3.3 + x).sin(), (normal(64, 64, dtype=BF16, scale=10),)),
    "bf16 mask": Program(lambda x: (x * 1.3 + 0.21) * 0.7 > 0.5, (normal(256, 256, dtype=BF16),)),
    "bf16 equality": Program(lambda x: (x * 3) / 3 == x, (normal(256, 256, dtype=BF16),)),
    "half softmax of large": Program(lambda x: ((x * 7.3 + 1) * 40).softmax(-1), (SQUARE.to(HALF),)),
    "bf16 layer norm, nearly constant": Program(lambda x: F.layer_norm(x * 1e-3 + 5, (64,)), (SQUARE.to(BF16),)),
    "bf16 variance": Program(lambda x: (x * 1.01 + 30).var(-1), (normal(64, 64, dtype=BF16, scale=0.1),)),
    "bf16 fmod": Program(lambda x: torch.fmod(x * 17.3 + 2, 1.0), (SQUARE.to(BF16),)),
    "bf16 power": Program(lambda x: (x.abs() * 1.2 + 0.1) ** 40, (normal(64, 64, dtype=BF16, scale=0.5),)),
    "bf16 sort": Program(lambda x: ((x * 1.3 + 0.2) * 0.7).argsort(-1), (SQUARE.to(BF16),)),
    "bf16 topk": Program(lambda x: ((x * 1.3 + 0.2) * 0.7).topk(5).indices, (normal(64, 128, dtype=BF16),)),
    "half remainder": Program(lambda x: torch.remainder(x * 17.3 + 2, 1.0), (SQUARE.to(HALF),)),
    "half overflow": Program(lambda x: ((x * 60000) * 0.5).isinf(), (SQUARE.to(HALF),)),
    "cancelling sums": Program(lambda x: (x.exp().sum(-1) - x.exp().flip(-1).sum(-1)) * 1e6 + 1, (LONG,)),
    "sine of large sums": Program(lambda x: (x.exp().sum(-1) * 1e4).sin(), (LONG,)),
    "equality of sums": Program(lambda x: x.sum(-1) == x.flip(-1).sum(-1), (normal(512, 4097),)),
    "order of equal sums": Program(lambda x: ones(x).argsort(), (WIDE,)),
    "sign of what cancels": Program(lambda x: (ones(x) - 1).sign(), (WIDE,)),
    "angle of what cancels": Program(lambda x: torch.atan2(ones(x) - 1, ones(x.tanh()) - 1), (WIDE,)),
    "reciprocal of what cancels": Program(lambda x: 1 / (ones(x) - 1 + 1e-8), (WIDE,)),
    "softmax of what cancels": Program(lambda x: ((ones(x) - 1) * 1e8).softmax(-1), (WIDE,)),
}


def last_is_lost(x: torch.Tensor) -> torch.Tensor:
    """The tail of a vector loop is not written."""
    y = x.sigmoid().clone()
    y[..., -1] = y[..., -2]
    return y


def swapped(x: torch.Tensor) -> torch.Tensor:
    """Two neighbours change places."""
    y = (x * 2 + 1).clone()
    y[3, 4], y[3, 5] = y[3, 5].clone(), y[3, 4].clone()
    return y


def summed_in_bf16(x: torch.Tensor) -> torch.Tensor:
    """A running sum that is rounded after each term."""
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for at in range(x.shape[1]):
        total = total + x[:, at]
    return total


FAULTS = {
    "epsilon": Faulty(lambda x: F.layer_norm(x, (64,)), lambda x: F.layer_norm(x, (64,), eps=1e-3), (SQUARE,)),
    "epsilon, bf16": Faulty(
        lambda x: F.layer_norm(x, (64,)),
        lambda x: F.layer_norm(x, (64,), eps=1e-1),
        (normal(64, 64, dtype=BF16, scale=0.5),),
    ),
    "biased variance": Faulty(lambda x: x.var(-1), lambda x: x.var(-1, correction=0), (SQUARE,)),
    "biased variance, bf16": Faulty(
        lambda x: (x * 1.01).var(-1), lambda x: (x * 1.01).var(-1, correction=0), (normal(64, 8, dtype=BF16),)
    ),
    "approximate gelu": Faulty(F.gelu, lambda x: F.gelu(x, approximate="tanh"), (SQUARE,)),
    "a low constant": Faulty(lambda x: x * 0.1 + 0.2, lambda x: x * 0.10009765625 + 0.2, (SQUARE,)),
    "a constant in half, chained": Faulty(chain, lambda x: chain(x * 1.05), (SQUARE.to(HALF),)),
    "one term is lost": Faulty(lambda x: (x * x).sum(-1), lambda x: (x * x)[:, :-1].sum(-1), (LONG,)),
    "one term is lost, bf16": Faulty(
        lambda x: (x * x).mean(-1), lambda x: (x * x)[:, :-4].sum(-1) / 64, (normal(64, 64, dtype=BF16),)
    ),
    "one per cent of scale, half": Faulty(
        lambda x: x @ x.t() * 0.125, lambda x: x @ x.t() * 0.1275, (SQUARE.to(HALF),)
    ),
    "summed in bf16": Faulty(lambda x: x.sum(-1), summed_in_bf16, (normal(64, 4096, dtype=BF16).abs(),)),
    "half the softmax": Faulty(
        lambda x: x.softmax(-1), lambda x: torch.cat([x[:, :32].softmax(-1), x.softmax(-1)[:, 32:]], -1), (SQUARE,)
    ),
    "tail of a vector loop": Faulty(torch.sigmoid, last_is_lost, (normal(64, 61),)),
    "two neighbours": Faulty(lambda x: x * 2 + 1, swapped, (SQUARE,)),
    "two neighbours, bf16": Faulty(lambda x: x * 2 + 1, swapped, (SQUARE.to(BF16),)),
    "greater or equal": Faulty(lambda x: x.round() > 1, lambda x: x.round() >= 1, (SQUARE,)),
    "mask of another constant": Faulty(lambda x: x * 1.3 > 0.5, lambda x: x * 1.3 > 0.6, (SQUARE.to(BF16),)),
    "truncated, not floored": Faulty(lambda x: torch.floor(x * 3), lambda x: torch.trunc(x * 3), (SQUARE,)),
    "halves away from zero": Faulty(
        lambda x: torch.round(x.round() / 2), lambda x: torch.floor(x.round() / 2 + 0.5), (normal(64, 64, scale=3),)
    ),
    "largest of the first half": Faulty(lambda x: x.argmax(-1), lambda x: x[:, :60].argmax(-1), (SQUARE,)),
    "logarithm near one": Faulty(torch.log1p, lambda x: torch.log(1 + x), (normal(64, 64, scale=1e-5).abs(),)),
    "exponential near zero": Faulty(torch.expm1, lambda x: torch.exp(x) - 1, (normal(64, 64, scale=1e-5),)),
    "sine of a low angle": Faulty(
        torch.sin,
        lambda x: torch.sin(x - 2 * 3.140625 * torch.round(x / (2 * 3.14159265))),
        (normal(64, 64, scale=100),),
    ),
    "sign of zero": Faulty(
        lambda x: torch.minimum(x, torch.zeros_like(x)),
        lambda x: torch.minimum(x, torch.zeros_like(x)).abs().neg(),
        (SQUARE,),
    ),
}
