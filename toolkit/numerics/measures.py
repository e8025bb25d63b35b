"""Distances between tensors: relative RMSE, ulp distance, cosine similarity, largest difference.

Everything is computed in float64 (complex128) on the CPU over the elements that are finite in both. The ulp distance
counts the representable numbers between two values: a float's bits, read as a sign and a magnitude, are monotone in its
value, so the distance is a difference of integers (B. Dawson, Comparing Floating Point Numbers, 2012). Nothing is
changed, nothing is run.

>>> ulp_distance(torch.tensor([1.0]), torch.tensor([1.0000001]))
tensor([1])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..verdicts.outcome import OutputError
from .comparison import errors_of, is_float, rms, testable, wide

_INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FAR = 2**63 - 1
"""The ulp distance between a NaN and a number."""


class Distance(NamedTuple):
    """How far one tensor is from another; `ulp` is None where the dtypes differ or are no floats."""

    largest: float
    cosine: float
    ulp: int | None


def distance(got: torch.Tensor, truth: torch.Tensor) -> Distance:
    """The measures of `got` against `truth`, which may be wider: it is rounded to `got`'s dtype for the ulp
    distance."""
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


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """For each element the number of steps between the two values, as int64. +0 and -0 are 0 apart, so are two NaNs; a
    NaN is FAR from a number. Both must have one floating-point dtype, of any width. Complex numbers give a last
    dimension of two.
    """
    if left.dtype != right.dtype:
        raise TypeError(f"ulp distance of {left.dtype} and {right.dtype}: the dtypes must be equal")
    if left.is_complex():
        return ulp_distance(torch.view_as_real(left.resolve_conj()), torch.view_as_real(right.resolve_conj()))
    if not left.is_floating_point():
        raise TypeError(f"ulp distance is for floating-point numbers, not for {left.dtype}")
    a, b = _ordered(left), _ordered(right)
    same_side = (a < 0) == (b < 0)
    # Opposite signs: the sum of two magnitudes below 2**63 may not fit.
    apart = torch.where(same_side, (a - b).abs(), a.abs() + b.abs())
    apart = torch.where(apart < 0, FAR, apart)
    nan_a, nan_b = _is_nan(left), _is_nan(right)
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
    return torch.isnan(testable(tensor.detach().to("cpu")))


def _finite(got: torch.Tensor, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    g, r = wide(got).flatten(), wide(truth).flatten()
    both = torch.isfinite(g) & torch.isfinite(r)
    return (g, r) if bool(both.all()) else (g[both], r[both])


def _cosine(g: torch.Tensor, r: torch.Tensor) -> float:
    """The cosine of the angle between the two as vectors; 1 for two zeros, 0 for one."""
    a, b = float(rms(g)) if g.numel() else 0.0, float(rms(r)) if r.numel() else 0.0
    if a == 0.0 or b == 0.0:
        return 1.0 if a == b else 0.0
    return max(-1.0, min(1.0, float(((g / a) * (r / b).conj()).mean().real)))


def output_errors(
    reference: Sequence[Any] | None, eager: Sequence[Any], got: Sequence[Any], names: Sequence[str]
) -> list[OutputError]:
    """The errors of each floating-point output, for a table; relative to float64, or to eager where there is no
    reference."""
    rows = []
    for index, (want, have) in enumerate(zip(eager, got, strict=False)):
        if not is_float(want) or not isinstance(have, torch.Tensor) or have.shape != want.shape:
            continue
        truth = want if reference is None else reference[index]
        rung, own, *_ = errors_of(truth, want, have)
        apart, name = distance(have, truth), names[index] if index < len(names) else ""
        own = None if reference is None else own
        rows.append(OutputError(name, rung, own, apart.largest, apart.ulp, apart.cosine))
    return rows
