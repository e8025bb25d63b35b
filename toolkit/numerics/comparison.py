"""Are these numbers wrong? Compares a rung's outputs with eager's and with a float64 run of the same graph.

The judgement, for each floating-point output with n elements, reference r (float64), eager e and rung g:

* relative error: err(x) = RMS(x - r) / RMS(r) over the elements where r, e and g are finite, RMS(v) = sqrt(mean(v^2)).
  Wrong when err(g) > FACTOR * err(e) + tolerance(dtype, reduction length), see `tolerance`. The ratio to eager's own
  error
  is the criterion of torch._dynamo's `same(fp64_ref=...)` (and of Higham, Accuracy and Stability of Numerical
  Algorithms,
  sec. 3.5: judge an algorithm by the error that rounding explains, not by closeness to another rounded result).
* element by element, so that one wrong value in a large tensor counts: |g_i - r_i| > ELEMENT_FACTOR * max_j |e_j - r_j|
  + ELEMENT_EPS * eps(dtype) * (|r_i| + RMS(r)).

A result computed by way of a coarser dtype (float32 behind a bfloat16 region) may be off by that dtype's eps, an
element by GRAIN_FACTOR of them: which way a value was rounded there is chance.

Where err(e) >= 1 eager has no digit right (a sum that cancels to nothing, like a bias's gradient before a batch norm):
what is left is rounding, whose size is chance, and NOISE_FACTOR takes the place of both factors. What is not noise is
larger by 1/eps.

Integers and booleans must be equal where eager agrees with the reference. What rounding alone may do (`noise`, see
`toolkit.judging.comparing`) convicts nobody: floats no further off than it moves them, as many discrete elements as it
decides. Without a reference eager takes its place with NO_REFERENCE times the tolerance.

A rung that nothing convicts and that is further from eager than the tolerance differs by `rounding`, but where eager's
error is BY_THEORY times the result: there the result is zero but for rounding (a key bias's gradient), and says
nothing. No tensor is changed.

Distances are computed in float64 (complex128) on the CPU over the elements that are finite in both. The ulp distance
counts the representable numbers between two values: a float's bits, read as a sign and a magnitude, are monotone in its
value, so the distance is a difference of integers (B. Dawson, Comparing Floating Point Numbers, 2012).

>>> compare([torch.ones(2, dtype=torch.float64)], [torch.ones(2)], [torch.zeros(2)]).kind
'accuracy'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple

import torch

from ...dumps.wording import counted
from ..live.execution import PACKED, as_bytes
from ..verdicts.outcome import OutputError
from ..verdicts.signature import Form
from ..verdicts.verdict import AT_RANDOM, DECIDED
from .tolerance import tolerance

FACTOR = 4.0
ELEMENT_FACTOR = 16.0
ELEMENT_EPS = 256.0
HALF_ELEMENT_EPS = 24.0
NOISE_FACTOR = 256.0
GRAIN_FACTOR = 4.0
NO_REFERENCE = 10.0
BY_THEORY = 1e4
STRIDE = "stride"
ENDLESS = 1e300


SIGNED_ZERO = "signed zero"

ROUNDING = "rounding"
"""Details of accuracy failures that the size of an error does not show: see `signed_zero` and `baseline.left_out`."""


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


def compare(
    reference: Sequence[Any] | None,
    eager: Sequence[Any],
    got: Sequence[Any],
    *,
    strides: Collection[int] = (),
    check: Collection[str] = ("metadata", "nan", "accuracy", "zero"),
    noise: Noises = lambda output: QUIET,
    rounding: Collection[int] = (),
    lengths: Sequence[int] = (),
    grains: Sequence[float] = (),
    signed: int | None = None,
    every_size: bool = False,
) -> Difference | None:
    """Returns the worst difference between a rung's outputs and eager's, or None. `strides`: outputs whose strides are
    promised; `noise`: what rounding may do to an output; `rounding`: outputs for which also a difference that rounding
    explains is returned, with that detail, where nothing else differs; `lengths`: the longest reduction behind each
    output, where known; `grains`: the largest eps on the way to each output (see `output_grains`; later results have
    the largest of all); `signed`: for how many outputs, counted from the first, the signs of zeros are compared (None:
    for all); `every_size`: compare strides of dimensions of size 1, too.

    Metadata is looked at first, then NaN and Inf, then numbers, then the signs of zeros (`zero`), but of sums; last
    strides: values that are wrong lie in another order, too.
    """
    if len(eager) != len(got):
        text = f"{counted(len(got), 'output')} instead of {len(eager)}"
        return Difference("metadata", -1, "number of outputs", None, text)
    rows = [
        (index, None if reference is None else reference[index], *pair)
        for index, pair in enumerate(zip(eager, got, strict=True))
    ]
    metadata = [_metadata(row[0], *row[2:], row[0] in strides, every_size) for row in rows if "metadata" in check]
    plain = min(filter(None, metadata), key=lambda candidate: candidate.detail == STRIDE, default=None)
    if plain is not None and plain.detail != STRIDE:
        return plain
    of_values = _of_values(rows, check, noise, rounding, lengths, grains, signed)
    return plain if plain is not None and (of_values is None or of_values.detail == ROUNDING) else of_values


def _of_values(
    rows: Sequence[tuple[int, Any, Any, Any]],
    check: Collection[str],
    noise: Noises,
    rounding: Collection[int],
    lengths: Sequence[int],
    grains: Sequence[float],
    signed: int | None,
) -> Difference | None:
    differences: list[Difference] = []
    if "nan" in check:
        for row in rows:
            if difference := not_finite(*row, noise, row[0] in rounding):
                if difference.detail != ROUNDING:
                    return difference
                differences.append(difference)
    if "accuracy" not in check:
        return None
    for index, truth, want, have in rows:
        length = lengths[index] if index < len(lengths) else 1
        grain = grains[index] if index < len(grains) else max(grains, default=0.0)
        if difference := _numbers(index, truth, want, have, noise, index in rounding, length, grain):
            differences.append(difference)
    worst = max(differences, key=lambda candidate: (candidate.detail != ROUNDING, candidate.size or 0.0), default=None)
    if worst is not None and worst.detail != ROUNDING:
        return worst._replace(text=f"{worst.text}{all_zero([row[2:] for row in rows], 'outputs')}")
    if all(row[1] is None for row in rows) or "zero" not in check:
        return worst
    exact = [row for row in rows[:signed] if row[0] >= len(lengths) or lengths[row[0]] <= 1]
    return next((candidate for candidate in (signed_zero(*row) for row in exact) if candidate), worst)


def all_zero(pairs: Collection[tuple[Any, Any]], what: str) -> str:
    """How many values are all zero where eager's are not (gradients that were lost, say), for the end of a sentence; ""
    where there are not several. `pairs`: eager's value and the other."""
    floats = [pair for pair in pairs if all(is_float(value) and value.element_size() > 1 for value in pair)]
    zero = sum(bool(want.any()) and not have.any() for want, have in floats)
    return f"; {zero} of {len(pairs)} {what} are all 0, eager's are not" if zero > 1 else ""


