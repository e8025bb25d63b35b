"""One difference between a rung's outputs and eager's: the record that every comparison of this room returns; and what an error
relative to a size cannot tell, values that are no numbers and zeros whose sign is wrong.

A NaN or Inf where eager is finite is always told. Where eager itself is not finite (NaN, +Inf, -Inf) another value is wrong if
the float64 reference agrees with eager and no rounding decides it; without a reference nothing is known (a half that overflows
need not overflow in a fused kernel). The sign of a zero is wrong where eager and the reference have the same one.
Must not change any tensor.

>>> Difference("accuracy", 0, "", 0.5, "output 0: ...").kind
'accuracy'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from ...dumps.wording import counted
from ..signature import Form

SIGNED_ZERO = "signed zero"
ROUNDING = "rounding"
"""Details of an accuracy failure that is no wrong number by size: see `signed_zero` and `comparing.left_out`."""


class Difference(NamedTuple):
    """Kind, which output (-1: none in particular), what differs, for accuracy the relative error of the rung, a sentence, and the
    form of a wrong result.
    """

    kind: Literal["accuracy", "nan", "metadata"]
    output: int
    detail: str
    size: float | None
    text: str
    form: Form | None = None


def is_float(value: object) -> bool:
    """Whether a value is a dense tensor of floating-point or complex numbers."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and (value.is_floating_point() or value.is_complex())
    )


_NAMES = ("finite", "nan", "inf", "-inf")


def not_finite(
    index: int, truth: Any, want: Any, have: Any, flips: Callable[[int], int] = lambda output: 0
) -> Difference | None:
    """The first difference in what is finite, NaN or infinite. `flips`: how many elements rounding decides."""
    if not is_float(want) or not is_float(have) or want.shape != have.shape or not have.numel():
        return None
    finite = torch.isfinite(want)
    for name, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        extra = int((test(have) & finite).sum())
        if extra:
            text = f"output {index}: {extra} of {counted(have.numel(), 'element')} are {name} where eager's are finite"
            return Difference("nan", index, name, None, text)
    if bool(finite.all()) or not is_float(truth) or truth.shape != want.shape:
        return None
    wanted, got = classes(want), classes(have)
    other = (wanted != 0) & (got != wanted) & (classes(truth) == wanted)
    count = int(other.sum())
    if not count or count <= flips(index):
        return None
    first = other.flatten().nonzero()[0]
    is_now, was = (_NAMES[int(one.flatten()[first])] for one in (got, wanted))
    many = f"{count} of {counted(have.numel(), 'element')}"
    text = f"output {index}: {many} are not {was} as in eager and in float64 (the first is {is_now})"
    return Difference("nan", index, f"no {was.removeprefix('-')}", None, text)


def signed_zero(index: int, truth: Any, want: Any, have: Any) -> Difference | None:
    """Zeros whose sign is not that of eager's, where float64 has eager's."""
    values = (truth, want, have)
    if not all(is_float(one) and not one.is_complex() for one in values) or not want.shape == have.shape == truth.shape:
        return None
    if not want.numel() or want.element_size() == 1:
        return None
    zero = (want == 0) & (have == 0) & (truth == 0).to(want.device)
    minus, other, sure = (torch.signbit(one) for one in (want, have, truth.to(want.device)))
    wrong = zero & (minus != other) & (sure == minus)
    count = int(wrong.sum())
    if not count:
        return None
    sign = "-0.0" if bool(minus.flatten()[wrong.flatten().nonzero()[0]]) else "0.0"
    many = f"{count} of {counted(want.numel(), 'zero')}"
    text = f"output {index}: {many} have the other sign (the first is {sign} in eager and float64)"
    return Difference("accuracy", index, SIGNED_ZERO, None, text)


def classes(values: torch.Tensor) -> torch.Tensor:
    """0 where finite, 1 NaN, 2 Inf, 3 -Inf; a complex number with an infinite part counts as Inf."""
    found = torch.isnan(values).to(torch.int8)
    if values.is_complex():
        return torch.where(torch.isinf(values) & (found == 0), 2, found)
    found = torch.where(torch.isposinf(values), 2, found)
    return torch.where(torch.isneginf(values), 3, found)
