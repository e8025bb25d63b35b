"""Distances between tensors: relative RMSE, ulp distance, cosine similarity, largest difference; what a relative error
cannot show (values that are no numbers, zeros whose sign is wrong); and how much relative error rounding explains.

Everything is computed in float64 (complex128) on the CPU over the elements that are finite in both. The ulp distance
counts the representable numbers between two values: a float's bits, read as a sign and a magnitude, are monotone in its
value, so the distance is a difference of integers (B. Dawson, Comparing Floating Point Numbers, 2012). Nothing is
changed, nothing is run.

The length of a reduction is the number of input elements per output element, for a product of matrices its inner
dimension. It comes from recorded metadata alone (`meta["val"]`), with symbols at their hints; without metadata it is 1,
and the fixed part of a tolerance is all there is.

>>> ulp_distance(torch.tensor([1.0]), torch.tensor([1.0000001]))
tensor([1])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import fx

from ...dumps.allowlist import words
from ...dumps.torchside.node_meta import fake_of
from ...dumps.wording import counted
from ..live.execution import PACKED, leaves
from ..verdicts.signature import Form
from ..verdicts.verdict import DECIDED

_INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LARGE = 1e150
"""Numbers beyond this, or below its inverse, have squares outside the range of float64."""
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


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128, on the CPU."""
    plain = tensor.detach().to("cpu")
    return plain.to(torch.complex128 if plain.is_complex() else torch.float64)


def testable(values: torch.Tensor) -> torch.Tensor:
    """The values in a dtype for which torch has isnan and isinf: not all 8-bit dtypes have them."""
    return values.float() if values.element_size() == 1 else values


def rms(values: torch.Tensor) -> torch.Tensor:
    """The root of the mean of the squares, also where the squares alone would leave the range of float64."""
    size = values.abs()
    largest = size.max() if size.numel() else size.sum()
    if bool(torch.isfinite(largest)) and bool((largest > LARGE) | ((largest > 0) & (largest < 1 / LARGE))):
        return (size / largest).square().mean().sqrt() * largest
    return size.square().mean().sqrt()


SIGNED_ZERO = "signed zero"
ROUNDING = "rounding"
"""Details of accuracy failures that the size of an error does not show: see `signed_zero` and `comparing.left_out`."""


class Difference(NamedTuple):
    """One difference between a rung's outputs and eager's: the record that every comparison of this room returns.

    Kind, which output (-1: none in particular), what differs, for accuracy the relative error of the rung, a sentence,
    and the form of a wrong result.
    """

    kind: Literal["accuracy", "nan", "metadata"]
    output: int
    detail: str
    size: float | None
    text: str
    form: Form | None = None