def _metadata(index: int, want: Any, have: Any, strict_stride: bool, every_size: bool = False) -> Difference | None:
    def differs(what: str, expected: object, got: object) -> Difference:
        return Difference("metadata", index, what, None, f"{what} is {got}, eager's is {expected}")

    if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
        if type(want) is type(have) or (isinstance(want, (int, float)) and isinstance(have, (int, float))):
            return None
        return differs("type", type(want).__name__, type(have).__name__)
    if want.shape != have.shape:
        return differs("shape", tuple(want.shape), tuple(have.shape))
    for what in ("dtype", "device", "layout"):
        if getattr(want, what) != getattr(have, what):
            return differs(what, getattr(want, what), getattr(have, what))
    looked_at = torch.Tensor.stride if every_size else significant_strides
    if strict_stride and want.layout == torch.strided and looked_at(want) != looked_at(have):
        return differs(STRIDE, want.stride(), have.stride())
    return None


def significant_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that matter: those of dimensions longer than one, of a tensor that is not empty."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def _numbers(
    index: int, truth: Any, want: Any, have: Any, noise: Noises, rounding: bool, length: int, grain: float
) -> Difference | None:
    if not isinstance(want, torch.Tensor):
        if not isinstance(want, (int, float)) or want == have or want != want:
            return None
        return Difference("accuracy", index, "", 1.0, f"{have}, eager gives {want}")
    if not isinstance(have, torch.Tensor) or want.shape != have.shape:
        return None
    if not want.numel() or want.layout != torch.strided:
        return None
    if not is_float(want):
        return _integers(index, truth, want, have, noise, rounding)
    exact = want if truth is None else truth
    rung, own, wrong, beyond = errors_of(exact, want, have, grain)
    allowed = max(tolerance(want.dtype, length), grain if grain > torch.finfo(want.dtype).eps else 0.0)
    limit = NO_REFERENCE * allowed if truth is None else (FACTOR if own < 1.0 else NOISE_FACTOR) * own + allowed
    right = rung <= limit and not wrong
    if right or (truth is not None and _explained(noise(index).apart, exact, want, have, limit, grain)):
        return _apart(index, exact, want, have, rung, own, allowed) if rounding and truth is not None else None
    against = "eager" if truth is None else f"float64 (eager's own: {own:.2g})"
    text = f"relative error {rung:.2g} to {against}, {wrong} of {counted(want.numel(), 'element')} far off"
    over = _finite(max(rung / limit if limit else 0.0, beyond))
    return Difference("accuracy", index, "", _finite(rung), text, form_of(exact, have, over, tolerance(want.dtype)))


