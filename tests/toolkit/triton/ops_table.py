"""Every operation that Inductor writes into Triton kernels, as a function of tensors: name of the operation ->
function, inputs.

The names are those of Inductor's `TritonOverrides` and of its handlers' other operations. `FLOATS` take floating-point
tensors and are tried in each type; `OTHERS` bring inputs of their own; `ELSEWHERE` says where the rest is tested, or
why no kernel holds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import inductor_prims

Function = Callable[..., Any]
special, _seed = torch.special, inductor_prims.lookup_seed
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.5, 1e-3, 20.0, -20.0]
"""Values that go wrong first."""


def values(dtype: torch.dtype, low: float = -4.0, high: float = 4.0) -> torch.Tensor:
    """Ordinary and odd ones."""
    return torch.cat([torch.tensor(ODD, dtype=torch.float64), torch.linspace(low, high, 50, dtype=torch.float64)]).to(
        dtype
    )


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Each odd value beside each."""
    item = torch.tensor(ODD, dtype=torch.float64).to(dtype)
    left, right = torch.meshgrid(item, item, indexing="ij")
    return left.reshape(-1).contiguous(), right.reshape(-1).contiguous()


def _finite(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(0, 3, -3)  # Inductor's floor division of infinities is not eager's, on no device


FLOATS: dict[str, Function] = {
    "abs": torch.abs,
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atanh": torch.atanh,
    "bessel_j0": special.bessel_j0,
    "bessel_j1": special.bessel_j1,
    "bessel_y0": special.bessel_y0,
    "bessel_y1": special.bessel_y1,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcx": special.erfcx,
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "frexp": lambda x: list(torch.frexp(x)),
    "i0": torch.i0,
    "i1": special.i1,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "logical_not": torch.logical_not,
    "modified_bessel_i0": special.modified_bessel_i0,
    "modified_bessel_i1": special.modified_bessel_i1,
    "ndtr": special.ndtr,
    "log_ndtr": special.log_ndtr,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "relu": torch.relu,
    "round": torch.round,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "sign": torch.sign,
    "signbit": torch.signbit,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "constant": lambda x: x + 0.1,
    "masked": lambda x: torch.constant_pad_nd(x, [3, 5], 2.0),
    "identity": lambda x: x.clone(),
    "index_expr": lambda x: x + torch.arange(x.numel(), dtype=x.dtype),
    "to_dtype_bitcast": lambda x: x.view(_BITS[x.dtype]) ^ 1,
    "reduction": lambda x: [
        x.nan_to_num(0, 1, -1).sum(),
        x.amax(),
        x.nan_to_num(0, 1, -1).prod(),
        x.argmin(),
        (x > 3).any(),
    ],
    "sort": lambda x: list(x.reshape(5, 13).sort(stable=True, dim=-1)),
    "store_reduction": lambda x: x.reshape(5, 13)[:, 5:].sum(1),
}
PAIRS: dict[str, Function] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "nextafter": torch.nextafter,
    "pow": torch.pow,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "floordiv": lambda x, y: torch.div(_finite(x), _finite(y) + 0.25, rounding_mode="floor"),
    "truncdiv": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "fma": lambda x, y: torch.addcmul(x, x, y, value=1),
    "div_rn": lambda x, y: x / y + 1,
    "mul_rn": lambda x, y: torch.addcmul(y, x, y, value=2),
}
_BITS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
NOT_THERE: dict[tuple[str, torch.dtype], str] = {
    ("signbit", torch.float64): "Inductor asks x < 0 of float64, which -0.0 is not",
    ("nextafter", torch.bfloat16): "Inductor steps in float32 and rounds back",
    ("nextafter", torch.float16): "Inductor steps in float32 and rounds back",
}
if torch.__version__ < (2, 13):
    NOT_THERE |= {("frexp", dtype): "Triton's exponent of infinity and NaN is not 0" for dtype in _BITS}
"""Where Inductor's kernels are not eager's on a GPU either."""
NO_HALF = {
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "erfcx",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "ndtri",
    "log_ndtr",
    "i0e",
    "i1",
    "i1e",
}
"""Those that torch has not for 16 bits on the CPU."""

WHOLE = torch.tensor([7, -7, 1, -1, 0, 100, -100, 5])
BY = torch.tensor([3, 3, -2, 2, 5, 7, -7, 1])
SHIFTS = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7])
TABLE = torch.linspace(0, 1, 12).reshape(4, 3)

