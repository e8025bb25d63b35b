"""Rebuilds what `values` has written: arguments, symbols in a ShapeEnv with the same hints, ranges and facts, fake
values, and real tensors with their views, strides, offsets and aliasing.

Evaluates no text. Decoding an argument refuses opaque values by name, and gives FX only plain values and inert text,
since FX and Inductor print them into code that is run.

An input without a saved form, such as a device mesh, has a stand-in in graphs that only pass it through: AOTAutograd
takes DTensors apart and leaves their mesh as an input and an output. A graph that calls something with such an input
cannot be replayed, and is refused with the name of the type.

For example, `ValueReader(Symbols(record, where)).value(record.graph.nodes[0].value, where)`: a FakeTensor.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NoReturn, TypeVar, cast

import msgspec
import sympy
import torch
from torch.utils.checkpoint import CheckpointPolicy

from .. import inert
from ..arguments import KINDS
from ..errors import DamagedError, DeviceMissingError, NameRefusedError, NotStoredError, RefusedError, TorchLacksError
from ..hints import spanned
from ..inert import InertTexts
from ..schema import (
    Arg,
    ConstValue,
    Dim,
    GraphBody,
    GraphRecord,
    GuardRecord,
    InputRecord,
    NodeRecord,
    OpaqueValue,
    SequenceValue,
    StoredTensor,
    SymbolRecord,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from ..walk import given, plain, references
from ..wording import error_line
from . import sympy_text, targets, wrappers
from . import torch_private as t
from .values import ASSUMPTIONS, COUNTERS, FLAGS, SOURCES, TRACED, hints_of

_INDEX_BYTES = 8
INTEGER_OF = {"quint8": torch.uint8, "qint8": torch.int8, "qint32": torch.int32}
SYMBOL = re.compile(r"[a-z]{1,8}[0-9]{1,20}", re.ASCII)

MOST_S = 10.0
SECONDS_A_NODE = 0.01
"""The seconds that a graph's expressions may take to read, and those added per node: usual ones take a millisecond."""
MAX_DEPTH = 60

T = TypeVar("T")


def named(kind: type[T], name: str, where: str) -> T:
    """Torch's object of that name and kind (such as torch.dtype or torch.layout); EnvironmentLackError when this torch
    has none."""
    value = getattr(torch, name, None) if name.isidentifier() else None
    if not isinstance(value, kind):
        raise TorchLacksError(where, f"this torch has no {kind.__name__} {name!r}")
    return value


def dtype_of(name: str, where: str) -> torch.dtype:
    """The dtype of that name ("float32")."""
    return named(torch.dtype, name, where)


def device_of(name: str, where: str) -> torch.device:
    """The device of a name ("cuda:0"), whether or not this machine has it."""
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise NameRefusedError(where, f"{name[:40]!r} is not a device") from error


