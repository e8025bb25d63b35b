# pyright: basic
"""Inputs made up from metadata and a seed: the whole storage is filled, then viewed: stride, offset, overlap, aliasing are true.

The same seed gives the same values on every device and in every process; each input has a stream of its own, so dropping one
input does not change the others. Statistics steer the values: range, mean, spread, how many are NaN or infinite.

>>> tensor("x", TensorValue(dtype="float32", shape=[2, 3], stride=[0, 1]), seed=0).stride()
(0, 1)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch

from ..errors import EnvironmentLackError, UnreadableError
from ..hints import spanned
from ..schema import TensorValue
from ..wording import counted
from .storages import view
from .values import device_of, dtype_of, layout_of

Statistics = Mapping[str, float | int | None]

_SMALL_INTEGERS = (0, 2)
_QUANTISED = {"quint8": torch.uint8, "qint8": torch.int8, "qint32": torch.int32}
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_MAX_BYTES = 1 << 40


def generator(name: str, seed: int) -> torch.Generator:
    """A CPU generator for one input."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def tensor(
    name: str, value: TensorValue, seed: int, *, statistics: Statistics | None = None, bounds: tuple[int, int] | None = None,
    storage: torch.UntypedStorage | None = None, where: str = "",
) -> torch.Tensor:  # fmt: skip
    """A tensor as `value` says. `bounds` is the half-open range of integers; `storage` is that of an input it aliases."""
    where = where or f"input {name}"
    dtype, device = dtype_of(value.dtype, where), device_of(value.device, where)
    try:
        if value.layout != "strided":
            return _sparse(name, value, dtype, seed, where).to(device)
        if storage is None:
            known = _of_integers(statistics or {}, value)
            filled = fill(dtype, elements(value, dtype, where), generator(name, seed), known, bounds, value.dtype)
            storage = filled.to(device).untyped_storage()
        made = view(storage, _with_quantizer(value), dtype, where)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvironmentLackError(where, f"this machine cannot make it ({first})", "try --device cpu") from error
    if value.requires_grad and (made.dtype.is_floating_point or made.dtype.is_complex):
        made.requires_grad_(True)
    return made


def stand_in(value: TensorValue, name: str) -> torch.Tensor:
    """A constant whose bytes were not recorded: as an input would be made, from seed 0."""
    return tensor(name, value, 0)


def elements(value: TensorValue, dtype: torch.dtype, where: str) -> int:
    """How many elements the storage must hold."""
    needed = spanned(value, where)
    held = -(-value.storage_bytes // dtype.itemsize) if isinstance(value.storage_bytes, int) else 0
    count = max(needed, held)
    if count * dtype.itemsize > _MAX_BYTES:
        raise UnreadableError(where, f"its storage would have {counted(count, 'element')}")
    return count


def fill(
    dtype: torch.dtype, count: int, source: torch.Generator, statistics: Statistics, bounds: tuple[int, int] | None,
    name: str = "",
) -> torch.Tensor:  # fmt: skip
    """A 1-D tensor of that many elements of a dtype."""
    if dtype is torch.bool:
        share = statistics.get("mean")
        threshold = 0.5 if share is None else float(share)
        return torch.rand(count, generator=source) < threshold
    if name in _QUANTISED:
        return _integers(_QUANTISED[name], count, source, statistics, bounds)
    if dtype.is_complex:
        part = {torch.complex32: torch.float16, torch.complex128: torch.float64}.get(dtype, torch.float32)
        return torch.view_as_complex(_floats(part, 2 * count, source, {}).reshape(count, 2))
    if dtype.is_floating_point:
        return _floats(dtype, count, source, statistics)
    if dtype.itemsize in (1, 2, 4, 8) and _is_integer(dtype):
        return _integers(dtype, count, source, statistics, bounds)
    return torch.randint(0, 256, (count * dtype.itemsize,), generator=source, dtype=torch.uint8).view(dtype)


def _is_integer(dtype: torch.dtype) -> bool:
    return str(dtype).removeprefix("torch.") in _INTEGERS


def _integers(
    dtype: torch.dtype, count: int, source: torch.Generator, statistics: Statistics, bounds: tuple[int, int] | None
) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    low, high = bounds or _SMALL_INTEGERS
    if statistics.get("min") is not None and statistics.get("max") is not None:
        low, high = int(statistics["min"]), int(statistics["max"]) + 1  # pyright: ignore
    low, high = max(low, limits.min, -(1 << 63)), min(high, limits.max + 1, (1 << 63) - 1)
    made = torch.randint(low, max(high, low + 1), (count,), generator=source, dtype=torch.int64)
    return made.to(dtype)


def _floats(dtype: torch.dtype, count: int, source: torch.Generator, statistics: Statistics) -> torch.Tensor:
    if dtype.itemsize == 1 and "e2m1" in str(dtype):  # two values in a byte: no arithmetic, any bits are numbers
        return torch.randint(0, 256, (count,), generator=source, dtype=torch.uint8).view(dtype)
    work = torch.float64 if dtype is torch.float64 else torch.float32
    made = torch.randn(count, generator=source, dtype=work)
    mean, std = _finite(statistics.get("mean"), 0.0), _finite(statistics.get("std"), 1.0)
    made = made.mul_(std).add_(mean)
    low, high = statistics.get("min"), statistics.get("max")
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        made.clamp_(low, high)
    if "e8m0" in str(dtype):  # powers of two only, no sign
        return made.abs_().clamp_min_(2.0**-20).to(dtype)
    for kind, number in (("inf", math.inf), ("nan", math.nan)):
        wanted = int(statistics.get(kind) or 0)
        if wanted and count:
            places = torch.randint(0, count, (min(wanted, count),), generator=source)
            made[places] = number
    return made.to(dtype)


def _finite(value: float | int | None, default: float) -> float:
    return float(value) if value is not None and math.isfinite(value) else default


def _of_integers(statistics: Statistics, value: TensorValue) -> Statistics:
    """Statistics of a quantised tensor are of the numbers it stands for; its storage is filled with the integers behind them."""
    scale, zero = value.quantizer.get("scale"), value.quantizer.get("zero_point")
    if value.dtype not in _QUANTISED:
        return statistics
    low, high = statistics.get("min"), statistics.get("max")
    if low is None or high is None or not isinstance(scale, float) or not isinstance(zero, int):
        return {}
    return {"min": round(low / scale) + zero, "max": round(high / scale) + zero}


def _with_quantizer(value: TensorValue) -> TensorValue:
    if value.dtype in _QUANTISED and not value.quantizer:
        changed = TensorValue(**{name: getattr(value, name) for name in value.__struct_fields__})
        changed.quantizer = {"qscheme": "per_tensor_affine", "scale": 0.1, "zero_point": 0}
        return changed
    return value


def _sparse(name: str, value: TensorValue, dtype: torch.dtype, seed: int, where: str) -> torch.Tensor:
    """A sparse tensor with about half of its elements set."""
    layout = layout_of(value.layout, where)
    shape = [int(size) for size in value.shape]
    count = math.prod(shape)
    dense = fill(dtype, count, generator(name, seed), {}, None).reshape(shape)
    dense = dense * (torch.rand(shape, generator=generator(name, seed + 1)) < 0.5).to(dtype)
    return dense.to_sparse() if layout is torch.sparse_coo else dense.to_sparse(layout=layout)


