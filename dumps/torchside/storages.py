"""Saves real tensors as whole storages in a TensorSink, and loads them, so that views, strides, offsets and aliasing
are restored.

Bytes are copied from the storage as they lie in memory; a conj or neg bit is a property of the view, not of the bytes.
A sparse tensor is one sequence of bytes: indices, then values; their number follows from the length. This covers
coordinates without dense dimensions (sparse_coo) and compressed rows or columns of a matrix (sparse_csr, sparse_csc);
other layouts keep their shape alone.

"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, cast

import torch

from ..errors import DamagedError, DeviceMissingError, NotStoredError, TorchLacksError
from ..hints import spanned
from ..schema import StoredTensor, TensorValue
from ..tensors import TensorSink
from . import torch_private as t
from . import wrappers
from .arguments import device_of, dtype_of
from .values import ValueWriter, lazy_bits, storage_key

_INDEX_BYTES = 8
INTEGER_OF = {"quint8": torch.uint8, "qint8": torch.int8, "qint32": torch.int32}


class StorageWriter:
    """Stores tensors, each storage once. Without a sink only metadata is written."""

    def __init__(self, values: ValueWriter, sink: TensorSink | None) -> None:
        self.values = values
        self.sink = sink
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []

    def store(self, tensor: torch.Tensor) -> StoredTensor:
        """The record of a tensor; its bytes go to the sink unless it has none (fake, meta) or the sink declines."""
        if wrappers.is_wrapper(tensor):
            value = self.values.value(tensor)
            inner = {name: self.store(part) for name, part in wrappers.parts(tensor).items()}
            return StoredTensor("", value, isinstance(tensor, torch.nn.Parameter), inner)  # pyright: ignore
        return StoredTensor(
            storage=self._put(tensor),
            value=self.values.tensor(tensor, whole_storage=tensor.layout is torch.strided),
            parameter=isinstance(tensor, torch.nn.Parameter),
        )

    def _put(self, tensor: torch.Tensor) -> str:
        if self.sink is None or isinstance(tensor, t.FakeTensor) or tensor.is_meta:
            return ""
        if tensor.layout is not torch.strided:
            if not packable(tensor):
                return ""
            with t.modes_off():
                bytes_of = packed(tensor).untyped_storage()
                return self.sink.put(storage_bytes(bytes_of)) if self.sink.accepts(bytes_of.nbytes()) else ""
        key = storage_key(tensor)
        if key not in self._names:
            with t.modes_off():
                storage = tensor.untyped_storage()
                accepted = self.sink.accepts(storage.nbytes())
                self._names[key] = self.sink.put(storage_bytes(storage)) if accepted else ""
                self._alive.append(storage)
        return self._names[key]


def storage_bytes(storage: torch.UntypedStorage) -> memoryview:
    """The bytes of a storage on any device, without a copy where it lies on the CPU."""
    host = storage if storage.device.type == "cpu" else storage.cpu()
    size = host.nbytes()
    if size == 0:
        return memoryview(b"")
    buffer = (ctypes.c_ubyte * size).from_address(host.data_ptr())
    # The array does not own the memory: keep the storage alive through it.
    buffer.owner = host  # pyright: ignore
    return memoryview(buffer).cast("B")


class StorageReader:
    """Loads stored tensors. Tensors of one alias group share memory; equal records of a parameter give the same
    object."""

    def __init__(
        self,
        tensors: TensorSink | None,
        where: str,
        *,
        absent: Callable[[TensorValue, str], torch.Tensor] | None = None,
    ) -> None:
        self.tensors = tensors
        self.where = where
        self.absent = absent
        self.synthesised: list[str] = []
        self._storages: dict[tuple[str, int], torch.UntypedStorage] = {}
        self._parameters: dict[tuple[Any, ...], torch.nn.Parameter] = {}

    def load(self, stored: StoredTensor, name: str) -> torch.Tensor:
        """The tensor of a record; UnreadableError if its view does not fit its storage."""
        value = stored.value
        key = (stored.storage, value.storage, tuple(value.shape), tuple(value.stride), value.offset, value.dtype)
        if stored.parameter and value.storage is not None and key in self._parameters:
            return self._parameters[key]
        tensor = self._tensor(stored, name)
        wants = value.requires_grad and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
        if stored.parameter:
            parameter = self._parameters[key] = torch.nn.Parameter(tensor, requires_grad=wants)
            return parameter
        return tensor.requires_grad_(True) if wants else tensor

    def _tensor(self, stored: StoredTensor, name: str) -> torch.Tensor:
        where = f"{self.where}: tensor {name}"
        if stored.inner:
            held = {attribute: self.load(part, f"{name}.{attribute}") for attribute, part in stored.inner.items()}
            return together(stored.value, held, where)
        if not stored.storage:
            if self.absent is None:
                raise NotStoredError(where, "only its metadata was recorded")
            self.synthesised.append(name)
            return self.absent(stored.value, name)
        if self.tensors is None:
            raise NotStoredError(where, "the folder with the tensors is missing")
        value = stored.value
        dtype, device = dtype_of(value.dtype, where), device_of(value.device, where)
        if value.layout != "strided":
            return unpacked(self._storage(stored.storage, device, where), value, dtype, where)
        group = (stored.storage, value.storage if value.storage is not None else -1)
        storage = self._storages.get(group) if value.storage is not None else None
        if storage is None:
            storage = self._storage(stored.storage, device, where)
            if value.storage is not None:
                self._storages[group] = storage
        return view(storage, value, dtype, where)

    def _storage(self, name: str, device: torch.device, where: str) -> torch.UntypedStorage:
        data = self.tensors.get(name)  # pyright: ignore
        host = torch.empty(0, dtype=torch.uint8, device="cpu")
        if len(data):
            host = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        try:
            return host.to(device).untyped_storage()
        except (RuntimeError, AssertionError) as error:
            raise DeviceMissingError(where, f"this machine has no device {device}", "use --device cpu") from error


def together(value: TensorValue, held: dict[str, Any], where: str) -> torch.Tensor:
    """Builds a wrapper tensor from its parts."""
    from .arguments import ArgumentReader

    context = ArgumentReader(None, []).decode(value.context, where)  # pyright: ignore  (it names no symbols)
    return wrappers.rebuilt(value.subclass, held, context, value.shape, value.stride, where)


def view(storage: torch.UntypedStorage, value: TensorValue, dtype: torch.dtype, where: str) -> torch.Tensor:
    """Creates a tensor over a storage, after checking that it lies inside."""
    needed, plain = spanned(value, where), INTEGER_OF.get(value.dtype, dtype)
    if needed * plain.itemsize > storage.nbytes():
        why = f"its view ends at element {needed}, past the {storage.nbytes()} bytes of its storage"
        raise DamagedError(where, why)
    form: Any = (value.offset, value.shape, value.stride)
    tensor = torch.empty(0, dtype=plain, device=storage.device).set_(storage, *form)
    if value.quantizer:
        return requantized(tensor, value, where)
    return lazy_bits(tensor, value).detach()  # detached, so that autograd sees no view


def requantized(tensor: torch.Tensor, value: TensorValue, where: str) -> torch.Tensor:
    """A quantised tensor from its integers and the recorded quantizer."""
    quantizer = value.quantizer
    per_tensor, per_channel = t.optional("per_tensor_quantized"), t.optional("per_channel_quantized")
    if per_tensor is None or per_channel is None:
        raise TorchLacksError(where, "this torch has no quantised tensors")
    try:
        if "axis" in quantizer:
            scales = torch.tensor(quantizer["scale"], dtype=torch.float64, device="cpu")
            zero_points = torch.tensor(quantizer["zero_point"], dtype=torch.int64, device="cpu")
            return per_channel(tensor, scales, zero_points, quantizer["axis"])
        return per_tensor(tensor, quantizer["scale"], quantizer["zero_point"])
    except (RuntimeError, TypeError, KeyError, ValueError) as error:
        raise DamagedError(where, f"torch refuses its quantizer ({error})") from error


def packable(tensor: torch.Tensor) -> bool:
    """Whether a sparse tensor can be stored as one run of bytes."""
    if tensor.layout is torch.sparse_coo:
        return tensor.dense_dim() == 0 and tensor.sparse_dim() > 0
    return tensor.layout in (torch.sparse_csr, torch.sparse_csc) and tensor.dim() == 2


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a sparse tensor, on the CPU."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        indices = [tensor.indices()]
    elif tensor.layout is torch.sparse_csr:
        indices = [tensor.crow_indices(), tensor.col_indices()]
    else:
        indices = [tensor.ccol_indices(), tensor.row_indices()]
    parts = [*(part.to(torch.int64) for part in indices), tensor.values()]
    return torch.cat([part.cpu().contiguous().reshape(-1).view(torch.uint8) for part in parts])


def unpacked(storage: torch.UntypedStorage, value: TensorValue, dtype: torch.dtype, where: str) -> torch.Tensor:
    """Builds a sparse tensor from bytes; raises UnreadableError, before building it, where they do not fit."""
    flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))
    shape: list[Any] = list(value.shape)
    lead = 0 if value.layout == "sparse_coo" else shape[0 if value.layout == "sparse_csr" else 1] + 1
    rows = len(shape) if value.layout == "sparse_coo" else 1
    count, rest = divmod(flat.numel() - lead * _INDEX_BYTES, rows * _INDEX_BYTES + dtype.itemsize)
    if rest or count < 0 or not all(isinstance(size, int) for size in shape):
        raise DamagedError(where, f"{flat.numel()} bytes do not fit a {value.layout} tensor of that shape")
    cuts = [lead * _INDEX_BYTES, rows * count * _INDEX_BYTES, count * dtype.itemsize]
    pointers, indices, values = [part.clone() for part in cast(Any, flat).split(cuts)]
    values = values.view(dtype)
    indices = indices.view(torch.int64).reshape(rows, count)
    sparse: Any = torch
    try:
        if value.layout == "sparse_coo":
            return sparse.sparse_coo_tensor(indices, values, shape, check_invariants=True).coalesce()
        make = sparse.sparse_csr_tensor if value.layout == "sparse_csr" else sparse.sparse_csc_tensor
        return make(pointers.view(torch.int64), indices[0], values, shape, check_invariants=True)
    except (RuntimeError, TypeError) as error:
        raise DamagedError(where, f"its indices are not valid ({str(error).splitlines()[0]})") from error
