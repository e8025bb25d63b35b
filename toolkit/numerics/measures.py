"""How far is one tensor from another: relative RMSE, ulp distance, cosine similarity, largest difference.

Everything is computed in float64 (complex128) on the CPU over the elements that are finite in both. The ulp distance counts
the representable numbers between two values: a float's bits, read as a sign and a magnitude, are monotone in its value, so the
distance is a difference of integers (B. Dawson, Comparing Floating Point Numbers, 2012). Nothing is changed.

>>> ulp_distance(torch.tensor([1.0]), torch.tensor([1.0000001]))
tensor([1])
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LARGE = 1e150
"""Squares of numbers beyond it, or below its inverse, leave the range of float64."""
FAR = 2**63 - 1
"""The ulp distance of a NaN from a number."""


class Distance(NamedTuple):
    """How far one tensor is from another; `ulp` is None where the dtypes differ or are no floats."""

    largest: float
    cosine: float
    ulp: int | None


def distance(got: torch.Tensor, truth: torch.Tensor) -> Distance:
    """The measures of `got` against `truth`, which may be wider: it is rounded to `got`'s dtype for the ulp distance."""
    g, r = _finite(got, truth)
    ulp = None
    if got.is_floating_point() or got.is_complex():
        apart = ulp_distance(got, truth.detach().to(got.device).to(got.dtype))
        ulp = int(apart.max()) if apart.numel() else 0
    return Distance(float((g - r).abs().max()) if g.numel() else 0.0, _cosine(g, r), ulp)


def relative_rmse(got: torch.Tensor, truth: torch.Tensor) -> float:
    """RMS(got - truth) / RMS(truth); over 1 where the truth is all zero."""
    g, r = _finite(got, truth)
    if not g.numel():
        return 0.0
    scale = float(rms(r))
    return float(rms(g - r)) / (scale if scale else 1.0)


def ulp_distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """For each element the number of steps between the two values, as int64. +0 and -0 are 0 apart, so are two NaNs; a NaN is
    FAR from a number. Both must have one floating-point dtype, of any width. Complex numbers give a last dimension of two.
    """
    if one.dtype != other.dtype:
        raise TypeError(f"ulp distance of {one.dtype} and {other.dtype}: the dtypes must be equal")
    if one.is_complex():
        return ulp_distance(torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj()))
    if not one.is_floating_point():
        raise TypeError(f"ulp distance is for floating-point numbers, not for {one.dtype}")
    a, b = _ordered(one), _ordered(other)
    same_side = (a < 0) == (b < 0)
    # Opposite signs: the sum of two magnitudes below 2**63 may not fit.
    apart = torch.where(same_side, (a - b).abs(), a.abs() + b.abs())
    apart = torch.where(apart < 0, FAR, apart)
    nan_a, nan_b = _is_nan(one), _is_nan(other)
    return torch.where(nan_a & nan_b, 0, torch.where(nan_a ^ nan_b, FAR, apart))


def _ordered(tensor: torch.Tensor) -> torch.Tensor:
    """The bits as integers that grow with the value: the magnitude, negative for negative numbers."""
    bare = tensor.detach().to("cpu").contiguous()
    width = bare.element_size()
    bits = bare.view(_INT[width]).to(torch.int64)
    if width == 1:
        return bits if "e8m0" in str(bare.dtype) else torch.where(bits >= 128, 128 - bits, bits)
    smallest = -(2 ** (8 * width - 1))
    return torch.where(bits < 0, smallest - bits, bits)


def _is_nan(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().to("cpu")
    return torch.isnan(plain if plain.element_size() > 1 else plain.to(torch.float32))


def _finite(got: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    g, r = wide(got).flatten(), wide(truth).flatten()
    both = torch.isfinite(g) & torch.isfinite(r)
    return (g, r) if bool(both.all()) else (g[both], r[both])


def _cosine(g: torch.Tensor, r: torch.Tensor) -> float:
    """Of the angle between the two as vectors; 1 for two zeros, 0 for one."""
    a, b = float(rms(g)) if g.numel() else 0.0, float(rms(r)) if r.numel() else 0.0
    if a == 0.0 or b == 0.0:
        return 1.0 if a == b else 0.0
    return max(-1.0, min(1.0, float(((g / a) * (r / b).conj()).mean().real)))


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128, on the CPU."""
    plain = tensor.detach().to("cpu")
    return plain.to(torch.complex128 if plain.is_complex() else torch.float64)


def rms(values: torch.Tensor) -> torch.Tensor:
    """The root of the mean of the squares, also where the squares alone would leave the range of float64."""
    size = values.abs()
    largest = size.max() if size.numel() else size.sum()
    if bool(torch.isfinite(largest)) and bool((largest > LARGE) | ((largest > 0) & (largest < 1 / LARGE))):
        return (size / largest).square().mean().sqrt() * largest
    return size.square().mean().sqrt()
