"""The inputs of a saved graph: stored ones as they were, the others synthesised from metadata and a seed.

A synthesised storage is filled whole, then viewed, so stride, offset, overlap and aliasing are as recorded. The same
seed gives the same values on every device and in every process; each input has its own random stream, so dropping one
input does not change the others. Statistics steer the values: range, mean, spread, how many are NaN or infinite.

>>> from graphdbg.dumps.schema import TensorValue
>>> [value.shape for value in inputs(record, saved.inputs_record, saved.tensors, seed=0)][:2]
[torch.Size([16, 8]), torch.Size([16])]
>>> tensor("x", TensorValue(dtype="float32", shape=[2, 3], stride=[0, 1]), seed=0).stride()
(0, 1)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from .. import inert
from ..errors import DamagedError, DeviceMissingError, NotStoredError, RefusedError, TooLargeError
from ..hints import Numbers, concrete, inputs_known, scalar, spanned, value_of_input
from ..schema import (
    ConstValue,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from ..walk import plain
from ..wording import counted, error_line
from .history import Base, computed
from .live_values import INTEGER_OF, StorageReader, device_of, dtype_of, is_handed_through, named, stand_in_real, view
from .values import BUFFER

Statistics = Mapping[str, float | int | None]

_MODULE_STAGES = ("dynamo", "pre_grad")
"""Stages whose parameters are still nn.Parameters."""
_SMALL_INTEGERS = (0, 2)
_INTEGERS = frozenset(getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64))
_MAX_BYTES = 1 << 40


def inputs(
    record: GraphRecord, seen: InputsRecord | None, tensors: TensorSink | None, seed: int = 0, *, where: str = ""
) -> list[Any]:
    """Returns real inputs in placeholder order: stored ones are loaded, the others synthesised from `seed`. Raises
    RefusedError for an input that has no saved form."""
    where = where or f"graph {record.id}"
    placeholders = [node for node in record.graph.nodes if node.op == "placeholder"]
    known, numbers, limits = inputs_known(record, seen)
    parameters = {item.name for item in record.inputs if item.role == "parameter" and record.stage in _MODULE_STAGES}
    maker = _Maker(limits, numbers, StorageReader(tensors, where), seed, where, parameters)
    maker.reader.absent = maker.absent
    tensors_made: list[Any] = []
    for node in placeholders:
        item, handed_through = known.get(node.name), is_handed_through(record.graph, node)
        tensors_made.append(stand_in_real(item) if handed_through else maker.input(node, item))
    if record.stage not in _MODULE_STAGES:
        return tensors_made  # these graphs run without autograd
    came: list[int] = []
    bases: dict[int, Base] = {}
    for place, (node, tensor) in enumerate(zip(placeholders, tensors_made, strict=True)):
        value = value_of_input(node, known.get(node.name))
        if isinstance(value, TensorValue):
            if not value.leaf and isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                came.append(place)
            if value.base is not None:
                bases[place] = _base(concrete(value.base, numbers, where), where)
    return computed(tensors_made, came, bases)


def _base(value: TensorValue, where: str) -> Base:
    form = tuple(map(int, value.shape)), tuple(map(int, value.stride)), int(value.offset)
    if len(form[0]) != len(form[1]) or min(*form[0], *form[1], form[2], 0) < 0:
        raise DamagedError(where, "an input is a view of a tensor with impossible sizes or strides")
    return Base(dtype_of(value.dtype, where), *form, value.requires_grad, value.leaf)


@dataclass
class _Maker:
    limits: dict[str, int]
    numbers: Numbers
    reader: StorageReader
    seed: int
    where: str
    parameters: set[str]
    storages: dict[int, torch.UntypedStorage] = field(default_factory=dict[int, torch.UntypedStorage])

    def input(self, node: NodeRecord, item: InputRecord | None) -> Any:
        where, stored = f"{self.where}: input {node.name}", item.stored if item is not None else None
        if stored is not None:
            if item is not None and isinstance(item.value, SequenceValue):
                return self.sequence(node.name, item.value, stored.inner, where)
            if stored.inner:
                return self.reader.load(stored, node.name)
            if stored.storage:
                tensor = self.reader.load(stored, node.name)
                if stored.value.storage is not None:
                    self.storages.setdefault(stored.value.storage, tensor.untyped_storage())
                return _as_buffer(tensor, stored.value)
        if item is not None and item.scalar is not None:
            return item.scalar
        value = value_of_input(node, item)
        if value is None:
            raise NotStoredError(where, "it was not recorded", "record with --inputs first")
        statistics = item.statistics if item is not None else None
        parameter = node.name in self.parameters or (stored is not None and stored.parameter)
        return self.value(node.name, value, statistics, parameter, where)

    def value(self, name: str, value: Value, statistics: Any, parameter: bool, where: str) -> Any:
        if isinstance(value, TensorValue):
            return self.tensor(name, value, statistics, parameter, where)
        if isinstance(value, SymValue):
            return scalar(value, self.numbers)
        if isinstance(value, SequenceValue):
            return self.sequence(name, value, {}, where)
        if isinstance(value, ConstValue):
            return inert.value(plain(value.value))
        raise RefusedError(where, f"a value of type {value.type} cannot be saved")

    def sequence(self, name: str, value: SequenceValue, kept: Mapping[str, StoredTensor], where: str) -> Any:
        """A list or tuple of inputs: those in `kept`, by index, are loaded, the others synthesised."""
        items: list[Any] = []
        for index, item in enumerate(value.items):
            name_of_part, stored = f"{name}.{index}", kept.get(str(index))
            if stored is not None and stored.storage:
                items.append(self.reader.load(stored, name_of_part))
            else:
                items.append(self.value(name_of_part, item, None, False, where))
        return items if value.kind == "list" else tuple(items)

    def absent(self, value: TensorValue, name: str) -> torch.Tensor:
        """A tensor inside a wrapper tensor that was not stored."""
        return self.tensor(name, value, None, False, self.where)

    def unstored(self, value: TensorValue) -> StoredTensor:
        """The record of a wrapper tensor of which nothing is stored."""
        inner = {name: self.unstored(part) for name, part in value.inner.items()}
        return StoredTensor("", concrete(value, self.numbers, self.where), inner=inner)

    def tensor(self, name: str, value: TensorValue, statistics: Any, parameter: bool, where: str) -> torch.Tensor:
        if value.inner:
            tensor = self.reader.load(self.unstored(value), name)
        else:
            tensor = self._plain(name, value, statistics, where)
        if parameter:
            return torch.nn.Parameter(tensor.detach(), requires_grad=value.requires_grad)
        return tensor if value.inner else _as_buffer(tensor, value)

    def _plain(self, name: str, value: TensorValue, statistics: Any, where: str) -> torch.Tensor:
        wanted, group = concrete(value, self.numbers, where), value.storage
        bounds = (0, limit) if (limit := self.limits.get(name)) else None
        storage = self.storages.get(group) if group is not None else None
        if storage is not None and spanned(wanted, where) * dtype_of(wanted.dtype, where).itemsize > storage.nbytes():
            storage = None
        more: dict[str, Any] = {"statistics": statistics, "bounds": bounds, "storage": storage}
        tensor_made = tensor(name, wanted, self.seed, **more, where=where)
        if group is not None and tensor_made.layout is torch.strided:
            self.storages.setdefault(group, tensor_made.untyped_storage())
        return tensor_made


def _as_buffer(tensor: torch.Tensor, value: TensorValue) -> torch.Tensor:
    return torch.nn.Buffer(tensor) if value.subclass == BUFFER else tensor


def generator(name: str, seed: int) -> torch.Generator:
    """A CPU generator for one input."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little"))