class ArgumentReader:
    """Decodes arguments. `reader` builds symbolic values, `texts` makes text inert."""

    def __init__(
        self,
        reader: ValueReader,
        strings: list[str],
        texts: InertTexts | None = None,
        tensors: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self.reader = reader
        self.texts = InertTexts() if texts is None else texts
        self.strings = strings
        self.tensors = tensors or {}
        self.nodes: dict[str, torch.fx.Node] = {}
        self.options = False

    def decode(self, arg: Arg, where: str, depth: int = 0) -> Any:
        """The value of an argument; raises RefusedError, UnreadableError or EnvironmentLackError naming `where`."""
        if arg is None or isinstance(arg, (bool, int, float)):
            return arg
        if isinstance(arg, str):
            return self.texts(arg)
        if depth > MAX_DEPTH:
            raise DamagedError(where, f"its arguments are nested more than {MAX_DEPTH} deep")
        if isinstance(arg, list):
            items = cast(list[Any], arg)
            return [self.decode(item, where, depth + 1) for item in items]
        if not isinstance(arg, dict) or len(items_of := cast(dict[Any, Any], arg)) != 1:
            raise DamagedError(where, "an argument is not a value, a list, or an object with one key")
        ((tag, body),) = items_of.items()
        if tag not in KINDS:
            raise DamagedError(where, f"an argument has the unknown kind {tag!r}")
        try:
            return KINDS[tag].decode(body, self, where, depth + 1)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, msgspec.ValidationError) as error:
            raise DamagedError(where, f"an argument of kind {tag!r} is malformed ({error})") from error

    def option(self, arg: Arg, where: str, depth: int) -> Any:
        """Decodes a key or a value of a dict: text among the options of kernels is made inert as an option, since it
        becomes code."""
        words = cast(Any, self.strings[arg["string"]] if isinstance(arg, dict) and [*arg] == ["string"] else arg)
        if self.options and isinstance(words, str):
            return self.texts.kept(inert.option(words), words)
        return self.decode(arg, where, depth)

    def refuse(self, where: str, why: str) -> NoReturn:
        """Raises RefusedError."""
        raise RefusedError(where, why)

    def node(self, name: str, where: str) -> torch.fx.Node:
        """The node of that name; UnreadableError where it is not defined before."""
        if name not in self.nodes:
            raise DamagedError(where, f"it uses the node {name!r}, which is not defined before it")
        return self.nodes[name]

    def metadata(self, body: Any, where: str) -> Any:
        """The fake value for recorded metadata."""
        return self.reader.value(msgspec.convert(body, Value), where)

    def size(self, items: list[Any]) -> torch.Size:
        """A torch.Size of these items."""
        return torch.Size(items)

    def of_torch(self, tag: str, name: str, where: str) -> Any:
        """Torch's object for a tag and a name; EnvironmentLackError when this torch has none."""
        if tag == "device":
            return device_of(name, where)
        return CheckpointPolicy[name] if tag == "policy" else named(getattr(torch, tag), name, where)

    def function(self, name: str, where: str) -> Any:
        """The function of that name; raises RefusedError where a graph may not call it."""
        return targets.resolve(name, where)


