# pyright: basic
"""CUDA's library of device functions on NumPy arrays, by their symbols: `__nv_erff`, `__nv_powi`.

float32 functions are computed in float64 and rounded once, so they are closer to the truth than a GPU's, whose errors
of up to a few units in the last place are listed in the CUDA Math API. A symbol that is not here is named, never
guessed.

>>> function("__nv_rsqrtf")(np.array([4.0], np.float32))
array([0.5], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...live.rung import CannotRun

Function = Callable[..., Any]


class MissingFunction(CannotRun):
    """A function of libdevice that is not in the table."""

    def __init__(self, symbol: str) -> None:
        super().__init__(
            f"the interpreter has no {symbol}: a kernel calls a libdevice function that is not in its table"
        )


def function(symbol: str) -> Function:
    """The function of a symbol. Raises MissingFunction."""
    known = BITS.get(symbol)
    if known is not None:
        return known
    base = symbol.removeprefix("__nv_")
    for name in (base, base.removesuffix("f"), base.removesuffix("d"), base.removesuffix("ll")):
        if name in REAL:
            return _rounded(REAL[name])
        if name in WHOLE:
            return WHOLE[name]
    raise MissingFunction(symbol)


def _rounded(wide: Function) -> Function:
    """A function that computes in float64 and rounds to the type of the first floating argument."""

    def call(*arguments: np.ndarray) -> np.ndarray:
        kind = next((array.dtype for array in arguments if array.dtype.kind == "f"), np.dtype(np.float64))
        given = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arguments]
        output = np.asarray(wide(*given))
        return output.astype(kind) if output.dtype.kind == "f" else output

    return call


def _torch(function: Callable[..., torch.Tensor]) -> Function:
    def call(*arguments: np.ndarray) -> np.ndarray:
        tensors = [torch.from_numpy(np.array(array, np.float64)) for array in np.broadcast_arrays(*arguments)]
        return function(*tensors).numpy()

    return call


def _round_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(0.5, x)) if x.dtype.kind == "f" else x


def _ilogb(x: np.ndarray) -> np.ndarray:
    """The exponent as an integer; of zero the smallest, of infinity and NaN the largest (CUDA Math API)."""
    exponent = np.where(np.isfinite(x) & (x != 0), np.frexp(np.where(np.isfinite(x), x, 1))[1] - 1, 2**31 - 1)
    return np.where(np.isnan(x) | (x == 0), -(2**31), exponent).astype(np.int32)


def _logb(x: np.ndarray) -> np.ndarray:
    exponent = np.where(x == 0, -np.inf, (np.frexp(np.where(np.isfinite(x), x, 1))[1] - 1).astype(np.float64))
    return np.where(np.isfinite(x), exponent, np.abs(x))


def integer(x: np.ndarray, kind: Any) -> np.ndarray:
    """Whole numbers as integers: saturated, with NaN as zero."""
    limits = np.iinfo(kind)
    safe = np.nan_to_num(x, nan=0.0, posinf=float(limits.max), neginf=float(limits.min))
    high, low = safe >= float(limits.max), safe <= float(limits.min)
    whole = np.where(high | low, 0, safe).astype(kind)
    return np.where(high, limits.max, np.where(low, limits.min, whole)).astype(kind)


_special = torch.special
REAL: dict[str, Function] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos, "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)), "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cyl_bessel_i0": _torch(_special.i0), "cyl_bessel_i1": _torch(_special.i1), "erf": _torch(torch.erf),
    "erfc": _torch(torch.erfc), "erfinv": _torch(torch.erfinv), "erfcinv": _torch(lambda x: torch.erfinv(1 - x)),
    "erfcx": _torch(_special.erfcx), "exp": np.exp, "exp10": lambda x: np.power(10.0, x), "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs, "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x - y, 0)),
    "floor": np.floor,
    "fma": lambda x, y, z: x * y + z, "fmod": np.fmod, "hypot": np.hypot, "j0": _torch(_special.bessel_j0),
    "j1": _torch(_special.bessel_j1), "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "lgamma": _torch(torch.lgamma),
    "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "logb": _logb, "nearbyint": np.rint,
    "normcdf": _torch(_special.ndtr), "normcdfinv": _torch(_special.ndtri), "pow": np.power,
    "powi": lambda x, n: np.power(x, n.astype(np.float64)),
    "rcbrt": lambda x: 1 / np.cbrt(x), "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "rint": np.rint, "round": _round_away, "rsqrt": lambda x: 1 / np.sqrt(x),
    "scalbn": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    "tgamma": _torch(lambda x: torch.exp(torch.lgamma(x)) * _sign_of_gamma(x)), "trunc": np.trunc,
    "y0": _torch(_special.bessel_y0),
    "y1": _torch(_special.bessel_y1), "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w), "saturate": lambda x: np.nan_to_num(np.clip(x,
    0, 1)),
    "fast_cos": np.cos, "fast_exp10": lambda x: np.power(10.0, x), "fast_exp": np.exp, "fast_fdivide": np.divide,
    "fast_log10": np.log10, "fast_log2": np.log2, "fast_log": np.log, "fast_pow": np.power, "fast_sin": np.sin,
    "fast_tan": np.tan,
    "fast_tanh": np.tanh, "fadd_rn": np.add, "dadd_rn": np.add, "fsub_rn": np.subtract, "dsub_rn": np.subtract,
    "fmul_rn": np.multiply, "dmul_rn": np.multiply, "fdiv_rn": np.divide, "ddiv_rn": np.divide,
    "fma_rn": lambda x, y, z: x * y + z,
    "fmaf_rn": lambda x, y, z: x * y + z, "frcp_rn": lambda x: 1 / x, "drcp_rn": lambda x: 1 / x, "fsqrt_rn": np.sqrt,
    "dsqrt_rn": np.sqrt, "frsqrt_rn": lambda x: 1 / np.sqrt(x),
}  # fmt: skip
"""Functions of real numbers, by name without the suffix of the type; arguments in float64, integers as they are."""


def _sign_of_gamma(x: torch.Tensor) -> torch.Tensor:
    odd = (torch.floor(x).to(torch.int64) % 2) != 0
    return torch.where((x < 0) & odd, -1.0, 1.0)


def _of_bits(count: Callable[[int, int], int]) -> Function:
    """Applies `count(bits, width)` to each element's bits, read as unsigned."""

    def call(x: np.ndarray) -> np.ndarray:
        width = x.dtype.itemsize * 8
        return np.vectorize(lambda number: count(int(number) & ((1 << width) - 1), width), otypes=[np.int32])(x)

    return call