OTHERS: dict[str, tuple[Function, list[Any]]] = {
    "add": (lambda x, y: [x + y, x - y, x * y], [WHOLE, BY]),
    "int floordiv": (
        lambda x, y: [x // y, torch.div(x, y, rounding_mode="trunc"), x % y, torch.fmod(x, y)],
        [WHOLE, BY],
    ),
    "int floordiv 8": (
        lambda x, y: [x // y, torch.div(x, y, rounding_mode="trunc"), x % y],
        [WHOLE.to(torch.int8), BY.to(torch.int8)],
    ),
    "uint8": (
        lambda x, y: [x + y, x * y, x // y, x >> 1, x.float()],
        [SHIFTS.to(torch.uint8) * 37, BY.abs().to(torch.uint8)],
    ),
    "int_truediv": (lambda x, y: x / y, [WHOLE, BY]),
    "bitwise_and": (torch.bitwise_and, [WHOLE, BY]),
    "bitwise_or": (torch.bitwise_or, [WHOLE, BY]),
    "bitwise_xor": (torch.bitwise_xor, [WHOLE, BY]),
    "bitwise_not": (torch.bitwise_not, [WHOLE]),
    "bitwise_left_shift": (torch.bitwise_left_shift, [WHOLE, SHIFTS]),
    "bitwise_right_shift": (torch.bitwise_right_shift, [WHOLE, SHIFTS]),
    "bitwise_right_shift 16": (torch.bitwise_right_shift, [WHOLE.to(torch.int16), SHIFTS.to(torch.int16)]),
    "and_": (lambda x, y: [(x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0)], [WHOLE, BY]),
    "int abs": (lambda x: [x.abs(), -x, x.sign(), x.relu(), x * x], [WHOLE]),
    "int pow": (lambda x: [x**2, x**3], [WHOLE]),
    "int minimum": (lambda x, y: [torch.maximum(x, y), torch.minimum(x, y), x.amax(), y.argmin()], [WHOLE, BY]),
    "to_dtype": (
        lambda x: [
            x.to(kind)
            for kind in (
                torch.int8,
                torch.int16,
                torch.int32,
                torch.int64,
                torch.uint8,
                torch.bool,
                torch.float16,
                torch.bfloat16,
                torch.float64,
            )
        ],
        [torch.tensor([0.0, 1.9, -1.9, 100.7, -100.2, 0.4])],
    ),
    "ceil_to_int": (
        lambda x: [
            x.ceil().to(torch.int32),
            x.floor().to(torch.int64),
            x.round().to(torch.int32),
            x.trunc().to(torch.int64),
        ],
        [torch.linspace(-4, 4, 33)],
    ),
    "ldexp": (lambda x, n: torch.ldexp(x, n), [torch.linspace(-2, 2, 8), WHOLE.clamp(-30, 30).to(torch.int32)]),
    "bucketize": (
        lambda x, edges: [torch.bucketize(x, edges), torch.bucketize(x, edges, right=True)],
        [torch.linspace(-1, 6, 40), torch.tensor([0.0, 1.0, 2.5, 4.0, 5.0])],
    ),
    "indirect_indexing": (lambda table, at: table[at], [TABLE, torch.tensor([3, 0, -1, 2])]),
    "store": (lambda x, at, y: x.index_put((at,), y), [TABLE, torch.tensor([3, 0]), torch.ones(2, 3)]),
    "scan": (
        lambda x: [x.cumsum(-1), x.cumprod(-1), x.logcumsumexp(-1), *x.cummax(-1)],
        [torch.linspace(-1, 1, 60).reshape(4, 15)],
    ),
    "sort": (lambda x: list(x.sort(-1, descending=True)), [WHOLE.reshape(2, 4)]),
    "load_seed": (lambda seeds: inductor_prims.random([64], _seed(seeds, 1), "rand"), [torch.tensor([3, 9])]),
    "randn": (lambda seeds: inductor_prims.random([64], _seed(seeds, 0), "randn"), [torch.tensor([3, 9])]),
    "randint64": (lambda seeds: inductor_prims.randint(5, 90, [64], _seed(seeds, 0)), [torch.tensor([3, 9])]),
    "dot": (lambda x, y: x.sin() @ y, [torch.randn(8, 8), torch.randn(8, 8)]),
}

_CALLED = "Inductor calls the library, or builds it of other operations"
ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        (
            "airy_ai",
            "digamma",
            "gammainc",
            "gammaincc",
            "igamma",
            "igammac",
            "i0e",
            "i1e",
            "ndtri",
            "log_ndtr",
            "polygamma",
            "zeta",
            "modified_bessel_k0",
            "modified_bessel_k1",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
            "spherical_bessel_j0",
            "chebyshev_polynomial_t",
            "chebyshev_polynomial_u",
            "chebyshev_polynomial_v",
            "chebyshev_polynomial_w",
            "legendre_polynomial_p",
            "shifted_chebyshev_polynomial_t",
            "shifted_chebyshev_polynomial_u",
            "shifted_chebyshev_polynomial_v",
            "shifted_chebyshev_polynomial_w",
            "hermite_polynomial_h",
            "hermite_polynomial_he",
            "laguerre_polynomial_l",
        ),
        _CALLED,
    ),
    **dict.fromkeys(("load", "output", "placeholder"), "every kernel"),
    **dict.fromkeys(("check_bounds", "device_assert_async"), "test_interpret_faults"),
    **dict.fromkeys(("floor_to_int", "round_to_int", "trunc_to_int"), "ceil_to_int"),
    **dict.fromkeys(("or_", "xor"), "and_"),
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "mod": "int floordiv",
    "rand": "load_seed",
    "rand_eager": "only where Inductor is told to draw as eager does, which needs a GPU's generator",
    "value_expr": "sizes with symbols: test_interpret",
    "partial_accumulate": "mixed-order reductions: test_interpret",
    "halide_clamp": "of another backend",
    "inline_asm_elementwise": "test_interpret_faults",
}
