"""The form of a wrong result: what tells one wrong-number bug from another and from rounding, and survives a reduction.

Kept: how many elements are wrong, how far the error is beyond what rounding explains, and, where it is sharp, the constant factor
by which all floats are wrong or the number by which all wrong integers are off. Cutting a graph smears or gathers an error, so
only what both forms say sharply must agree. Imports no torch.

>>> alike(Form(count=640, wrong=1.0, factor=2.0), Form(count=64, wrong=1.0, factor=3.0))
False
"""

from __future__ import annotations

import msgspec

SURE, STILL = 100.0, 3.0
"""What was that far beyond rounding must stay this far."""

FEW, MANY, LEAST = 0.02, 0.5, 64
"""A few wrong elements do not become most of at least so many: nothing that is cut off a graph spreads an error."""

SHARP = 0.01
"""How far two factors may be apart to be one."""


class Form(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` elements, `wrong` of them as a share; `over`: the error over what rounding explains, 0 where that has no meaning;
    `factor`, `offset`: what all wrong elements have in common, if anything.
    """

    count: int = 0
    wrong: float = 0.0
    over: float = 0.0
    factor: float | None = None
    offset: int | None = None


def alike(wanted: Form | None, found: Form | None) -> bool:
    """Whether a smaller case's wrong result can be the original's. True where one of them is not known."""
    if wanted is None or found is None:
        return True
    if wanted.over >= SURE and 0.0 < found.over < STILL:
        return False
    if wanted.wrong <= FEW and wanted.count >= LEAST and found.wrong >= MANY and found.count >= LEAST:
        return False
    if wanted.factor is not None and found.factor is not None and not _one_factor(wanted.factor, found.factor):
        return False
    return wanted.offset is None or found.offset is None or abs(wanted.offset) == abs(found.offset)


def _one_factor(one: float, other: float) -> bool:
    """Equal, or what a reciprocal, a square or a root makes of each other."""
    known = (one, 1.0 / one, one * one, abs(one) ** 0.5) if one else (one,)
    return any(abs(value - other) <= SHARP * abs(value) for value in known)
