"""Converts values of nodes: fake or real tensors, symbolic scalars and sequences to records, and records to fake
values.

Reads metadata only: no data is read, no guard is added. Tensor subclasses that are no plain tensor become OpaqueValue,
unless they are traceable wrappers.

An input without a saved form, such as a device mesh, has a stand-in in graphs that only pass it through: AOTAutograd
takes DTensors apart and leaves their mesh as an input and an output. A graph that calls something with such an input
cannot be replayed, and is refused with the name of the type.

>>> ValueWriter(SymbolWriter()).value(torch.empty(2, 3))
TensorValue(dtype='float32', shape=[2, 3], stride=[3, 1], offset=0, device='cpu', ...)
"""

from __future__ import annotations

from collections import Counter
from sys import intern
from typing import Any, cast

import msgspec
import sympy
import torch

from .. import inert
from ..errors import RefusedError, TorchLacksError
from ..hints import extent
from ..schema import (
    ConstValue,
    Dim,
    GraphBody,
    InputRecord,
    NodeRecord,
    OpaqueValue,
    SequenceValue,
    SymValue,
    TensorValue,
    Value,
)
from ..walk import given, plain, references
from ..wording import error_line
from . import torch_private as t
from . import wrappers
from .arguments import ArgumentReader, ArgumentWriter, device_of, dtype_of, named
from .symbols import Symbols, SymbolWriter, is_symbolic

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SIMPLE = (bool, int, float, str, type(None))
BUFFER = "torch.nn.Buffer"
"""The recorded subclass of a tensor that is itself a buffer."""
TRACED = "torch._library.fake_class_registry.FakeScriptObject"
"""The class of an input without a saved form while a graph is traced."""


def is_plain_tensor(value: object) -> bool:
    """Whether a value is a tensor that its metadata describes completely (no wrapper subclass)."""
    if not isinstance(value, torch.Tensor):
        return False
    kind = type(value)
    if kind in _PLAIN or isinstance(value, t.FakeTensor):
        return True
    return kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__  # pyright: ignore


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype: "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


class ValueWriter:
    """Encodes values. Call `count` on every value first: alias groups are written only for storages seen more than
    once."""

    def __init__(self, symbols: SymbolWriter) -> None:
        self.symbols = symbols
        self._seen: Counter[int] = Counter()
        self._groups: dict[int, int] = {}

    def count(self, value: object) -> None:
        """Counts the storages of a value."""
        if is_plain_tensor(value):
            if value.layout is torch.strided and not t.is_wrapped(value):  # pyright: ignore
                self._seen[storage_key(value)] += 1  # pyright: ignore
                mode = getattr(value, "fake_mode", None)
                if mode is not None and mode.shape_env is not None:
                    self.symbols.adopt(mode.shape_env)
        elif wrappers.is_wrapper(value):
            for part in wrappers.parts(value).values():
                self.count(part)
        elif isinstance(value, (list, tuple)):
            for item in cast(list[Any], value):
                self.count(item)

    def value(self, value: object, *, whole_storage: bool = False) -> Value:
        """The record of a value; `whole_storage` also records the size of a tensor's storage where that exceeds the
        view."""
        if is_plain_tensor(value):
            return self.tensor(value, whole_storage)  # pyright: ignore
        if is_symbolic(value):
            return self.symbols.sym(value)
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return SequenceValue(kind=kind, items=[self.value(item) for item in cast(list[Any], value)])
        if type(value) in _SIMPLE:
            if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
                return ConstValue(value={"float": str(value)})
            return ConstValue(value=value)
        wrapped = self._wrapper(value) if wrappers.is_wrapper(value) else None
        return OpaqueValue(type=wrappers.type_name(value)) if wrapped is None else wrapped

    def _wrapper(self, value: Any) -> TensorValue | None:
        """The record of a wrapper tensor; None where a part of it has no saved form."""
        if any(isinstance(size, torch.SymInt) and cast(Any, size).node.is_nested_int() for size in value.shape):
            return None
        plain = ArgumentWriter(self)
        context = plain.encode(value.__tensor_flatten__()[1])
        inner = {name: self.value(part, whole_storage=True) for name, part in wrappers.parts(value).items()}
        if plain.opaque or not inner:
            return None
        record = TensorValue(
            dtype_name(value.dtype),
            [self.symbols.dim(size) for size in value.shape],
            [self.symbols.dim(stride) for stride in value.stride()],
            device=intern(str(value.device)),
            requires_grad=value.requires_grad,
            subclass=wrappers.type_name(value),
            context=context,
        )
        for name, part in inner.items():
            if not isinstance(part, TensorValue):
                return None
            record.inner[name] = part
        return record

    def tensor(self, tensor: torch.Tensor, whole_storage: bool = False) -> TensorValue:
        """The record of a plain tensor."""
        dim = self.symbols.dim
        record = TensorValue(
            dtype=dtype_name(tensor.dtype),
            shape=[dim(size) for size in tensor.shape],
            device=intern(str(tensor.device)),  # a default is left out only if it is the same object
            requires_grad=tensor.requires_grad,
        )
        if tensor.layout is not torch.strided:
            record.layout = str(tensor.layout).removeprefix("torch.")
            return record
        record.stride = [dim(stride) for stride in tensor.stride()]
        if t.is_wrapped(tensor):
            return record
        record.offset = dim(tensor.storage_offset())
        key = storage_key(tensor)
        if self._seen[key] > 1:
            record.storage = self._groups.setdefault(key, len(self._groups))
        record.conj, record.neg = tensor.is_conj(), tensor.is_neg()
        if tensor.is_quantized:
            record.quantizer = quantizer(tensor)
        if whole_storage:
            record.storage_bytes = self._surplus(tensor)
        return record

    def base(self, tensor: torch.Tensor) -> TensorValue | None:
        """The record of the tensor that autograd knows `tensor` to be a view of; None for no view."""
        base = viewed(tensor)
        if base is None:
            return None
        record = self.tensor(base, whole_storage=True)
        record.leaf = base.is_leaf
        return record

    def _surplus(self, tensor: torch.Tensor) -> Dim | None:
        """The size of the storage in bytes; None when it is exactly what the view spans (nothing for an empty view)."""
        shape, stride, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        size = tensor.untyped_storage().nbytes()
        if not any(map(is_symbolic, (*shape, *stride, offset, size))):
            return None if extent(shape, stride, offset) * tensor.element_size() == size else int(size)

        def expr(value: Any) -> Any:
            return self.symbols.expr(value) if is_symbolic(value) else sympy.Integer(int(value))

        spanned = extent([*map(expr, shape)], [*map(expr, stride)], expr(offset)) * tensor.element_size()
        held = expr(size)
        if sympy.expand(spanned - held) == 0:
            return None
        return int(held) if held.is_Integer else self.symbols.text(held)