def is_float(value: object) -> bool:
    """Whether a value is a dense tensor of floating-point or complex numbers that torch can compute with."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dtype == PACKED or value.is_meta:
        return False
    return value.is_floating_point() or value.is_complex()


class Noise(NamedTuple):
    """What rounding alone may do to one result. `flips`: how many discrete or non-finite elements it may change;
    `apart`: how far it may move each float (float64, in the result's shape; None: not at all)."""

    flips: int = 0
    apart: torch.Tensor | None = None


QUIET = Noise()
Noises = Callable[[int], Noise]
"""Place of a result -> its noise."""

EAGERS = ", nor are float64's"
"""Of elements that eager alone has as NaN or infinite."""
_NAMES = ("finite", "nan", "inf", "-inf")


def not_finite(
    index: int, truth: Any, want: Any, have: Any, noise: Noises = lambda output: QUIET, rounding: bool = False
) -> Difference | None:
    """The first difference in which elements are finite, NaN or infinite. `noise`: how many elements rounding may
    decide; `rounding`: whether a difference that it explains is returned, too.

    A NaN or Inf where eager is finite is wrong, unless rounding decides it: an overflow, or where eager has as many of
    its own beyond float64's. Where eager itself is not finite (NaN, +Inf, -Inf) another value is wrong if the float64
    reference agrees with eager and no rounding decides it, else it differs by rounding (a half that overflows need not
    overflow in a fused kernel); without a reference nothing is known.
    """
    if not is_float(want) or not is_float(have) or want.shape != have.shape or not have.numel():
        return None
    wanted, seen = map(testable, (want, have))
    finite, elements, rounded = torch.isfinite(wanted), counted(have.numel(), "element"), None
    for name, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        affected = test(seen) & finite
        count, edge, own = int(affected.sum()), 0, 0
        if count and is_float(truth) and truth.shape == want.shape:
            over = _overflows(truth, want, noise(index).apart)
            own = int((test(wanted) & torch.isfinite(truth).to(want.device) & ~over).sum())
            edge = int((affected & over).sum()) if name == "inf" else 0
        if count > edge:
            text = f"{count - edge} of {elements} are {name} where eager's are finite"
            if count - edge > own:
                return Difference("nan", index, name, None, text)
            text = f"{text}, {own} of eager's where float64's are, {DECIDED}"
        else:
            text = f"{edge} of {elements} overflow, {DECIDED}"
        if count and rounding:
            rounded = Difference("accuracy", index, ROUNDING, count / have.numel(), text)
    if bool(finite.all()) or not is_float(truth) or truth.shape != want.shape:
        return rounded
    wanted, got = classes(wanted), classes(seen)
    other = (wanted != 0) & (got != wanted)
    sure = other & (classes(truth).to(want.device) == wanted)
    explained = not bool(sure.any()) or int(sure.sum()) <= noise(index).flips
    differ = sure if bool(sure.any()) else other
    count = int(differ.sum())
    if not count or (explained and not rounding):
        return rounded
    first = differ.flatten().nonzero()[0]
    is_now, was = (_NAMES[int(kinds.flatten()[first])] for kinds in (got, wanted))
    if explained:
        nor = "" if bool(sure.any()) else EAGERS
        text = f"{count} of {elements} are not {was} as in eager (the first is {is_now}){nor}, {DECIDED}"
        return Difference("accuracy", index, ROUNDING, count / have.numel(), text)
    text = f"{count} of {elements} are not {was} as in eager and in float64 (the first is {is_now})"
    return Difference("nan", index, f"no {was.removeprefix('-')}", None, text)


def _overflows(truth: Any, want: torch.Tensor, apart: torch.Tensor | None) -> torch.Tensor:
    """A mask of values that may leave the dtype's range, when moved as far as rounding may move them."""
    if not is_float(truth) or truth.shape != want.shape:
        return torch.zeros_like(want, dtype=torch.bool)
    size = wide(truth).abs() + (0.0 if apart is None else apart.to("cpu"))
    limit = torch.finfo(want.dtype)
    return (size >= limit.max * (1 - limit.eps)).to(want.device)


def signed_zero(index: int, truth: Any, want: Any, have: Any) -> Difference | None:
    """The first zero whose sign differs from eager's, where float64 agrees with eager."""
    if not all(is_float(tensor) and not tensor.is_complex() for tensor in (truth, want, have)):
        return None
    if not want.shape == have.shape == truth.shape or not want.numel() or want.element_size() == 1:
        return None
    zero = (want == 0) & (have == 0) & (truth == 0).to(want.device)
    minus, other, sure = (torch.signbit(tensor) for tensor in (want, have, truth.to(want.device)))
    wrong = zero & (minus != other) & (sure == minus)
    count = int(wrong.sum())
    if not count:
        return None
    sign = "-0.0" if bool(minus.flatten()[wrong.flatten().nonzero()[0]]) else "0.0"
    many = f"{count} of {counted(want.numel(), 'zero')}"
    text = f"{many} have the other sign (the first is {sign} in eager and float64)"
    return Difference("accuracy", index, SIGNED_ZERO, None, text)


def classes(values: torch.Tensor) -> torch.Tensor:
    """0 where finite, 1 NaN, 2 Inf, 3 -Inf; a complex number with an infinite part counts as Inf."""
    kinds = torch.isnan(values).to(torch.int8)
    if values.is_complex():
        return torch.where(torch.isinf(values) & (kinds == 0), 2, kinds)
    kinds = torch.where(torch.isposinf(values), 2, kinds)
    return torch.where(torch.isneginf(values), 3, kinds)


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

PACKED_EPS = 0.5
"""The eps of numbers with one bit of mantissa, packed two to a byte."""

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


_CUMULATIVE = frozenset({"cumsum", "cumprod", "logcumsumexp"})
_REDUCING = _CUMULATIVE | frozenset({
    "sum", "mean", "var", "std", "var_mean", "std_mean", "prod", "logsumexp", "norm", "linalg_vector_norm", "nansum",
    "nanmean", "trace",
})  # fmt: skip
NORMALISING = words("""
    softmax _softmax log_softmax _log_softmax native_layer_norm layer_norm native_group_norm
    _native_batch_norm_legit native_batch_norm batch_norm group_norm instance_norm rms_norm
    _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward""")
_PRODUCT = words("""
    mm bmm matmul linear addmm baddbmm addmv mv dot vdot einsum _addmm_activation""")
_CONVOLUTION = words("""
    convolution conv1d conv2d conv3d _convolution convolution_backward conv_transpose2d""")


def reduction_length(node: fx.Node) -> int:
    """How many terms are reduced into one element of a node's value: 1 where nothing is reduced, or the length is
    unknown."""
    name = base_name(node)
    shapes = [shape for arg in node.all_input_nodes for shape in shapes_of(arg)]
    if not shapes:
        return 1
    if name in _PRODUCT:
        return _inner(node, name)
    if name in _CONVOLUTION:
        return max((_product(shape[1:]) for shape in shapes if len(shape) > 2), default=1)
    if "scaled_dot_product" in name:
        return max((max(shape[-2:]) for shape in shapes if len(shape) >= 2), default=1)
    if name in NORMALISING or name in _CUMULATIVE:
        return max(max(shape, default=1) for shape in shapes)
    if name not in _REDUCING:
        return 1
    out = max((_product(shape) for shape in shapes_of(node)), default=1)
    return max(1, max(map(_product, shapes)) // max(1, out))


def terms(node: fx.Node) -> int:
    """How many terms a sum, a mean or the like adds up for one element; 1 for any other operation."""
    return reduction_length(node) if base_name(node) in _REDUCING else 1


def output_lengths(gm: fx.GraphModule) -> list[int]:
    """For each flat output, the longest reduction among its ancestors."""
    return _on_the_way(gm, lambda node: reduction_length(node) if node.op in ("call_function", "call_method") else 1, 1)


def output_grains(gm: fx.GraphModule) -> list[float]:
    """For each flat output, the largest eps among the floating-point values that it is computed from; 0 where nothing
    is known.

    A float32 result behind a region in bfloat16 is as good as bfloat16.
    """
    return _on_the_way(gm, lambda node: 0.0 if node.op in ("placeholder", "get_attr") else _grain(node), 0.0)


def _on_the_way(gm: fx.GraphModule, own: Callable[[fx.Node], Any], least: Any) -> list[Any]:
    """For each flat output, the largest value of `own` among its ancestors; `least` where nothing is known."""
    largest: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            return [largest.get(getattr(leaf, "name", ""), least) for leaf in leaves(node.args[0])]
        largest[node.name] = max([own(node), *(largest.get(arg.name, least) for arg in node.all_input_nodes)])
    return []


def _grain(node: fx.Node) -> float:
    dtypes = [tensor.dtype for tensor in _tensors(node) if tensor.is_floating_point() or tensor.is_complex()]
    return max((PACKED_EPS if dtype == PACKED else torch.finfo(dtype).eps for dtype in dtypes), default=0.0)


def _inner(node: fx.Node, name: str) -> int:
    """The inner dimension of a product: the last dimension of the first factor."""
    factors = [shape for arg in node.args if isinstance(arg, fx.Node) for shape in shapes_of(arg)]
    if name in ("addmm", "baddbmm", "addmv", "_addmm_activation"):
        factors = factors[1:]
    return max(1, factors[0][-1]) if factors and factors[0] else 1


def base_name(node: fx.Node) -> str:
    """The name of the operation without namespace and overload."""
    if node.op == "call_method":
        return str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    return name.partition(".")[0]


def shapes_of(node: fx.Node) -> list[tuple[int, ...]]:
    """The shapes of a node's results, with symbolic sizes at their hints."""
    return [tuple(number(size) for size in tensor.shape) for tensor in _tensors(node)]


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    value = fake_of(node)
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def number(size: Any) -> int:
    """A size as a number, a symbolic one at its hint; 1 where it has none."""
    if isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)  # int(size) would guard on it
    return hint if isinstance(hint, int) else 1


def _product(sizes: tuple[int, ...]) -> int:
    return math.prod(max(1, size) for size in sizes)
