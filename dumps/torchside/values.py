"""Converts a live graph's values, symbols, arguments and tensors to records; `live_values` has the way back.

Values are fake or real tensors, symbolic scalars and sequences. Of values only metadata is read: no data, no guard is
added, nothing of a ShapeEnv is specialised. Tensor subclasses that are no plain tensor become OpaqueValue, unless they
are traceable wrappers. Arguments become JSON values with one-key tags (dumps.arguments), which never fails: a value
without a saved form becomes {"opaque": [type, text]}.

Real tensors are saved as whole storages in a TensorSink. Bytes are copied as they lie in memory; a conj or neg bit is a
property of the view, not of the bytes. A sparse tensor is one sequence of bytes: indices, then values; their number
follows from the length. This covers coordinates without dense dimensions (sparse_coo) and compressed rows or columns of
a matrix (sparse_csr, sparse_csc); other layouts keep their shape alone.

>>> ValueWriter().value(torch.empty(2, 3))
TensorValue(dtype='float32', shape=[2, 3], stride=[3, 1], offset=0, device='cpu', ...)
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from sys import intern
from typing import Any, cast

import msgspec
import sympy
import torch

from ..arguments import KINDS
from ..arguments.kind import OTHER, Kind
from ..hints import extent
from ..schema import (
    Arg,
    ConstValue,
    Dim,
    GuardRecord,
    OpaqueValue,
    SequenceValue,
    StoredTensor,
    SymbolRecord,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from . import sympy_text, targets, wrappers
from . import torch_private as t

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


_SYM_TYPES = (torch.SymInt, torch.SymFloat, torch.SymBool)
ASSUMPTIONS = ("integer", "positive", "nonnegative", "real", "even", "odd", "zero")
COUNTERS = ("unbacked_symint_counter", "unbacked_symfloat_counter")
FLAGS = ("frozen", "runtime_asserts_frozen")
SOURCES = "graphdbg_sources"
"""Attribute of a rebuilt ShapeEnv: symbol -> its source, as recorded."""


def hints_of(env: Any) -> dict[Any, Any]:
    """The symbols of a ShapeEnv and their hints: `backed_var_to_val` since 2.13, `var_to_val` before."""
    hints = getattr(env, "backed_var_to_val", None)
    return env.var_to_val if hints is None else hints


def is_symbolic(value: object) -> bool:
    """Whether a value is a SymInt, SymFloat or SymBool."""
    return isinstance(value, _SYM_TYPES)


class SymbolWriter:
    """Collects the symbols that a graph mentions while its values are encoded, then writes them with all facts on
    them."""

    def __init__(self, originals: Mapping[str, str]) -> None:
        self.env: Any = None
        self.originals = originals
        self._texts: dict[Any, str] = {}
        self._used: set[Any] = set()

    def adopt(self, env: Any) -> None:
        """Keeps the ShapeEnv of the graph; later ones are ignored."""
        if self.env is None:
            self.env = env

    def dim(self, value: Any) -> Dim:
        """A size, stride or offset as int or text."""
        if type(value) is int:
            return value
        if not is_symbolic(value):
            return int(value)
        expr = self.expr(value)
        return int(expr) if expr.is_Integer else self.text(expr)

    def expr(self, value: Any) -> Any:
        """The sympy expression of a symbolic value, replacements applied."""
        self.adopt(value.node.shape_env)
        return value.node.expr

    def text(self, expr: Any) -> str:
        """The text of an expression; its symbols count as used."""
        known_text = self._texts.get(expr)
        if known_text is None:
            known_text = self._texts[expr] = sympy_text.write(expr)
            self._used.update(getattr(expr, "free_symbols", ()))
        return known_text

    def sym(self, value: Any) -> SymValue:
        """The record of a symbolic scalar, with its hint. Inductor names inputs by the symbol they were created
        with."""
        kind = "int" if isinstance(value, torch.SymInt) else "float" if isinstance(value, torch.SymFloat) else "bool"
        node = cast(Any, value).node
        self.adopt(node.shape_env)
        expr = getattr(node, "_expr", node.expr)  # as created, before replacements
        return SymValue(kind=kind, expr=self.text(expr), hint=self.hint(expr))

    def use(self, symbol: Any) -> str:
        """Marks a symbol that node metadata mentions as used, and returns its name."""
        self._used.add(symbol)
        return symbol.name

    def hint(self, expr: Any) -> int | float | bool | None:
        """The number that an expression had while tracing; None if it depends on data."""
        if self.env is None:
            return None
        hints = hints_of(self.env)
        if any(symbol not in hints for symbol in expr.free_symbols):
            return None
        return _number(expr.xreplace({symbol: hints[symbol] for symbol in expr.free_symbols}))

    def finish(self) -> tuple[list[SymbolRecord], list[GuardRecord], dict[str, Arg]]:
        """Records of the used symbols and of every fact connected with them."""
        env = self.env
        if env is None:
            return [], [], {}
        facts = _facts(env)
        self._close_over(env, [fact for fact, *_ in facts])
        guards = [
            GuardRecord(
                expr=self.text(expr),
                kind=kind,
                symbol=symbol,
                message=self.originals.get(message, message),
                size_oblivious=oblivious,
            )
            for expr, kind, symbol, message, oblivious in facts
            if expr.free_symbols and expr.free_symbols <= self._used
        ]
        ordered = sorted(self._used, key=lambda symbol: (len(symbol.name), symbol.name))
        return [self._symbol(symbol) for symbol in ordered], guards, _environment(env)

    def _close_over(self, env: Any, facts: list[Any]) -> None:
        """Adds the symbols that share a fact with a used one, until nothing changes."""
        linked = [set(expr.free_symbols) for expr in facts]
        linked += [{old, *new.free_symbols} for old, new in env.replacements.items()]
        linked += [{old, new} for old, new in getattr(env, "unbacked_renamings", {}).items()]
        size = -1
        while size != len(self._used):
            size = len(self._used)
            for group in linked:
                if group & self._used:
                    self._used |= group

    def _symbol(self, symbol: Any) -> SymbolRecord:
        env = self.env
        hints = hints_of(env)
        span = env.var_to_range.get(symbol)
        sources = env.var_to_sources.get(symbol, [])
        made_with = dict(getattr(symbol, "_assumptions_orig", None) or {})  # the assumptions it was created with
        renamed = getattr(env, "unbacked_renamings", {}).get(symbol)
        return SymbolRecord(
            name=symbol.name,
            hint=_number(hints[symbol]) if symbol in hints else None,
            lower=_bound(span.lower) if span is not None else None,
            upper=_bound(span.upper) if span is not None else None,
            backed=symbol in hints,
            source=getattr(env, SOURCES, {}).get(symbol) or (_source_name(sources[0]) if sources else ""),
            assume=" ".join(name for name in ASSUMPTIONS if made_with.get(name)),
            replacement=self.text(env.replacements[symbol]) if symbol in env.replacements else "",
            renamed=renamed.name if renamed is not None else "",
            size_like=symbol in getattr(env, "size_like", ()),
            input=symbol in getattr(env, "unbacked_inputs", ()),
            hint_override=getattr(env, "var_to_hint_override", {}).get(symbol),
            order=getattr(env, "unbacked_alloc_order", {}).get(symbol, -1),
        )


def _facts(env: Any) -> list[tuple[Any, Any, str, str, bool]]:
    facts: list[tuple[Any, Any, str, str, bool]] = [
        (guard.expr, "guard", "", _user_line(guard), bool(getattr(guard, "size_oblivious", False)))
        for guard in env.guards
    ]
    for symbol, asserts in env.deferred_runtime_asserts.items():
        name = symbol.name if symbol is not None else ""
        facts += [(item.expr, "assert", name, str(item.msg), False) for item in asserts]
    facts += [(expr, "divisible", "", "", False) for expr in sorted(env.divisible, key=str)]
    return facts


def _user_line(guard: Any) -> str:
    """The user line of a guard, in the form that torch writes while tracing: `x = x.view(2, -1) # model.py:12 in
    forward`."""
    return str(getattr(getattr(guard, "sloc", None), "maybe_user_loc", None) or "")


def _environment(env: Any) -> dict[str, Arg]:
    settings = cast(Any, getattr(env, "settings", None))
    names = cast(dict[str, Any], getattr(settings.__class__, "__dataclass_fields__", {}))
    saved: dict[str, Arg] = {name: value for name in names if isinstance(value := getattr(settings, name), bool)}
    saved |= {name: int(getattr(env, name)) for name in COUNTERS if getattr(env, name, 0)}
    return saved | {name: True for name in FLAGS if getattr(env, name, False)}


def _source_name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)


def _number(value: Any) -> int | float | bool | None:
    if value is sympy.true or value is sympy.false:
        return bool(value)
    if getattr(value, "is_Integer", False):
        return int(value)
    if getattr(value, "is_number", False) and getattr(value, "is_real", False):
        return float(value)
    return None


def _bound(value: Any) -> int | float | None:
    if value in (t.int_oo, -t.int_oo, sympy.oo, -sympy.oo):
        return None
    return _number(value)


def fake_of(node: torch.fx.Node) -> Any:
    """The fake value that tracing put on a node, or None."""
    return node.meta.get("val", node.meta.get("example_value"))


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype: "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


class ArgumentWriter:
    """Encodes arguments. `keep_tensor` stores a tensor among the arguments and returns its name."""

    def __init__(self, values: ValueWriter, keep_tensor: Callable[[torch.Tensor], str] | None = None) -> None:
        self.values = values
        self.symbols = values.symbols
        self.originals = values.symbols.originals
        self.keep_tensor = keep_tensor
        self.opaque = 0
        self.functions: set[str] = set()

    def encode(self, value: Any) -> Arg:
        """The JSON form of an argument."""
        kind = cast(type[Any], type(value))
        if value is None or kind is bool or kind is int:
            return value
        if kind is str:
            return self.originals.get(value, value)
        if kind is float and math.isfinite(value):
            return value
        if isinstance(value, list):
            items = cast(list[Any], value)
            return [self.encode(item) for item in items]
        contents = ((row.tag, row.encode(value, self)) for row in _kinds_of(kind))
        return next({tag: content} for tag, content in contents if content is not OTHER)

    def metadata(self, value: torch.Tensor) -> Any:
        """The recorded metadata of a tensor whose bytes are not stored."""
        return msgspec.to_builtins(self.values.value(value))

    def function(self, value: Any) -> str:
        """The name that a callable has in the saved form; empty where it has none."""
        name = targets.name_of(value)
        if name.startswith(targets.OPAQUE):
            return ""
        self.functions.add(name)
        return name


@lru_cache(maxsize=512)
def _kinds_of(of: type) -> tuple[Kind, ...]:
    """The kinds that may encode values of a type, in the order in which to try them."""
    return tuple(row for row, types in _typed() if (of in types if row.exact else issubclass(of, types)))


@cache
def _typed() -> list[tuple[Kind, tuple[type, ...]]]:
    places = {row: [name.rpartition(".") for name in row.types.split()] for row in KINDS.values()}
    typed = [(row, tuple(getattr(import_module(home), name) for home, _, name in places[row])) for row in places]
    return sorted(typed, key=lambda item: item[0].order)


class ValueWriter:
    """Encodes values, and stores tensors, each storage once; without a sink only metadata is written. Call `count` on
    every value first: alias groups are written only for storages seen more than once. `originals`: inert text -> the
    original in the record that the graph was loaded from."""

    def __init__(self, originals: Mapping[str, str] | None = None, sink: TensorSink | None = None) -> None:
        self.symbols = SymbolWriter(originals or {})
        self.sink = sink
        self._seen: Counter[int] = Counter()
        self._groups: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []

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

    def store(self, tensor: torch.Tensor) -> StoredTensor:
        """The record of a tensor; its bytes go to the sink unless it has none (fake, meta) or the sink declines."""
        if wrappers.is_wrapper(tensor):
            value = self.value(tensor)
            inner = {name: self.store(part) for name, part in wrappers.parts(tensor).items()}
            return StoredTensor("", value, isinstance(tensor, torch.nn.Parameter), inner)  # pyright: ignore
        return StoredTensor(
            storage=self._put(tensor),
            value=self.tensor(tensor, whole_storage=tensor.layout is torch.strided),
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


def storage_key(tensor: torch.Tensor) -> int:
    """A key that is equal for tensors that share a storage; fake and meta tensors have no data_ptr to compare."""
    return cast(Any, tensor.untyped_storage())._cdata


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
