"""One difference between a rung's outputs and eager's: the record that every comparison of this room returns.

>>> Difference("accuracy", 0, "", 0.5, "output 0: ...").kind
'accuracy'
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from ..signature import Form

SIGNED_ZERO = "signed zero"
ROUNDING = "rounding"
"""Details of an accuracy failure that is no wrong number by size: see `nonfinite.signed_zero` and `comparing.left_out`."""


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