def tensor(
    name: str,
    value: TensorValue,
    seed: int,
    *,
    statistics: Statistics | None = None,
    bounds: tuple[int, int] | None = None,
    storage: torch.UntypedStorage | None = None,
    where: str = "",
) -> torch.Tensor:
    """Synthesises a tensor from its metadata. `bounds` is the half-open range of its integers; `storage` is the storage
    of the input that it aliases."""
    where = where or f"input {name}"
    dtype, device = dtype_of(value.dtype, where), device_of(value.device, where)
    try:
        if value.layout != "strided":
            return _sparse(name, value, dtype, seed, where).to(device)
        if storage is None:
            known = _of_integers(statistics or {}, value)
            filled = fill(dtype, elements(value, dtype, where), generator(name, seed), known, bounds, value.dtype)
            storage = filled.to(device).untyped_storage()
        tensor_made = view(storage, _with_quantizer(value), dtype, where)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = f"this machine cannot make it ({error_line(error)})"
        raise DeviceMissingError(where, why, "try --device cpu") from error
    if value.requires_grad and (tensor_made.dtype.is_floating_point or tensor_made.dtype.is_complex):
        tensor_made.requires_grad_(True)
    return tensor_made


def stand_in(value: TensorValue, name: str) -> torch.Tensor:
    """A constant whose bytes were not recorded: synthesised like an input, from seed 0."""
    return tensor(name, value, 0)


