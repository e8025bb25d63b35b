"""Inductor's own random numbers, computed eagerly, so that a graph with dropout can be judged.

Inductor replaces random ops by prims whose eager implementation draws other numbers than the compiled kernel. These
functions draw the kernel's: Philox 4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011) with
the element's linear index as counter. C++ kernels take the low half of the seed as key (checked on 2.13.0), Triton's
`tl.rand` the whole of it, and fold negative words (checked on 2.11.0). Newer Triton kernels draw four numbers at a time
where their shape allows; `repeatable` is False for those.

>>> rand(3, torch.tensor(7)).shape
torch.Size([3])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .. import torch_private as t

_MASK = 0xFFFFFFFF
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_TO_UNIT = 4.6566127342e-10
_ROUNDS = 10


def repeatable(device: torch.device | str) -> bool:
    """Whether these functions give what kernels for that device draw."""
    kind = torch.device(device).type
    singly = kind == "cuda" and torch.version.hip is None and t.optional("TritonOverrides._can_use_4x_random") is None
    return kind == "cpu" or singly


def seeds(count: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """The seeds that a compiled graph draws from the device's generator at its start."""
    return torch.randint(-(2**63), 2**63 - 1, [count], dtype=torch.int64, device=device)


def rand(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    """Uniform float32 numbers in [0, 1)."""
    return rand_at(_indices(size, seed), seed)


def rand_at(index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `rand` at these linear indices."""
    return _unit(_words(index, seed)[0], seed)


def randn(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    """Normal float32 numbers, by Box and Muller from the first two words; computed in float64 like the kernel."""
    return randn_at(_indices(size, seed), seed)


def randn_at(index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `randn` at these linear indices."""
    u1, u2 = (_unit(word, seed) for word in _words(index, seed)[:2])
    if seed.is_cuda:
        return (-2.0 * u1.clamp_min(1.0e-7).log()).sqrt() * (2.0 * math.pi * u2).cos()
    u1, u2 = 1 - u1, 1 - u2
    return ((-2.0 * u1.log().double()).sqrt() * (2.0 * math.pi * u2.double()).cos()).float()


def randint(low: int, high: int, size: Sequence[int], seed: torch.Tensor) -> torch.Tensor:
    """Integers in [low, high): 64 random bits modulo the range."""
    return randint_at(low, high, _indices(size, seed), seed)


def randint_at(low: int, high: int, index: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    """The numbers of `randint` at these linear indices."""
    first, second = _words(index, seed)[:2]
    span = high - low
    # (second * 2^32 + first) mod span in pieces that fit int64; exact while span < 2^31
    return ((second % span) * (2**32 % span) + first % span) % span + low


def _indices(size: Sequence[int] | int, seed: torch.Tensor) -> torch.Tensor:
    shape = [size] if isinstance(size, int) else list(size)
    return torch.arange(math.prod(shape), dtype=torch.int64, device=seed.device).reshape(shape)


def _words(index: torch.Tensor, seed: torch.Tensor) -> list[torch.Tensor]:
    counter = [index & _MASK, index >> 32, torch.zeros_like(index), torch.zeros_like(index)]
    number = int(seed)
    key = [number & _MASK, (number >> 32) & _MASK if seed.is_cuda else 0]
    for _ in range(_ROUNDS):
        low0, high0 = _multiply(counter[0], _MULTIPLIERS[0])
        low1, high1 = _multiply(counter[2], _MULTIPLIERS[1])
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(part + weyl) & _MASK for part, weyl in zip(key, _WEYL, strict=True)]
    return counter


def _multiply(a: torch.Tensor, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Low and high 32 bits of a product of two unsigned 32-bit numbers, in int64 without overflow."""
    low_part = a * (b & 0xFFFF)
    high_part = a * (b >> 16) + (low_part >> 16)
    return ((high_part & 0xFFFF) << 16) | (low_part & 0xFFFF), high_part >> 16


def _unit(word: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
    if seed.is_cuda:  # as int32, a negative x being folded to -x - 1
        return torch.where(word > 0x7FFFFFFF, _MASK - word, word).float() * _TO_UNIT
    return (word & 0x7FFFFFFF).float() * _TO_UNIT
