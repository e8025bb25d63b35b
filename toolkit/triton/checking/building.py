# pyright: basic
"""The builder of checked runs: computes as the plain one does, and tells of signed integers that overflow and of assertions that
fail.

>>> with checking_builder(watch):
...     ...  # kernels run
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..interpreting.builder import BUILDER, Builder

_SIGNED = (np.dtype(np.int32), np.dtype(np.int64))
_FITS = 1 << 30
_MOST = float(1 << 63)


class Blind:
    """Hears of everything and tells nothing."""

    def overflowed(self, made: Any, lanes: np.ndarray) -> None:
        """An integer wrapped."""

    def asserted(self, lanes: np.ndarray, message: str) -> None:
        """An assertion failed."""


class CheckingBuilder(Builder):
    """`eye.overflowed(lanes)` and `eye.asserted(lanes, message)` hear of it; the class alone is put in, the builder stays the
    one that Triton's language has."""

    eye: Any = None

    def create_add(self, lhs: Any, rhs: Any) -> Any:
        made = super().create_add(lhs, rhs)
        if made.data.dtype in _SIGNED:
            a, b, r = lhs.data, rhs.data, made.data
            lanes = ((a ^ r) & (b ^ r)) < 0
            if lanes.any():
                self.eye.overflowed(made, lanes)
        return made

    def create_sub(self, lhs: Any, rhs: Any) -> Any:
        made = super().create_sub(lhs, rhs)
        if made.data.dtype in _SIGNED:
            a, b, r = lhs.data, rhs.data, made.data
            lanes = ((a ^ b) & (a ^ r)) < 0
            if lanes.any():
                self.eye.overflowed(made, lanes)
        return made

    def create_mul(self, lhs: Any, rhs: Any) -> Any:
        made = super().create_mul(lhs, rhs)
        if made.data.dtype in _SIGNED:
            lanes = _product_overflows(lhs.data, rhs.data, made.data)
            if lanes is not None:
                self.eye.overflowed(made, lanes)
        return made

    def create_shl(self, lhs: Any, rhs: Any) -> Any:
        made = super().create_shl(lhs, rhs)
        if made.data.dtype in _SIGNED:
            wide = lhs.data.astype(np.float64) * np.exp2(np.asarray(rhs.data, np.float64))
            lanes = made.data.astype(np.float64) != wide
            if lanes.any():
                self.eye.overflowed(made, lanes)
        return made

    def create_int_cast(self, src: Any, dst_type: Any, is_signed: Any) -> Any:
        made = Builder.create_int_cast(self, src, dst_type, is_signed)
        narrow, wide = made.data.dtype, src.data.dtype
        if narrow.kind == "i" and wide.kind == "i" and narrow.itemsize < wide.itemsize:
            lanes = made.data != src.data
            if lanes.any():
                self.eye.overflowed(made, lanes)
        return made

    def create_assert(self, condition: Any, message: Any) -> None:
        data = np.asarray(getattr(condition, "data", condition))
        if not data.all():
            self.eye.asserted(~data.astype(bool), str(getattr(message, "value", message)))


def _product_overflows(left: np.ndarray, right: np.ndarray, made: np.ndarray) -> np.ndarray | None:
    if made.dtype == np.int32:
        lanes = np.multiply(left, right, dtype=np.int64) != made
        return lanes if lanes.any() else None
    if not left.size or not right.size:
        return None
    if max(abs(int(left.min())), abs(int(left.max()))) < _FITS and max(abs(int(right.min())), abs(int(right.max()))) < _FITS:
        return None
    lanes = np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _MOST
    return lanes if lanes.any() else None


def plain_builder() -> contextlib.AbstractContextManager[None]:
    """While it is open, kernels compute as they do unchecked."""
    return checking_builder(None, Builder)


@contextlib.contextmanager
def checking_builder(eye: Any, kind: type[Builder] = CheckingBuilder) -> Iterator[None]:
    """While it is open, kernels compute with this class."""
    before, eye_before = type(BUILDER), CheckingBuilder.eye
    BUILDER.__class__ = kind
    CheckingBuilder.eye = eye
    try:
        yield
    finally:
        BUILDER.__class__ = before
        CheckingBuilder.eye = eye_before