def elements(value: TensorValue, dtype: torch.dtype, where: str) -> int:
    """The number of elements that the storage must hold."""
    needed = spanned(value, where)
    held = -(-value.storage_bytes // dtype.itemsize) if isinstance(value.storage_bytes, int) else 0
    count = max(needed, held)
    if count * dtype.itemsize > _MAX_BYTES:
        raise TooLargeError(where, f"its storage would have {counted(count, 'element')}")
    return count


def fill(
    dtype: torch.dtype,
    count: int,
    source: torch.Generator,
    statistics: Statistics,
    bounds: tuple[int, int] | None,
    name: str = "",
) -> torch.Tensor:
    """A random 1-D tensor of `count` elements, steered by `statistics` and `bounds`."""
    if dtype is torch.bool:
        share = statistics.get("mean")
        threshold = 0.5 if share is None else float(share)
        return torch.rand(count, generator=source, device="cpu") < threshold
    if name in INTEGER_OF:
        return _integers(INTEGER_OF[name], count, source, statistics, bounds)
    if dtype.is_complex:
        part = {torch.complex32: torch.float16, torch.complex128: torch.float64}.get(dtype, torch.float32)
        return torch.view_as_complex(_floats(part, 2 * count, source, {}).reshape(count, 2))
    if dtype.is_floating_point:
        return _floats(dtype, count, source, statistics)
    if dtype in _INTEGERS:
        return _integers(dtype, count, source, statistics, bounds)
    return _bits(count * dtype.itemsize, source).view(dtype)


def _bits(count: int, source: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 256, (count,), generator=source, dtype=torch.uint8, device="cpu")


def _integers(
    dtype: torch.dtype, count: int, source: torch.Generator, statistics: Statistics, bounds: tuple[int, int] | None
) -> torch.Tensor:
    limits = torch.iinfo(dtype)
    low, high = bounds or _SMALL_INTEGERS
    if statistics.get("min") is not None and statistics.get("max") is not None:
        low, high = int(statistics["min"]), int(statistics["max"]) + 1  # pyright: ignore
    low, high = max(low, limits.min, -(1 << 63)), min(high, limits.max + 1, (1 << 63) - 1)
    integers = torch.randint(low, max(high, low + 1), (count,), generator=source, dtype=torch.int64, device="cpu")
    return integers.to(dtype)


def _floats(dtype: torch.dtype, count: int, source: torch.Generator, statistics: Statistics) -> torch.Tensor:
    if dtype.itemsize == 1 and "e2m1" in str(dtype):  # two values in a byte: no arithmetic, any bits are numbers
        return _bits(count, source).view(dtype)
    work = torch.float64 if dtype is torch.float64 else torch.float32
    floats = torch.randn(count, generator=source, dtype=work, device="cpu")
    mean, std = _finite(statistics.get("mean"), 0.0), _finite(statistics.get("std"), 1.0)
    floats = floats.mul_(std).add_(mean)
    low, high = statistics.get("min"), statistics.get("max")
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        floats.clamp_(low, high)
    if "e8m0" in str(dtype):  # powers of two only, no sign
        return floats.abs_().clamp_min_(2.0**-20).to(dtype)
    for kind, number in (("inf", math.inf), ("nan", math.nan)):
        wanted = int(statistics.get(kind) or 0)
        if wanted and count:
            places = torch.randint(0, count, (min(wanted, count),), generator=source, device="cpu")
            floats[places] = number
    return floats.to(dtype)


def _finite(value: float | int | None, default: float) -> float:
    return float(value) if value is not None and math.isfinite(value) else default


def _of_integers(statistics: Statistics, value: TensorValue) -> Statistics:
    """The statistics of a quantised tensor's integers, with which its storage is filled, from those of its dequantised
    values."""
    scale, zero = value.quantizer.get("scale"), value.quantizer.get("zero_point")
    if value.dtype not in INTEGER_OF:
        return statistics
    low, high = statistics.get("min"), statistics.get("max")
    if low is None or high is None or not isinstance(scale, float) or not isinstance(zero, int):
        return {}
    return {"min": round(low / scale) + zero, "max": round(high / scale) + zero}


def _with_quantizer(value: TensorValue) -> TensorValue:
    if value.dtype in INTEGER_OF and not value.quantizer:
        plain_quantizer = {"qscheme": "per_tensor_affine", "scale": 0.1, "zero_point": 0}
        return msgspec.structs.replace(value, quantizer=plain_quantizer)
    return value


def _sparse(name: str, value: TensorValue, dtype: torch.dtype, seed: int, where: str) -> torch.Tensor:
    """A sparse tensor with about half of its elements set."""
    layout = named(torch.layout, value.layout, where)
    shape = [int(size) for size in value.shape]
    count = math.prod(shape)
    dense = fill(dtype, count, generator(name, seed), {}, None).reshape(shape)
    dense = dense * (torch.rand(shape, generator=generator(name, seed + 1), device="cpu") < 0.5).to(dtype)
    return dense.to_sparse() if layout is torch.sparse_coo else dense.to_sparse(layout=layout)
