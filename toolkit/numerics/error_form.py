"""Reads the form of a wrong result off its elements (see `signature.Form`). Changes no tensor.

>>> form_of(torch.ones(8, dtype=torch.float64), 3 * torch.ones(8), 1e5, 1e-5).factor
3.0
"""

from __future__ import annotations

import math

import torch

from ..signature import Form
from .measures import rms, wide

LEAST = 4
"""Fewer wrong elements have something in common by chance."""

CLOSE = 1e-3
"""What a common factor may leave unexplained of the error."""


def form_of(exact: torch.Tensor, got: torch.Tensor, over: float, tolerance: float) -> Form:
    """The form of wrong floats; `over` and `tolerance` as they were judged."""
    r, g = wide(exact), wide(got)
    finite = torch.isfinite(r) & torch.isfinite(g)
    r, g = r[finite], g[finite]
    if not r.numel():
        return Form()
    wrong = (g - r).abs() > tolerance * (r.abs() + rms(r))
    share = float(wrong.to(torch.float64).mean())
    return Form(r.numel(), share, over, common_factor(r[wrong], g[wrong]))


def common_factor(r: torch.Tensor, g: torch.Tensor) -> float | None:
    """The number by which all of `g` are `r`; None where there is none, or too few elements."""
    if r.numel() < LEAST or r.is_complex() or not bool((r != 0).any()):
        return None
    factor = float((g * r).sum() / (r * r).sum())
    if not math.isfinite(factor):
        return None
    return factor if float(rms(g - factor * r)) <= CLOSE * float(rms(g - r)) else None


def common_offset(eager: torch.Tensor, got: torch.Tensor) -> int | None:
    """The number by which all wrong integers are off; None where there is none, or too few elements."""
    if eager.numel() < LEAST or eager.dtype == torch.bool:
        return None
    apart = got.to(torch.int64) - eager.to(torch.int64)
    return int(apart[0]) if bool((apart == apart[0]).all()) else None
