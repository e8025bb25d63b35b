# pyright: basic
"""Inline assembly of PTX on NumPy arrays: single instructions that Inductor emits itself, and similar ones.

Approximations are computed exactly and rounded once. Anything else is refused by its text, never guessed.

For example: `function("fma.rn.f32 $0, $1, $2, $3;")(x, y, z)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...live.rung import CannotRun

_ONE = re.compile(r"\s*([a-z0-9_.]+)\s+\$0((?:\s*,\s*\$\d+)*)\s*;?\s*")


class MissingInstruction(CannotRun):
    """Inline assembly that is not in the table."""

    def __init__(self, text: str) -> None:
        super().__init__(f"a kernel holds inline assembly that the interpreter does not know: {' '.join(text.split())}")


def function(text: str) -> Callable[..., np.ndarray]:
    """What one instruction computes. Raises MissingInstruction."""
    match = _ONE.fullmatch(text)
    operands = [] if match is None else re.findall(r"\d+", match.group(2))
    if match is None or operands != [str(place) for place in range(1, len(operands) + 1)]:
        raise MissingInstruction(text)
    name, _, kind = match.group(1).rpartition(".")
    base = name.split(".")[0]
    if kind not in _KINDS or base not in _INSTRUCTIONS or set(name.split(".")[1:]) - _MODIFIERS:
        raise MissingInstruction(text)
    compute, flush = _INSTRUCTIONS[base], "ftz" in name.split(".")

    def call(*given: np.ndarray) -> np.ndarray:
        wide = [_flushed(argument, flush).astype(np.float64) for argument in given]
        with np.errstate(all="ignore"):
            return _flushed(np.asarray(compute(*wide)).astype(_KINDS[kind]), flush)

    return call


def _flushed(values: np.ndarray, flush: bool) -> np.ndarray:
    """Subnormal numbers become zeros of their sign (`.ftz`)."""
    if not flush or values.dtype != np.float32:
        return values
    small = np.abs(values) < np.finfo(np.float32).tiny
    return np.where(small, np.copysign(np.float32(0), values), values)


_KINDS: dict[str, Any] = {"f32": np.float32, "f64": np.float64}
_MODIFIERS = {"rn", "approx", "ftz", "full"}
_INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "fma": lambda x, y, z: x * y + z,
    "rcp": lambda x: 1 / x,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "abs": np.abs,
    "neg": np.negative,
    "max": np.fmax,
    "min": np.fmin,
    "mov": lambda x: x,
}
"""By the instruction's first word; in float64."""