_count_bits = _of_bits(lambda bits, _: bits.bit_count())
_leading_zeros = _of_bits(lambda bits, width: width - bits.bit_length())
_find_first = _of_bits(lambda bits, _: (bits & -bits).bit_length())


def _high_half(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    width = x.dtype.itemsize * 8
    kind = x.dtype

    def call(left: Any, right: Any) -> Any:
        bits = ((int(left) * int(right)) >> width) & ((1 << width) - 1)
        return bits - (1 << width) if kind.kind == "i" and bits >> (width - 1) else bits

    return np.vectorize(call, otypes=[kind])(x, y)


WHOLE: dict[str, Function] = {
    "abs": np.abs,
    "llabs": np.abs,
    "isnan": lambda x: np.isnan(x).astype(np.int32),
    "isinf": lambda x: np.isinf(x).astype(np.int32),
    "finite": lambda x: np.isfinite(x).astype(np.int32),
    "isfinite": lambda x: np.isfinite(x).astype(np.int32),
    "signbit": lambda x: np.signbit(x).astype(np.int32),
    "nextafter": lambda x, y: np.nextafter(x, y.astype(x.dtype)),
    "ilogb": _ilogb,
    "llrint": lambda x: integer(np.rint(x), np.int64),
    "llround": lambda x: integer(_round_away(x), np.int64),
    "popc": _count_bits,
    "clz": _leading_zeros,
    "ffs": _find_first,
    "mulhi": _high_half,
    "mul64hi": _high_half,
    "umulhi": _high_half,
    "umul64hi": _high_half,
    "hadd": lambda x, y: (x & y) + ((x ^ y) >> 1),
    "rhadd": lambda x, y: (x | y) - ((x ^ y) >> 1),
    "uhadd": lambda x, y: (x & y) + ((x ^ y) >> 1),
    "urhadd": lambda x, y: (x | y) - ((x ^ y) >> 1),
}
"""Functions with a fixed result type, or with integer arguments."""


def _conversions() -> dict[str, Function]:
    """`__nv_float2int_rn` and similar functions, rounded as their last two letters say."""
    rounding = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
    kinds = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
    functions: dict[str, Function] = {}
    for way, round_ in rounding.items():
        for name, kind in kinds.items():
            for source in ("float", "double"):
                functions[f"__nv_{source}2{name}_{way}"] = lambda x, r=round_, k=kind: integer(r(x), k)
    for name in kinds:
        functions[f"__nv_{name}2float_rn"] = lambda x: x.astype(np.float32)
        functions[f"__nv_{name}2double_rn"] = lambda x: x.astype(np.float64)
    functions["__nv_double2float_rn"] = lambda x: x.astype(np.float32)
    return functions


BITS: dict[str, Function] = {
    **_conversions(),
    "__nv_float_as_int": lambda x: x.view(np.int32),
    "__nv_float_as_uint": lambda x: x.view(np.uint32),
    "__nv_int_as_float": lambda x: x.view(np.float32),
    "__nv_uint_as_float": lambda x: x.view(np.float32),
    "__nv_double_as_longlong": lambda x: x.view(np.int64),
    "__nv_longlong_as_double": lambda x: x.view(np.float64),
}
"""Symbols that convert to another type, or reinterpret the bits."""
