# pyright: basic
"""Real inputs as records, quickly: metadata of every input and the storages whose bytes are to be copied, each once.

Runs before every execution of a graph whose inputs are held, so plain tensors take a short way of their own; the records are the
same as those of `make_inputs.observe`, without statistics. Must keep no tensor and read no data.

>>> items, storages = snapshot(["x"], [torch.ones(2, 3)])
>>> items[0].stored.storage, storages[0].nbytes()
('#0', 24)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..schema import InputRecord, StoredTensor, TensorValue
from . import torch_private as t
from .symbols import SymbolWriter
from .values import ValueWriter, dtype_name, is_plain_tensor, quantizer

_DTYPES: dict[torch.dtype, str] = {}
_DEVICES: dict[torch.device, str] = {}


def snapshot(names: Sequence[str], inputs: Sequence[Any]) -> tuple[list[InputRecord], list[torch.UntypedStorage]]:
    """One record per input; a stored tensor's storage is named "#<place in the list of storages>"."""
    keys = [t.storage_key(value) if _has_bytes(value) else None for value in inputs]
    seen: set[int] = set()
    shared = {key for key in keys if key is not None and (key in seen or seen.add(key))}
    places: dict[int, int] = {}
    groups: dict[int, int] = {}
    storages: list[torch.UntypedStorage] = []
    items: list[InputRecord] = []
    for name, value, key in zip(names, inputs, keys, strict=True):
        if key is None:
            items.append(_other(name, value))
            continue
        storage = value.untyped_storage()
        if key not in places:
            places[key] = len(storages)
            storages.append(storage)
        record = _tensor(value, storage.nbytes())
        if key in shared:
            record.storage = groups.setdefault(key, len(groups))
        stored = StoredTensor(f"#{places[key]}", record, type(value) is torch.nn.Parameter)
        items.append(InputRecord(name, value=record, stored=stored))
    return items, storages


def _has_bytes(value: Any) -> bool:
    kind = type(value)
    if kind is not torch.Tensor and kind is not torch.nn.Parameter and not is_plain_tensor(value):
        return False
    return value.layout is torch.strided and not value.is_meta


def _tensor(value: torch.Tensor, nbytes: int) -> TensorValue:
    dtype, device = value.dtype, value.device
    if dtype not in _DTYPES:
        _DTYPES[dtype] = dtype_name(dtype)
    if device not in _DEVICES:
        _DEVICES[device] = str(device)
    shape: list[Any] = list(value.shape)
    stride: list[Any] = list(value.stride())
    offset: Any = value.storage_offset()
    record = TensorValue(_DTYPES[dtype], shape, stride, offset, _DEVICES[device], requires_grad=value.requires_grad)
    if 0 not in shape:
        last = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        if last * value.element_size() != nbytes:
            record.storage_bytes = nbytes
    if value.is_conj():
        record.conj = True
    if value.is_neg():
        record.neg = True
    if value.is_quantized:
        record.quantizer = quantizer(value)
    return record


def _other(name: str, value: Any) -> InputRecord:
    item = InputRecord(name)
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        item.scalar = value
    else:
        item.value = ValueWriter(SymbolWriter()).value(value, whole_storage=True)
    return item