class Symbols:
    """A ShapeEnv rebuilt from a record, and the symbolic values in it."""

    def __init__(self, record: GraphRecord, where: str, texts: InertTexts | None = None) -> None:
        self.where = where
        self.texts = InertTexts() if texts is None else texts
        self.env = t.ShapeEnv(**_settings(record.shape_env))
        self.by_name: dict[str, Any] = {}
        self._exprs: dict[str, Any] = {}
        self._numbers = {item.name: item.hint for item in record.symbols}
        self._left_s = MOST_S + SECONDS_A_NODE * len(record.graph.nodes)
        self._int = cache(partial(self.sym, "int"))
        for item in record.symbols:
            self._declare(item)
        for item in record.symbols:
            self._relate(item)
        for guard in record.guards:
            self._assume(guard)
        self._restore(record.shape_env)

    def expr(self, text: str) -> Any:
        """The sympy expression of a stored text."""
        expression = self._exprs.get(text)
        if expression is None:
            with self._spending():
                expression = self._exprs[text] = sympy_text.read(text, self.by_name, self.where, self._numbers)
        return expression

    @contextmanager
    def _spending(self) -> Generator[None]:
        """Counts the time of a block against the limit for a graph's expressions; raises RefusedError where that is
        used up."""
        if self._left_s < 0:
            raise RefusedError(self.where, "its expressions take too long to read")
        begun = time.perf_counter()
        yield
        self._left_s -= time.perf_counter() - begun

    def dim(self, value: Dim) -> Any:
        """An int or a SymInt."""
        return value if isinstance(value, int) else self._int(value)

    def sym(self, kind: str, text: str) -> Any:
        """A symbolic scalar of kind int, float or bool (symbolic even if the expression is a number)."""
        expr = self.expr(text)
        if kind == "int":
            if expr.is_Integer:
                return torch.SymInt(t.SymNode(expr, self.env, int, int(expr)))
            if expr.is_number:
                raise DamagedError(self.where, f"{text!r} is not a whole number")
            return self.env.create_symintnode(expr, hint=None)
        if kind == "float":
            if expr.is_Float:
                return torch.SymFloat(t.SymNode(expr, self.env, float, float(expr)))
            return self.env.create_symfloatnode(expr, hint=None)
        return torch.SymBool(t.SymNode(expr, self.env, bool, None))

    def _declare(self, item: SymbolRecord) -> None:
        if not SYMBOL.fullmatch(item.name) or item.name in self.by_name:
            raise NameRefusedError(self.where, f"{item.name!r} is not a symbol name, or it comes twice")
        words = item.assume.split()
        if any(word not in ASSUMPTIONS for word in words):
            raise DamagedError(self.where, f"symbol {item.name} has the unknown property {item.assume!r}")
        env = self.env
        symbol = self.by_name[item.name] = sympy.Symbol(item.name, **dict.fromkeys(words, True))
        is_float = item.name.startswith("z")
        env.var_to_range[symbol] = _span(item, is_float)
        place = env._get_sloc()
        env.var_to_range_sloc[symbol] = t.ValueRangesSLoc(place, place)
        if item.backed and item.hint is not None:
            number = sympy.Float(item.hint) if is_float else sympy.Integer(item.hint)
            hints_of(env)[symbol] = number
            # A source is written into guards as code, so it is the symbol's name here.
            env.var_to_sources[symbol] = [t.ConstantSource(source_name=item.name)]
            env.source_to_var[item.name] = symbol
            cast(dict[str, Any], vars(env)).setdefault(SOURCES, {})[symbol] = item.source
            env.symbol_guard_counter[symbol] = 0
            if env.duck_shape:
                env.val_to_var.setdefault(item.hint, symbol)
        else:
            env.var_to_stack[symbol] = t.CapturedTraceback.extract(skip=1)
            if item.order >= 0 and hasattr(env, "unbacked_alloc_order"):
                env.unbacked_alloc_order[symbol] = item.order
        if hasattr(env, "name_to_symbol"):  # since 2.15: by which entries of the cache are read
            env.name_to_symbol[item.name] = symbol
        if hasattr(env, "unique_ids"):
            env.unique_ids.add(int(re.sub(r"\D", "", item.name)))
        if item.size_like and hasattr(env, "size_like"):
            env.size_like.add(symbol)
        if item.input and hasattr(env, "unbacked_inputs"):
            env.unbacked_inputs.add(symbol)
        if item.hint_override is not None and hasattr(env, "var_to_hint_override"):
            env.var_to_hint_override[symbol] = item.hint_override

    def _relate(self, item: SymbolRecord) -> None:
        symbol = self.by_name[item.name]
        if item.replacement:
            self.env.replacements[symbol] = self.expr(item.replacement)
        if item.renamed and item.renamed in self.by_name and hasattr(self.env, "unbacked_renamings"):
            self.env.unbacked_renamings[symbol] = self.by_name[item.renamed]

    def _assume(self, guard: GuardRecord) -> None:
        env, expr = self.env, self.expr(guard.expr)
        if guard.kind == "divisible":
            env.divisible.add(expr)
            return
        if guard.kind == "guard":
            place = dataclasses.replace(env._get_sloc(), maybe_user_loc=self.texts(guard.message) or None)
            env.guards.append(t.ShapeGuard(expr, place, size_oblivious=guard.size_oblivious))
        else:
            asserted = t.RuntimeAssert(expr, self.texts(guard.message), t.CapturedTraceback.extract(skip=1))
            env.deferred_runtime_asserts.setdefault(self.by_name.get(guard.symbol), []).append(asserted)
            env.num_deferred_runtime_asserts += 1
        with self._spending():
            env.axioms.update(dict(env.get_implications(env.simplify(expr))))  # pyright: ignore

    def _restore(self, saved: dict[str, Arg]) -> None:
        env = self.env
        env._update_version_counter()
        if env.replacements and hasattr(env, "_replacements_version_counter"):  # else 2.13 leaves every symbol as it is
            env._replacements_version_counter += 1
        for name in COUNTERS:
            if isinstance(saved.get(name), int) and hasattr(env, name):
                setattr(env, name, saved[name])
        for name in FLAGS:
            if saved.get(name) is True and hasattr(env, name):
                setattr(env, name, True)


def _settings(saved: dict[str, Arg]) -> dict[str, Any]:
    known = inspect.signature(t.ShapeEnv._init).parameters
    return {name: value for name, value in saved.items() if name in known and isinstance(value, bool)}


def _span(item: SymbolRecord, is_float: bool) -> Any:
    infinity = sympy.oo if is_float else t.int_oo
    make = sympy.Float if is_float else sympy.Integer
    lower = -infinity if item.lower is None else make(item.lower)
    upper = infinity if item.upper is None else make(item.upper)
    return t.ValueRanges(lower, upper)


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
