"""How much relative error rounding explains, by dtype and length of a reduction.

The length of a reduction is the number of input elements per output element, for a product of matrices its inner
dimension.

>>> tolerance(torch.float32), tolerance(torch.float32, 1 << 20) > 1e-5
(1e-05, True)
"""

from __future__ import annotations

import math

import torch

LAMBDA = 8.0
"""Lambda of `rounding_bound`: the bound then fails with probability at most 2k exp(-32), 3e-8 for a million terms."""

TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-10,
    torch.complex64: 1e-5,
}
"""Relative RMS error that is never called wrong, whatever the length: about 100 eps for float32 (Inductor's vectorised
exp, tanh and the like are good to a few ulp, and errors add up over a graph), 4 eps for half precision, where Inductor
keeps float32 between fused operations."""

LOOSE = 0.25
"""The tolerance of a dtype that is not in the table (float8 and narrower)."""


def tolerance(dtype: torch.dtype, length: int = 1) -> float:
    """The relative RMS error that is never called wrong after a reduction of `length` terms."""
    return max(TOLERANCE.get(dtype, LOOSE), rounding_bound(dtype, length))


def rounding_bound(dtype: torch.dtype, length: int = 1) -> float:
    """gamma~ for `length` terms, plus the rounding of the result to a narrower dtype.

    Source of the growth with the length k: N. J. Higham and T. Mary, A New Approach to Probabilistic Rounding Error
    Analysis, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4: a sum or inner product of k terms has, with probability at
    least 1 - 2k exp(-lambda^2 / 2 (1 - u)^2), a backward error of at most

        gamma~_k(lambda) = exp(lambda sqrt(k) u + k u^2 / (1 - u)) - 1   (about lambda sqrt(k) u),

    where the worst case of the classic analysis is k u. u is the unit roundoff (half of eps) of the dtype in which the
    terms are added, which for half precision is float32: eager's kernels and Inductor's both add up in float32 and
    round once at the end. Cancellation makes the forward error larger; a judgement allows for it by eager's own error
    beside this bound.
    """
    k = max(1, length)
    u = unit_roundoff(summed_in(dtype))
    bound = math.expm1(min(LAMBDA * math.sqrt(k) * u + k * u * u / (1.0 - u), 1.0))
    return bound + (unit_roundoff(dtype) if summed_in(dtype) != dtype else 0.0)


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half of eps: the largest relative error of rounding to nearest."""
    return torch.finfo(dtype).eps / 2.0


def summed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which kernels add up terms of a dtype: the same, but float32 for any narrower one."""
    narrow = dtype.is_floating_point and dtype not in (torch.float32, torch.float64)
    return torch.float32 if narrow else dtype
