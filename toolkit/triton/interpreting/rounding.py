# pyright: basic
"""Conversions between floating-point types, bit for bit as torch does them: to nearest, ties to even, NaN kept.

Triton's interpreter keeps bfloat16 and 8-bit floats as integers of their bits, and its own conversions round half away
and carry wrongly into the exponent (read on 3.6.0).

>>> to_bits(np.array([1.00390625], np.float32), tl.bfloat16)
array([16256], dtype=uint16)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl

CODED: dict[Any, tuple[torch.dtype, Any]] = {
    tl.bfloat16: (torch.bfloat16, np.uint16),
    tl.float8e5: (torch.float8_e5m2, np.uint8),
    tl.float8e4nv: (torch.float8_e4m3fn, np.uint8),
    tl.float8e5b16: (torch.float8_e5m2fnuz, np.uint8),
    tl.float8e4b8: (torch.float8_e4m3fnuz, np.uint8),
}
"""Triton types that NumPy has not -> torch's type, and the integers that hold the bits."""
_SIGNED = {np.uint16: torch.int16, np.uint8: torch.uint8}


def is_coded(dtype: Any) -> bool:
    """Whether NumPy holds bits for values of this type."""
    return dtype in CODED


def values(bits: np.ndarray, dtype: Any) -> np.ndarray:
    """The float32 values of coded bits; other values unchanged."""
    if dtype not in CODED:
        return bits
    known, integers = CODED[dtype]
    given = np.ascontiguousarray(bits).view(np.int16 if integers is np.uint16 else np.uint8)
    return torch.from_numpy(given).view(known).to(torch.float32).numpy().reshape(bits.shape)


def is_float(handle: Any) -> bool:
    """Whether a value of a kernel is of floating-point numbers."""
    scalar = handle.dtype.scalar
    return not scalar.is_ptr() and scalar.is_floating()


def numbers(handle: Any) -> np.ndarray:
    """The content of a kernel's value as numbers."""
    return values(handle.data, handle.dtype.scalar)


def not_finite(handle: Any) -> np.ndarray | None:
    """Lanes of a value that are NaN or infinite; None where there are none, or its type has neither."""
    if not is_float(handle) or (fine := np.isfinite(numbers(handle))).all():
        return None
    return ~fine


def to_bits(floats: np.ndarray, dtype: Any) -> np.ndarray:
    """Values as that type holds them: rounded, and as bits where NumPy lacks the type."""
    if dtype not in CODED:
        raise ValueError(f"{dtype} is no coded type")
    known, integers = CODED[dtype]
    given = torch.from_numpy(np.ascontiguousarray(floats if floats.dtype != np.float16 else floats.astype(np.float32)))
    rounded = given.to(known)
    return (
        rounded.view(torch.int16 if integers is np.uint16 else torch.uint8).numpy().view(integers).reshape(floats.shape)
    )


def saturated(floats: np.ndarray, dtype: Any) -> np.ndarray:
    """Bits of 8-bit floats as NVIDIA's conversion instructions give them: values beyond the largest number become
    it."""
    known, _ = CODED[dtype]
    largest = torch.finfo(known).max
    kept = np.where(np.isnan(floats), floats, np.clip(floats, -largest, largest))
    return to_bits(kept.astype(floats.dtype), dtype)
