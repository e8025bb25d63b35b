# pyright: basic
"""The builder of checked runs: computes as the plain one does, and reports signed integers that overflow and assertions
that fail.

For example:

    with checking_builder(watch):
        ...  # kernels run
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..triton.interpreting.builder import BUILDER, Builder

_SIGNED = (np.dtype(np.int32), np.dtype(np.int64))
_FITS = 1 << 30
_MOST = float(1 << 63)


def _noting_overflow(name: str, overflow: Callable[[Any, Any, Any], Any]) -> Any:
    """An operation on two integers that reports the lanes where signed integers overflow."""
    usual = getattr(Builder, name)

    def call(self: Any, lhs: Any, rhs: Any) -> Any:
        output = usual(self, lhs, rhs)
        if output.data.dtype in _SIGNED:
            lanes = overflow(lhs.data, rhs.data, output.data)
            if lanes.any():
                self.eye.overflowed(output, lanes)
        return output

    return call


def _product_overflows(left: np.ndarray, right: np.ndarray, product: np.ndarray) -> Any:
    if product.dtype == np.int32:
        return np.multiply(left, right, dtype=np.int64) != product
    if not left.size or not right.size:
        return np.False_
    if (
        max(abs(int(left.min())), abs(int(left.max()))) < _FITS
        and max(abs(int(right.min())), abs(int(right.max()))) < _FITS
    ):
        return np.False_
    return np.abs(left.astype(np.float64) * right.astype(np.float64)) >= _MOST


class CheckingBuilder(Builder):
    """`eye.overflowed(output, lanes)` and `eye.asserted(lanes, message)` are called; only the class of Triton's own
    builder object is replaced."""

    eye: Any = None
    create_add = _noting_overflow("create_add", lambda a, b, output: ((a ^ output) & (b ^ output)) < 0)
    create_sub = _noting_overflow("create_sub", lambda a, b, output: ((a ^ b) & (a ^ output)) < 0)
    create_mul = _noting_overflow("create_mul", _product_overflows)
    create_shl = _noting_overflow(
        "create_shl", lambda a, b, output: output.astype(float) != a.astype(float) * np.exp2(b.astype(float))
    )

    def create_int_cast(self, src: Any, dst_type: Any, is_signed: Any) -> Any:
        output = super().create_int_cast(src, dst_type, is_signed)
        narrow, wide = output.data.dtype, src.data.dtype
        if narrow.kind == "i" and wide.kind == "i" and narrow.itemsize < wide.itemsize:
            lanes = output.data != src.data
            if lanes.any():
                self.eye.overflowed(output, lanes)
        return output

    def create_assert(self, condition: Any, message: Any) -> None:
        data = np.asarray(getattr(condition, "data", condition))
        if not data.all():
            self.eye.asserted(~data.astype(bool), str(getattr(message, "value", message)))


class LenientBuilder(Builder):
    """Goes on where an assertion fails."""

    def create_assert(self, condition: Any, message: Any) -> None:
        """Does nothing: the assertion was reported when it first ran."""


@contextlib.contextmanager
def checking_builder(eye: Any, kind: type[Builder] = CheckingBuilder) -> Iterator[None]:
    """While it is open, kernels compute with this class; with the plain Builder as they do unchecked."""
    before, eye_before = type(BUILDER), CheckingBuilder.eye
    BUILDER.__class__ = kind
    CheckingBuilder.eye = eye
    try:
        yield
    finally:
        BUILDER.__class__ = before
        CheckingBuilder.eye = eye_before
