"""Records of the real inputs of an execution: with statistics for inputs.json, and a fast form for held inputs.

`observe` looks at one execution before it runs. `snapshot` runs before every execution of a graph whose inputs are
held, so it has a fast path for plain tensors: it returns metadata of every input, and the storages to copy, each once;
the records are the same, without statistics. It keeps no tensor and reads no data.

>>> items, storages = snapshot(["x"], [torch.ones(2, 3)])
>>> items[0].stored.storage, storages[0].nbytes()
('#0', 24)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ..errors import NoGraphError, UnknownWordError
from ..hints import extent
from ..schema import FORMAT, GraphRecord, InputRecord, InputsRecord, SequenceValue, StoredTensor, TensorValue
from ..tensors import TensorSink
from ..wording import counted
from . import torch_private as t
from .values import (
    BUFFER,
    ValueWriter,
    dtype_name,
    is_plain_tensor,
    is_symbolic,
    packable,
    quantizer,
    storage_key,
    viewed,
)
from .wrappers import is_wrapper, parts

POLICIES = ("none", "meta", "index", "first", "last", "all")
WHOLE = frozenset({"first", "last", "all"})
"""Policies that keep whole storages."""
_PIECE = 1 << 22
"""Elements that statistics read at once."""
_dtype_name, _device_name = cache(dtype_name), cache(str)


def observe(
    graph: GraphModule | GraphRecord, inputs: Sequence[Any], policy: str, sink: TensorSink | None
) -> InputsRecord:
    """The record of the inputs of one execution; call it before the graph runs, since it may change them.

    `none` and `meta` keep shapes and scalars, `index` also statistics and the values of integer and boolean tensors;
    `first`, `last` and `all` also whole storages. The user's state is not changed; for a tensor on an accelerator this
    waits for the device.
    """
    if policy not in POLICIES:
        raise UnknownWordError(f"{policy!r} is not a policy for inputs", f"choose one of {', '.join(POLICIES)}")
    roles = {item.name: item for item in graph.inputs} if isinstance(graph, GraphRecord) else {}
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    if len(names) != len(inputs):
        why = f"the graph has {counted(len(names), 'placeholder')}, {counted(len(inputs), 'value')} came"
        raise NoGraphError("cannot observe the inputs", why)
    values = ValueWriter(sink=sink)
    with torch.no_grad(), t.modes_off():
        for value in inputs:
            values.count(value)
        items = [_observe_one(name, value, policy, values) for name, value in zip(names, inputs, strict=True)]
    for item in items:
        if item.name in roles:
            item.role, item.source = roles[item.name].role, roles[item.name].source
    return InputsRecord(format=FORMAT, policy=policy, inputs=items)


def _observe_one(name: str, value: Any, policy: str, values: ValueWriter) -> InputRecord:
    item = InputRecord(name=name)
    if is_symbolic(value):
        if isinstance(value, torch.SymInt):
            node = cast(Any, value).node
            item.scalar = node.maybe_as_int()
            if item.scalar is None:  # a nested tensor's ragged size: a number stands for its offsets
                item.scalar = node.nested_int()
        if item.scalar is None:
            item.scalar = values.symbols.hint(values.symbols.expr(value))
        return item
    if isinstance(value, (bool, int, float)):
        item.scalar = value
        return item if math.isfinite(value) else InputRecord(name=name, value=values.value(value))
    if not is_plain_tensor(value) or policy == "none":
        item.value = values.value(value, whole_storage=True)
        if isinstance(item.value, TensorValue) and item.value.inner and policy != "none":
            _met(item.value, value)
            item.stored = _apart(value, item.value, policy, values)
        elif isinstance(item.value, SequenceValue) and policy not in ("none", "meta"):
            tensors = _tensors(value, item.value)
            kept = {str(index): _apart(*tensor, policy, values) for index, tensor in tensors}
            item.stored = StoredTensor("", TensorValue("float32", []), inner=kept) if kept else None
        return item
    item.value = _met(values.tensor(value, whole_storage=value.layout is torch.strided), value)
    item.value.base = values.base(value)
    is_parameter = isinstance(value, torch.nn.Parameter)
    readable = not isinstance(value, t.FakeTensor) and not value.is_meta and value.layout is torch.strided
    if policy != "meta" and readable:
        item.statistics = statistics(value)
        if policy in WHOLE or not (value.dtype.is_floating_point or value.dtype.is_complex or value.is_quantized):
            item.stored = _stored(value, values)
            return item
    if policy in WHOLE and value.layout is not torch.strided and packable(value):
        item.stored = _stored(value, values)
    elif is_parameter:
        item.stored = StoredTensor(storage="", value=item.value, parameter=True)
    return item


def _tensors(value: Sequence[Any], record: SequenceValue) -> Iterator[tuple[int, tuple[Any, TensorValue]]]:
    """Yields the index of each plain tensor in a list (the inputs of a captured backward), and the tensor with its
    record."""
    for index, (tensor, its) in enumerate(zip(value, record.items, strict=True)):
        real = is_plain_tensor(tensor) and not isinstance(tensor, t.FakeTensor) and not tensor.is_meta
        if real and isinstance(its, TensorValue):
            yield index, (tensor, _met(its, tensor))


def _apart(value: Any, record: TensorValue, policy: str, values: ValueWriter) -> StoredTensor:
    """The record of a wrapper tensor: each inner tensor is kept as it would be alone, without statistics."""
    if record.inner:
        inner = {name: _apart(part, record.inner[name], policy, values) for name, part in parts(value).items()}
        return StoredTensor("", record, isinstance(value, torch.nn.Parameter), inner)
    numbers = value.dtype.is_floating_point or value.dtype.is_complex
    kept = value.layout is torch.strided and (policy in WHOLE or (policy == "index" and not numbers))
    return values.store(value) if kept else StoredTensor("", record)


def _stored(value: torch.Tensor, values: ValueWriter) -> StoredTensor:
    stored = values.store(value)
    _met(stored.value, value).base = values.base(value)
    return stored


def _met(record: TensorValue, value: torch.Tensor) -> TensorValue:
    """Adds to a record what only a real tensor shows: whether it is a leaf, and its subclass."""
    record.leaf = value.is_leaf
    kind = type(value)
    if getattr(value, "_is_buffer", False):
        record.subclass = BUFFER
    elif kind not in (torch.Tensor, torch.nn.Parameter, t.FakeTensor):
        record.subclass = f"{kind.__module__}.{kind.__qualname__}"
    return record


def statistics(value: torch.Tensor) -> dict[str, float | int | None] | None:
    """min, max, mean, std of the finite elements, and the number of NaN and infinite ones; None for dtypes without
    arithmetic.

    Reads the tensor piece by piece, so that a step that barely fits its device still fits.
    """
    if value.numel() == 0:
        return None
    try:
        if value.dtype is torch.bool:
            share = sum(float(part.sum()) for part in _pieces(value)) / value.numel()
            return {"min": int(share == 1.0), "max": int(share > 0.0), "mean": share}
        if value.is_quantized:
            value = value.dequantize()
        if value.dtype.is_complex:
            value = torch.view_as_real(value.resolve_conj())
        if not value.dtype.is_floating_point:
            spans = [torch.aminmax(part.to(torch.int64)) for part in _pieces(value)]
            return {"min": min(int(low) for low, _ in spans), "max": max(int(high) for _, high in spans)}
        return _float_statistics(value)
    except (RuntimeError, NotImplementedError):
        return None


def _float_statistics(value: torch.Tensor) -> dict[str, float | int | None]:
    low, high, total, squares, count, nan = math.inf, -math.inf, 0.0, 0.0, 0, 0
    for part in _pieces(value):
        wide = part if part.dtype is torch.float64 else part.to(torch.float32)
        least, most = map(float, torch.aminmax(wide))
        if not math.isfinite(least) or not math.isfinite(most):  # true of both if any element is NaN
            nan += int(torch.isnan(wide).sum())
            wide = wide[torch.isfinite(wide)]
            if not wide.numel():
                continue
            least, most = map(float, torch.aminmax(wide))
        low, high = min(low, least), max(high, most)
        mean, spread, size = float(wide.mean()), float(wide.var(correction=0)), wide.numel()
        gap, count = mean - (total / count if count else mean), count + size
        # Chan et al., updating formulae for variances
        squares += spread * size + gap * gap * (count - size) * size / count
        total += mean * size
    inf = value.numel() - count - nan
    if not count:
        return {"nan": nan, "inf": inf}
    measured = {"min": low, "max": high, "mean": total / count, "std": math.sqrt(max(squares, 0.0) / count)}
    return {**{key: number for key, number in measured.items() if math.isfinite(number)}, "nan": nan, "inf": inf}


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of at most about `_PIECE` elements, split along the longest dimension."""
    if value.numel() <= _PIECE or value.dim() == 0:
        yield value
        return
    longest = max(range(value.dim()), key=lambda dim: value.shape[dim])
    parts = min(value.shape[longest], -(-value.numel() // _PIECE))
    yield from value.chunk(parts, longest)


def snapshot(names: Sequence[str], inputs: Sequence[Any]) -> tuple[list[InputRecord], list[torch.UntypedStorage]]:
    """Returns one record per input, and the storages to copy; records name their storage "#<index in that list>"."""
    keys = [storage_key(value) if _has_bytes(value) else None for value in inputs]
    held = [value for value, key in zip(inputs, keys, strict=True) if key is None and is_wrapper(value)]
    seen: set[int] = set()
    every = [*keys, *(storage_key(inner_part) for value in held for inner_part in _plain_parts(value))]
    shared = {key for key in every if key is not None and (key in seen or seen.add(key))}
    places: dict[int, int] = {}
    groups: dict[int, int] = {}
    storages: list[torch.UntypedStorage] = []

    def store(value: torch.Tensor, key: int) -> StoredTensor:
        storage = value.untyped_storage()
        if key not in places:
            places[key] = len(storages)
            storages.append(storage)
        record = _tensor(value, storage.nbytes())
        if key in shared:
            record.storage = groups.setdefault(key, len(groups))
            if record.base is not None:
                record.base.storage = record.storage
        return StoredTensor(f"#{places[key]}", record, isinstance(value, torch.nn.Parameter))

    def apart(value: Any, record: TensorValue) -> StoredTensor:
        if not record.inner:
            return store(value, storage_key(value)) if _has_bytes(value) else StoredTensor("", record)
        inner = {name: apart(part, record.inner[name]) for name, part in parts(value).items()}
        record.inner = {name: part.value for name, part in inner.items()}
        return StoredTensor("", record, isinstance(value, torch.nn.Parameter), inner)

    items: list[InputRecord] = []
    for name, value, key in zip(names, inputs, keys, strict=True):
        if key is not None:
            stored = store(value, key)
            items.append(InputRecord(name, value=stored.value, stored=stored))
            continue
        item = _observe_one(name, value, "none", ValueWriter())
        if isinstance(item.value, TensorValue) and item.value.inner:
            item.stored = apart(value, _met(item.value, value))
        items.append(item)
    return items, storages


def _plain_parts(value: Any) -> Iterator[torch.Tensor]:
    for part in parts(value).values():
        if is_wrapper(part):
            yield from _plain_parts(part)
        elif _has_bytes(part):
            yield part


def _has_bytes(value: Any) -> bool:
    kind = cast(type[Any], type(value))
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and not is_plain_tensor(value):
        return False
    return value.layout is torch.strided and not value.is_meta


def _tensor(value: torch.Tensor, nbytes: int) -> TensorValue:
    dtype, device = _dtype_name(value.dtype), _device_name(value.device)
    shape: list[Any] = list(value.shape)
    stride: list[Any] = list(value.stride())
    offset: Any = value.storage_offset()
    record = TensorValue(dtype, shape, stride, offset, device, requires_grad=value.requires_grad)
    if extent(shape, stride, offset) * value.element_size() != nbytes:
        record.storage_bytes = nbytes
    record.conj, record.neg = value.is_conj(), value.is_neg()
    if value.is_quantized:
        record.quantizer = quantizer(value)
    base = viewed(value)
    if base is not None:
        record.base = _tensor(base, nbytes)
    return _met(record, value)