def _finite(error: float) -> float:
    """An error as a number that JSON can hold: infinity (an all-zero reference) becomes ENDLESS."""
    return min(error, ENDLESS) if error == error else ENDLESS


def _apart(
    index: int, truth: torch.Tensor, want: torch.Tensor, have: torch.Tensor, rung: float, own: float, allowed: float
) -> Difference | None:
    """The difference `rounding`, where the rung is further from eager than the tolerance though nothing shows it to be
    wrong; else None."""
    r, e, g = all_finite(truth, want, have)
    scale = float(rms(r)) if r.numel() else 0.0
    apart = float(rms(g - e)) / scale if scale else 0.0
    if apart <= allowed or own >= BY_THEORY:
        return None
    nearer = ": compiled is nearer to it" if rung < own / 2 else ""
    errors = f"relative error {rung:.2g} to float64, eager's own {own:.2g}{nearer}"
    nothing = "and nothing shows that the compiler is wrong"
    if own < 1.0 and rung > FACTOR * own + allowed:
        nothing = AT_RANDOM
    text = f"{errors}; {apart:.2g} apart, {nothing}"
    return Difference("accuracy", index, ROUNDING, apart, text)


def _explained(
    noise: torch.Tensor | None, truth: torch.Tensor, want: torch.Tensor, have: torch.Tensor, limit: float, grain: float
) -> bool:
    """Whether a result is no further from float64 than rounding moves it, both in RMS and in each element. An element
    that rounding alone may make infinite or NaN is excused, and excuses no other."""
    if noise is None or noise.shape != truth.shape:
        return False
    r, e, g = (wide(tensor) for tensor in (truth, want, have))
    known = torch.isfinite(r) & torch.isfinite(e) & torch.isfinite(g)
    far = noise.to("cpu")
    if not bool((far[known] > 0).any()):
        return False
    bounded = known & torch.isfinite(far)
    if not bool(bounded.any()):
        return True
    r, e, g, far = r[bounded], e[bounded], g[bounded], far[bounded]
    most = float(rms(far)) + limit * float(rms(r))
    return float(rms(g - r)) <= most and bool(((g - r).abs() <= far.max() + _allowed(r, e, want.dtype, grain)).all())


def _integers(
    index: int, truth: Any, want: torch.Tensor, have: torch.Tensor, noise: Noises, rounding: bool
) -> Difference | None:
    of = f"of {counted(want.numel(), 'element')} differ from eager's ({want.dtype})"
    truth, want, have = as_bytes(truth), as_bytes(want), as_bytes(have)
    apart = want != have
    differ = apart if truth is None else apart & (truth.to(want.dtype) == want)
    wrong = int(differ.sum())
    if not wrong or wrong <= noise(index).flips:
        count = int(apart.sum())
        if not count or not rounding or truth is None:
            return None
        return Difference("accuracy", index, ROUNDING, count / want.numel(), f"{count} {of}, {DECIDED}")
    text, share = f"{wrong} {of}", wrong / want.numel()
    form = Form(want.numel(), share, offset=common_offset(want[differ], have[differ]))
    return Difference("accuracy", index, "integers", share, text, form)