def viewed(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that autograd knows a strided tensor to be a view of, if both have the same dtype and are plain and
    strided."""
    base = tensor._base
    if base is None or base.dtype != tensor.dtype or not base.layout is tensor.layout is torch.strided:
        return None
    plain = is_plain_tensor(tensor) and is_plain_tensor(base)
    return base if plain and not (base.is_quantized or base.is_conj() or base.is_neg()) else None


def quantizer(tensor: torch.Tensor) -> dict[str, Any]:
    """The qscheme, scale, zero_point and axis of a quantised tensor; empty for a fake tensor."""
    if isinstance(tensor, t.FakeTensor):
        return {}
    scheme = tensor.qscheme()
    name = str(scheme).removeprefix("torch.")
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return {"qscheme": name, "scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    return {
        "qscheme": name,
        "scale": cast(Any, tensor.q_per_channel_scales()).tolist(),
        "zero_point": cast(Any, tensor.q_per_channel_zero_points()).tolist(),
        "axis": tensor.q_per_channel_axis(),
    }


class ValueReader:
    """Builds fake values under one FakeTensorMode; tensors of one alias group share a storage."""

    def __init__(self, symbols: Symbols) -> None:
        self.symbols = symbols
        self.mode = t.FakeTensorMode(shape_env=symbols.env, allow_non_fake_inputs=False)
        self._storages: dict[int, Any] = {}

    def value(self, record: Value, where: str) -> Any:
        """The fake value of a record; RefusedError for an OpaqueValue."""
        if isinstance(record, TensorValue):
            return self.tensor(record, where)
        if isinstance(record, SymValue):
            return self.symbols.sym(record.kind, record.expr)
        if isinstance(record, SequenceValue):
            items = [self.value(item, where) for item in record.items]
            return items if record.kind == "list" else tuple(items)
        if isinstance(record, ConstValue):
            return inert.value(plain(record.value))
        raise RefusedError(where, f"a value of type {record.type} cannot be saved")

    def tensor(self, record: TensorValue, where: str) -> Any:
        """A fake tensor with that dtype, shape, strides, offset, device and alias group."""
        if record.inner:
            return self._wrapper(record, where)
        dtype, device = dtype_of(record.dtype, where), device_of(record.device, where)
        if record.quantizer:
            fix = "use module() and inputs() of the graph instead"
            raise TorchLacksError(where, "torch cannot trace quantised tensors", fix)
        size = [self.symbols.dim(dim) for dim in record.shape]
        with torch.no_grad(), t.suppress_guards(self.symbols.env):
            try:
                if record.base is None:
                    fake = t.FakeTensor(self.mode, self._meta(record, dtype, size, where), device)
                else:
                    base = self.tensor(msgspec.structs.replace(record.base, requires_grad=False), where)
                    stride, offset = [self.symbols.dim(dim) for dim in record.stride], self.symbols.dim(record.offset)
                    fake = lazy_bits(base.as_strided(size, stride, offset), record)
            except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
                raise TorchLacksError(where, f"this torch cannot make such a tensor ({error_line(error)})") from error
        if record.requires_grad and (dtype.is_floating_point or dtype.is_complex):
            fake.requires_grad_(True)
        return fake

    def _wrapper(self, record: TensorValue, where: str) -> Any:
        held = {name: self.tensor(part, f"{where}, {name}") for name, part in record.inner.items()}
        size, stride = ([self.symbols.dim(dim) for dim in dims] for dims in (record.shape, record.stride))
        context = ArgumentReader(self, [], self.symbols.texts).decode(record.context, where)
        with torch.no_grad(), t.suppress_guards(self.symbols.env):
            wrapped = wrappers.rebuilt(record.subclass, held, context, size, stride, where)
        return wrapped.requires_grad_(True) if record.requires_grad else wrapped

    def _meta(self, record: TensorValue, dtype: torch.dtype, size: list[Any], where: str) -> torch.Tensor:
        if record.layout != "strided":
            layout = named(torch.layout, record.layout, where)
            return torch.empty(size, dtype=dtype, layout=layout, device="meta")
        stride = [self.symbols.dim(dim) for dim in record.stride]
        offset = self.symbols.dim(record.offset)
        storage = self._storages.get(record.storage) if record.storage is not None else None
        if storage is None:
            if record.offset == 0 and record.storage_bytes is None:
                tensor = torch.empty_strided(size, stride, dtype=dtype, device="meta")
                if record.storage is not None:
                    self._storages[record.storage] = tensor.untyped_storage()
                return lazy_bits(tensor, record)
            if record.storage_bytes is not None:
                elements = self.symbols.dim(record.storage_bytes) // dtype.itemsize
            else:
                elements = offset + 1 + sum((s - 1) * t for s, t in zip(size, stride, strict=True))
            storage = torch.empty_strided([elements], [1], dtype=dtype, device="meta").untyped_storage()
            if record.storage is not None:
                self._storages[record.storage] = storage
        tensor = torch.empty_strided([0], [1], dtype=dtype, device="meta")
        tensor.set_(storage, offset, size, stride)
        return lazy_bits(tensor, record)


def lazy_bits(tensor: torch.Tensor, record: TensorValue) -> torch.Tensor:
    """The tensor with the recorded conj and neg bits."""
    if record.conj:
        tensor = torch.conj(tensor)
    if record.neg:
        tensor = t.neg_view(tensor)
    return tensor


def storage_key(tensor: torch.Tensor) -> int:
    """A key that is equal for tensors that share a storage; fake and meta tensors have no data_ptr to compare."""
    return cast(Any, tensor.untyped_storage())._cdata


class StandIn:
    """A stand-in for an object of which only the type's name is known."""

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<stand-in for {self.type_name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and other.type_name == self.type_name

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __obj_flatten__(self) -> tuple[()]:
        """Lets torch count the bytes of this opaque input: it has none."""
        return ()


def is_handed_through(body: GraphBody, node: NodeRecord) -> bool:
    """Whether a placeholder is an input without a saved form that only the output mentions."""
    if node.op != "placeholder" or not isinstance(node.value, OpaqueValue) or node.value.type != TRACED:
        return False
    return not any(node.name in references(given(user)) for user in body.nodes if user.op != "output")


def stand_in_traced() -> Any:
    """The stand-in for an input without a saved form while a graph is compiled."""
    return t.FakeScriptObject(object(), StandIn.__name__, StandIn(TRACED))


def stand_in_real(item: InputRecord | None) -> StandIn:
    """The stand-in for an input without a saved form when the graph runs."""
    seen = item.value if item is not None else None
    return StandIn(seen.type if isinstance(seen, OpaqueValue) else TRACED)