def errors_of(
    truth: torch.Tensor, eager: torch.Tensor, got: torch.Tensor, grain: float = 0.0
) -> tuple[float, float, int, float]:
    """err(got), err(eager), how many elements are too far off, and the largest factor by which one is; over elements
    where all three are finite.
    """
    r, e, g = all_finite(truth, eager, got)
    if not r.numel():
        return 0.0, 0.0, 0, 0.0
    scale, rung, own = (float(rms(part)) for part in (r, g - r, e - r))
    scale = scale or 1.0
    allowed = _allowed(r, e, eager.dtype, grain)
    apart = (g - r).abs()
    wrong = int((apart > allowed).sum())
    return rung / scale, own / scale, wrong, float((apart / allowed).max()) if wrong else 0.0


def all_finite(*values: torch.Tensor) -> list[torch.Tensor]:
    """The given values in float64, at the elements that are finite in all of them."""
    wider = [wide(tensor) for tensor in values]
    finite = torch.isfinite(torch.stack(wider)).all(0)
    return wider if bool(finite.all()) else [tensor[finite] for tensor in wider]


def _allowed(r: torch.Tensor, e: torch.Tensor, dtype: torch.dtype, grain: float) -> torch.Tensor:
    """How far each element may be from float64, given eager's own errors and the dtype's eps."""
    scale, own = float(rms(r)) or 1.0, float(rms(e - r))
    whole = dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
    per_eps = ELEMENT_EPS if whole else HALF_ELEMENT_EPS
    own_eps = torch.finfo(dtype).eps
    share = max(per_eps * own_eps, GRAIN_FACTOR * grain if grain > own_eps else 0.0)
    factor = ELEMENT_FACTOR if own < scale else NOISE_FACTOR
    return factor * (e - r).abs().max() + share * (r.abs() + scale)


LEAST = 4
"""With fewer wrong elements a common factor or offset may be chance."""

CLOSE = 1e-3
"""The share of the error that a common factor may leave unexplained."""


def form_of(exact: torch.Tensor, got: torch.Tensor, over: float, tolerance: float) -> Form:
    """The form of wrong floats. `over`: see `Form`; `tolerance`: relative difference beyond which an element counts as
    wrong."""
    r, g = all_finite(exact, got)
    if not r.numel():
        return Form()
    wrong = (g - r).abs() > tolerance * (r.abs() + rms(r))
    share = float(wrong.to(torch.float64).mean())
    return Form(r.numel(), share, over, common_factor(r[wrong], g[wrong]))


def common_factor(r: torch.Tensor, g: torch.Tensor) -> float | None:
    """The factor f for which `g` is f * r in all elements; None where there is none, or there are too few elements."""
    if r.numel() < LEAST or r.is_complex() or not bool((r != 0).any()):
        return None
    factor = float((g * r).sum() / (r * r).sum())
    if not math.isfinite(factor):
        return None
    return factor if float(rms(g - factor * r)) <= CLOSE * float(rms(g - r)) else None


def common_offset(eager: torch.Tensor, got: torch.Tensor) -> int | None:
    """The number by which all wrong integers are off; None where there is no common one, or there are too few
    elements."""
    if eager.numel() < LEAST or eager.dtype == torch.bool:
        return None
    apart = got.to(torch.int64) - eager.to(torch.int64)
    return int(apart[0]) if bool((apart == apart[0]).all()) else None


LARGE = 1e150
"""Numbers beyond this, or below its inverse, have squares outside the range of float64."""


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


def is_float(value: object) -> bool:
    """Whether a value is a dense tensor of floating-point or complex numbers that torch can compute with."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dtype == PACKED or value.is_meta:
        return False
    return value.is_floating_point() or value.is_complex()


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


PACKED_EPS = 0.5
"""The eps of numbers with one bit of mantissa, packed two to a byte."""


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
    g, r = all_finite(got.flatten(), truth.flatten())
    ulp = None
    if got.is_floating_point() or got.is_complex():
        apart = ulp_distance(got, truth.detach().to(got.device).to(got.dtype))
        ulp = int(apart.max()) if apart.numel() else 0
    return Distance(float((g - r).abs().max()) if g.numel() else 0.0, _cosine(g, r), ulp)


def relative_rmse(got: torch.Tensor, truth: torch.Tensor) -> float:
    """RMS(got - truth) / RMS(truth); over 1 where the truth is all zero."""
    g, r = all_finite(got.flatten(), truth.flatten())
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
