"""Source text for the inputs of a repro, in three ways: seeded (shapes and ranges only), literal (small tensors written
out), stored.

Also: a stand-in for a custom operator that cannot be imported: registered under its name, with the recorded shapes.

Imports no torch: bytes come from the saved form's own storages. `stored` reads one file beside the program, a
safetensors file of byte tensors named "0", "1", ...

>>> source_of([Slot("x", TensorValue("float32", [2, 3], [3, 1]))], "seeded").expressions
['torch.randn(2, 3)']
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, cast

from ..arguments import KINDS
from ..hints import Numbers, extent, inputs_known, size
from ..schema import (
    Arg,
    ConstValue,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..sidecar import ITEM_BYTES
from ..tensors import file_header
from ..walk import tag_of
from .case import REAL, Read, ReproFacts, placeholders
from .text import CannotExpressError, InputFormError, OperatorFormError, identifier, quoted

Way = Literal["seeded", "literal", "stored"]

SMALL_ELEMENTS = 64
"""A tensor of up to this many elements is written out in the program; a larger one goes to the file beside it."""

_FORMATS = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B",
    "uint16": "H", "uint32": "I", "uint64": "Q", "bool": "?",
}  # fmt: skip
_LIMITS = {"uint8": 256, "int8": 128}


@dataclass(frozen=True)
class Slot:
    """The known data of one input or constant of the graph."""

    name: str
    value: Value | None
    scalar: float | bool | None = None
    statistics: Mapping[str, float | int | None] | None = None
    stored: StoredTensor | None = None
    requires_grad: bool = False
    bound: int | None = None
    """Exclusive upper limit of an integer tensor that holds indices."""


@dataclass
class InputSource:
    """Statements to run first, one expression per slot, and the bytes of the file beside the program ({} when none is
    needed)."""

    statements: list[str] = field(default_factory=list[str])
    expressions: list[str] = field(default_factory=list[str])
    file: dict[str, bytes] = field(default_factory=dict[str, bytes])
    seeded: bool = False
    maker: str = "make_inputs()"
    """The head of the function that returns the inputs."""


def slots_of(
    record: GraphRecord, inputs: InputsRecord | None, constants: Mapping[str, str], *, grad: bool
) -> tuple[list[Slot], Numbers]:
    """The placeholders in order, then the constants (parameter -> name of its tensor), and a number for every symbol.

    `grad`: inputs keep requires_grad.
    """
    seen, known, limits = inputs_known(record, inputs)
    slots: list[Slot] = []
    for node in placeholders(record.graph):
        item = seen.get(node.name) or InputRecord(name=node.name)
        value = item.value if item.value is not None else node.value
        wants = grad and isinstance(node.value, TensorValue) and node.value.requires_grad
        limit = limits.get(node.name)
        slots.append(Slot(node.name, value, item.scalar, item.statistics, item.stored, wants, limit))
    for parameter, name in constants.items():
        tensor = _held(record.graph, name)
        slots.append(Slot(parameter, tensor.value, stored=tensor if tensor.storage else None))
    return slots, known


def source_of(
    slots: Sequence[Slot],
    way: Way,
    read: Read | None = None,
    hints: Numbers | None = None,
    *,
    views: bool = False,
    moved: bool = False,
    whole: bool = False,
) -> InputSource:
    """Renders the slots. `stored` and `literal` fall back to seeded for a slot whose bytes were not kept.

    `views`: inputs that share memory are built as views of the tensors that autograd knew as their bases. `moved`: the
    function that returns the inputs has a parameter through which all floating memory goes. `whole`: also fills the
    memory around a view.
    """
    writer = _InputWriter(way, read, dict(hints or {}), views, moved, whole)
    groups: dict[int, list[Slot]] = {}
    for slot in slots:
        if isinstance(slot.value, TensorValue) and slot.value.storage is not None:
            groups.setdefault(slot.value.storage, []).append(slot)
    writer.shared = {group: members for group, members in groups.items() if len(members) > 1}
    writer.source.expressions += [writer.slot(slot) for slot in slots]
    return writer.source


def inputs_of(case: ReproFacts, constants: Mapping[str, str], way: Way) -> tuple[list[Slot], InputSource]:
    """The slots of a case's inputs and of its function's constants, and their source text."""
    slots, known = slots_of(case.record, case.inputs, constants, grad=case.facts.grad)
    ways = {"views": case.facts.views, "moved": case.facts.moved, "whole": case.facts.strided}
    return slots, source_of(slots, way, case.read, known, **ways)


class _InputWriter:
    """Renders slot after slot; slots that alias share a storage."""

    def __init__(
        self, way: Way, read: Read | None, hints: dict[str, float], views: bool, moved: bool, whole: bool
    ) -> None:
        self.way, self.read, self.hints, self.views, self.moved, self.whole = way, read, hints, views, moved, whole
        self.source = InputSource()
        if moved:
            self.source.maker = "make_inputs(to=lambda x: x)"
        self.wholes: dict[tuple[object, ...], str] = {}
        self.shared: dict[int, list[Slot]] = {}
        self.bases: dict[int, str] = {}
        self.files: dict[str, str] = {}

    def slot(self, slot: Slot) -> str:
        """One slot as an expression."""
        value = slot.value
        if isinstance(value, TensorValue):
            if self.views and value.storage in self.shared and not (value.conj or value.neg):
                return self._viewed(slot, value)
            text = self._to(value, self._tensor(slot, value))
            return f"{text}.requires_grad_()" if slot.requires_grad else text
        if slot.scalar is not None:
            return repr(slot.scalar)
        if isinstance(value, ConstValue) and tag_of(value.value)[0] == "float":
            return f'float("{float(tag_of(value.value)[1])}")'
        if isinstance(value, SymValue):
            known = value.hint if value.hint is not None else self.hints.get(value.expr)
            if known is not None:
                return repr(known)
        if value is None:
            raise InputFormError(f"the input {slot.name!r} was not recorded", "", "record with --inputs first")
        raise InputFormError(f"the input {slot.name!r} is a {type(value).__name__}, which a repro cannot create")

    def _tensor(self, slot: Slot, value: TensorValue) -> str:
        for odd, how in (
            (value.inner, f"is a {value.subclass}"),
            (value.layout != "strided", f"has the layout {value.layout}"),
            (value.dtype not in ITEM_BYTES, f"has the dtype {value.dtype}"),
            (value.quantizer, "is quantised"),
        ):
            if odd:
                raise InputFormError(f"the input {slot.name!r} {how}, which a repro cannot create yet")
        text = self._strided(slot, value)
        text = f"{text}.conj()" if value.conj else text
        return f"torch._neg_view({text})" if value.neg else text

    def _strided(self, slot: Slot, value: TensorValue) -> str:
        """A strided tensor, without its conj and neg bits."""
        shape, stride, offset = self._form(value)
        shared = value.storage is not None and value.storage in self.shared
        if self.way != "seeded" and slot.stored is not None and slot.stored.storage and self.read is not None:
            return self._kept(slot.stored, value, alone=not shared)
        if shared:
            return self._view(self._base(slot, value), shape, stride, offset)
        return self._seeded(slot, value, shape, stride, offset)

    def _to(self, value: TensorValue, text: str) -> str:
        return f"to({text})" if self.moved and value.dtype.startswith(REAL) else text

    def _viewed(self, slot: Slot, value: TensorValue) -> str:
        """A view of the recorded base, or the base itself."""
        base = value.base or value
        (shape, stride, offset), flat = self._form(base), self._base(slot, value)
        key = (flat, *shape, 0, *stride, 0, offset)
        computed = base.requires_grad and not base.leaf and stride == contiguous(shape)
        if key not in self.wholes:
            self.wholes[key] = f"whole{len(self.wholes)}"
            ends = ".requires_grad_()" * base.requires_grad + ".clone()" * computed
            self.source.statements.append(
                f"{self.wholes[key]} = {self._view(flat, shape, stride, offset)}.detach(){ends}"
            )
        if value.base is None:
            return self.wholes[key]
        own = self._form(value)
        text = self._view(self.wholes[key], own[0], own[1], own[2] - offset * computed)
        return f"{text}.requires_grad_()" if slot.requires_grad and not base.requires_grad else text

    def _form(self, value: TensorValue) -> tuple[list[int], list[int], int]:
        """Shape, stride and offset as numbers."""
        return [self._size(d) for d in value.shape], [self._size(d) for d in value.stride], self._size(value.offset)

    def _size(self, dim: int | str) -> int:
        if isinstance(dim, int):
            return dim
        number = size(dim, self.hints)
        if number is None:
            raise InputFormError(f"the size {dim!r} has no number")
        return number

    def _seeded(self, slot: Slot, value: TensorValue, shape: list[int], stride: list[int], offset: int) -> str:
        """A generator call whose result has the wanted strides, in the plainest form that gives them."""
        held = self._size(value.storage_bytes or 0) // ITEM_BYTES[value.dtype] if self.whole else 0
        if held > extent(shape, stride, offset):
            return self._view(self._generate(slot, value, [held]), shape, stride, offset)
        order = sorted(range(len(shape)), key=lambda d: (-stride[d], d))
        dense = [shape[d] for d in order]
        if offset == 0 and stride == contiguous(shape):
            return self._generate(slot, value, shape)
        if offset == 0 and [stride[d] for d in order] == contiguous(dense) and 0 not in stride:
            back = [order.index(d) for d in range(len(shape))]
            return f"{self._generate(slot, value, dense)}.permute({', '.join(map(str, back))})"
        small = [1 if s == 0 else n for n, s in zip(shape, stride, strict=True)]
        if offset == 0 and all(s == 0 or s == c for s, c in zip(stride, contiguous(small), strict=True)):
            return f"{self._generate(slot, value, small)}.expand({', '.join(map(str, shape))})"
        return self._view(self._generate(slot, value, [extent(shape, stride, offset)]), shape, stride, offset)

    def _base(self, slot: Slot, value: TensorValue) -> str:
        """The name of the storage that several inputs view: a flat tensor of the first input's dtype."""
        assert value.storage is not None
        members = [other.value for other in self.shared[value.storage] if isinstance(other.value, TensorValue)]
        width = ITEM_BYTES[members[0].dtype]
        sizes = [extent(*self._form(member)) * ITEM_BYTES[member.dtype] for member in members]
        sizes += [self._size(member.storage_bytes) for member in members if member.storage_bytes is not None]
        if value.storage not in self.bases:
            self.bases[value.storage] = name = f"base{len(self.bases)}"
            kept = slot.stored if self.views and self.way != "seeded" and self.read is not None else None
            flat = self._flat(kept, value) if kept is not None and kept.storage else None
            text = flat or self._generate(slot, members[0], [-(-max(sizes) // width)])
            self.source.statements.append(f"{name} = {self._to(value, text)}")
        name = self.bases[value.storage]
        return name if value.dtype == members[0].dtype else f"{name}.view(torch.{value.dtype})"

    def _generate(self, slot: Slot, value: TensorValue, shape: list[int]) -> str:
        """A call that creates a contiguous tensor of that shape, with values in the observed range."""
        dtype, seen = value.dtype, slot.statistics or {}
        low, high = seen.get("min"), seen.get("max")
        sizes = ", ".join(map(str, shape)) if shape else "()"
        kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        device = "" if value.device == "cpu" else f", device={quoted(value.device)}"
        size = tuple(shape)
        if low is not None and low == high:
            if low in (0, 1):
                return f"torch.{'ones' if low else 'zeros'}({sizes}{kind}{device})"
            return f"torch.full({size}, {low!r}{kind}{device})"
        self.source.seeded = True
        if dtype == "bool":
            return f"torch.randint(0, 2, {size}, dtype=torch.bool{device})"
        if dtype.startswith(("int", "uint")):
            likely = slot.bound - 1 if slot.bound is not None else min(7, _LIMITS.get(dtype, 8) - 1)
            first, last = int(low or 0), int(high) if high is not None else likely
            return f"torch.randint({first}, {last + 1}, {size}{'' if dtype == 'int64' else kind}{device})"
        maker = "rand" if low is not None and low >= 0 else "randn"
        if dtype.startswith("float8"):
            return f"torch.{maker}({sizes}{device}).to(torch.{dtype})"
        return f"torch.{maker}({sizes}{kind}{device})"

    def _kept(self, stored: StoredTensor, value: TensorValue, *, alone: bool) -> str:
        """The recorded bytes: written out when they are few, else read from the file beside the program."""
        data, device = self._bytes(stored), "" if value.device == "cpu" else f".to({quoted(value.device)})"
        shape, stride, offset = self._form(stored.value)
        count = prod(shape)
        if self.way == "literal" and alone and value.dtype in _FORMATS:
            held = len(data) // ITEM_BYTES[value.dtype]
            plain = offset == 0 and stride == contiguous(shape) and not (self.whole and held > count)
            if count <= SMALL_ELEMENTS and plain:
                return _literal(data, shape, value.dtype) + device
            if held <= SMALL_ELEMENTS and extent(shape, stride, offset) <= held:
                return self._view(_literal(data, [held], value.dtype), shape, stride, offset) + device
        text = self._from_file(stored, value, data)
        if stride == contiguous(shape) and not offset and prod(shape) * ITEM_BYTES[value.dtype] == len(data):
            return (f"{text}.view({', '.join(map(str, shape))})" if len(shape) != 1 else text) + device
        return self._view(text, shape, stride, offset) + device

    def _bytes(self, stored: StoredTensor) -> bytes:
        assert self.read is not None
        return bytes(self.read(stored.storage))

    def _from_file(self, stored: StoredTensor, value: TensorValue, data: bytes) -> str:
        """All of the recorded bytes, from the file beside the program."""
        if stored.storage not in self.files:
            self.files[stored.storage] = str(len(self.files))
            self.source.file[self.files[stored.storage]] = data
        return f'stored["{self.files[stored.storage]}"].view(torch.{value.dtype})'

    def _flat(self, stored: StoredTensor, value: TensorValue) -> str:
        """All of the recorded bytes, as a 1-D tensor."""
        data, device = self._bytes(stored), "" if value.device == "cpu" else f".to({quoted(value.device)})"
        count = len(data) // ITEM_BYTES[value.dtype]
        written = self.way == "literal" and value.dtype in _FORMATS and count <= SMALL_ELEMENTS
        return (_literal(data, [count], value.dtype) if written else self._from_file(stored, value, data)) + device

    def _view(self, base: str, shape: list[int], stride: list[int], offset: int) -> str:
        return f"{base}.as_strided({tuple(shape)}, {tuple(stride)}{f', {offset}' if offset else ''})"


def _held(body: GraphBody, path: str) -> StoredTensor:
    """The stored tensor of a constant, by its name after the names of the subgraphs that contain it."""
    if path in body.attrs:
        return body.attrs[path]
    for name, inner in body.subgraphs.items():
        if path.startswith(f"{name}."):
            return _held(inner, path.removeprefix(f"{name}."))
    raise InputFormError(f"the attribute {path!r} is not stored")


def contiguous(shape: Sequence[int]) -> list[int]:
    """Row-major strides, in elements; an empty dimension counts as one (as in torch)."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * max(shape[index + 1], 1)
    return strides


def sidecar_bytes(tensors: Mapping[str, bytes]) -> bytes:
    """A safetensors file of uint8 tensors; the same tensors give the same bytes."""
    return file_header({name: len(data) for name, data in tensors.items()}) + b"".join(tensors.values())


def _literal(data: bytes, shape: Sequence[int], dtype: str) -> str:
    letter = _FORMATS[dtype]
    count = prod(shape)
    numbers = struct.unpack(f"<{count}{letter}", data[: count * ITEM_BYTES[dtype]])
    texts = [_number(number, letter) for number in numbers]
    kind = "" if count and dtype in ("bool", "int64", "float32") else f", dtype=torch.{dtype}"
    return f"torch.tensor({_nest(texts, list(shape))}{kind})"


def _number(number: float | bool, letter: str) -> str:
    """The shortest text that reads back to the same bits."""
    if letter not in "fe" or number != number or number in (float("inf"), float("-inf")):
        text = repr(number)
        return f'float("{text}")' if text in ("nan", "inf", "-inf") else text
    for digits in range(1, 10):
        text = repr(float(f"{number:.{digits}g}"))
        if struct.pack(f"<{letter}", float(text)) == struct.pack(f"<{letter}", number):
            return text
    return repr(number)


def _nest(texts: list[str], shape: list[int]) -> str:
    if not shape:
        return texts[0]
    step = len(texts) // shape[0] if shape[0] else 0
    return "[" + ", ".join(_nest(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])) + "]"


HELPER = """\
def synthesised(like):
    \"""Values for a stand-in: not those of the operator.\"""
    return like.copy_(torch.linspace(0, 1, like.numel(), device=like.device).reshape(like.shape))"""


@dataclass
class OpCall:
    """One recorded call: arguments by position and by name, the recorded values of nodes, and its results."""

    args: list[Arg]
    kwargs: dict[str, Arg]
    values: Mapping[str, Value | None]
    result: list[Value | None]
    listed: bool = False
    """Whether the call returns a list."""
    written: list[str] = field(default_factory=list[str])
    """Names of arguments that the call writes to."""
    nothing: bool = False
    """Whether the call returns nothing."""


def stand_in(name: str, calls: Sequence[OpCall], *, schema: str = "", grad: bool = False) -> str:
    """The registration of a stand-in; raises CannotExpressError where the calls do not determine the operator.
    `schema`: its schema, if known."""
    own = name.replace("::", "_").replace(".", "_")
    telling = [recorded for recorded in calls if not recorded.nothing] or calls  # an unused result says nothing
    first = telling[0]
    names = [f"a{index}" for index in range(len(first.args))] + [identifier(key, name) for key in first.kwargs]
    if any(len(recorded.args) != len(first.args) or list(recorded.kwargs) != list(first.kwargs) for recorded in calls):
        what = f"the operator {name} is called with different sets of arguments, so no stand-in can be written"
        raise OperatorFormError(what)
    if len({(recorded.listed, len(recorded.result)) for recorded in telling}) > 1:
        what = f"the operator {name} returns different numbers of results, so no stand-in can be written"
        raise OperatorFormError(what)
    types = [
        _type([_kind(arg, call.values) for arg, call in zip(column, calls, strict=True)], name)
        for column in _columns(calls)
    ]
    written = set(first.written)
    if first.nothing and not written:
        written = {n for n, kind in zip(names, types, strict=True) if kind == "Tensor"}
    schema = schema or _schema(names, types, written, first)
    results_of = range(0 if first.nothing else len(first.result))
    outputs = [_output(at, telling, names, _columns(telling), name) for at in results_of]
    takes = ", ".join(names)
    outputs_made = [f"synthesised({recorded})" for recorded in outputs]
    lines = [f"torch.library.define({quoted(name)}, {quoted(schema)})", "", ""]
    lines += [f'@torch.library.impl({quoted(name)}, "default")', f"def {own}({takes}):"]
    lines += [f"    synthesised({recorded})" for recorded in names if recorded in written]
    lines += [f"    return {_returned(outputs_made, first)}"] if outputs_made else ["    pass"] * (not written)
    lines += ["", "", f"torch.library.register_fake({quoted(name)}, lambda {takes}: {_returned(outputs, first)})"]
    if grad and outputs and not written:
        nothing = ", ".join("None" for _ in names) + ("," if len(names) == 1 else "")
        lines.append(f"torch.library.register_autograd({quoted(name)}, lambda *_: ({nothing}))")
    return "\n".join(lines)


def _columns(calls: Sequence[OpCall]) -> list[tuple[Arg, ...]]:
    """The arguments of all calls, grouped by position."""
    return list(zip(*([*call.args, *call.kwargs.values()] for call in calls), strict=True))


def _returned(texts: Sequence[str], call: OpCall) -> str:
    if not texts:
        return "None"
    if call.listed:
        return f"[{', '.join(texts)}]"
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _schema(names: Sequence[str], types: Sequence[str], written: set[str], call: OpCall) -> str:
    texts: list[str] = []
    for at, (name, kind) in enumerate(zip(names, types, strict=True)):
        texts.append(f"{kind}(w{at}!) {name}" if name in written else f"{kind} {name}")
    if len(call.args) < len(names):
        texts.insert(len(call.args), "*")
    outputs = [] if call.nothing else call.result
    kinds = ["Tensor" if isinstance(output, TensorValue) else "SymInt" for output in outputs]
    result = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
    return f"({', '.join(texts)}) -> {'Tensor[]' if call.listed else result}"


_OF_NUMBERS = {"int": "SymInt", "float": "float", "bool": "bool"}
"""The schema's types of symbolic numbers."""


def _kind(arg: Arg, values: Mapping[str, Value | None]) -> str:
    """The schema's type of one argument; empty for None."""
    if arg is None:
        return ""
    for kind, text in ((bool, "bool"), (int, "SymInt"), (float, "float"), (str, "str")):
        if isinstance(arg, kind):
            return text
    if isinstance(arg, list):
        return _list_kind(cast("list[Arg]", arg), values)
    ((tag, content),) = cast("dict[str, Any]", arg).items()
    if tag == "node":
        value = values.get(content)
        return _OF_NUMBERS[value.kind] if isinstance(value, SymValue) else "Tensor"
    if tag == "tuple":
        return _list_kind(content, values)
    if tag == "sym":
        return _OF_NUMBERS[content[0]]
    if tag in KINDS and KINDS[tag].schema:
        return KINDS[tag].schema
    raise OperatorFormError(f"a custom operator has an argument of kind {tag!r}, which a stand-in cannot take")


def _list_kind(items: Sequence[Arg], values: Mapping[str, Value | None]) -> str:
    kinds = {_kind(item, values) for item in items}
    return f"{_merged(kinds)}[]" if kinds else "SymInt[]"


def _merged(kinds: set[str]) -> str:
    optional = "?" if "" in kinds else ""
    kinds = kinds - {""}
    if kinds == {"SymInt", "float"}:
        kinds = {"float"}
    if len(kinds) > 1:
        raise OperatorFormError(f"a custom operator is given {' and '.join(sorted(kinds))} for the same argument")
    return (kinds.pop() if kinds else "Tensor") + optional


def _type(kinds: Sequence[str], name: str) -> str:
    try:
        return _merged(set(kinds))
    except CannotExpressError as error:
        raise OperatorFormError(f"no stand-in for {name}: {error}") from error


def _output(at: int, calls: Sequence[OpCall], names: Sequence[str], columns: Sequence[Sequence[Arg]], name: str) -> str:
    """An expression that creates an uninitialised output: like an argument, else with sizes that are an argument's or
    numbers."""
    wanted: list[TensorValue] = []
    for call in calls:
        value = call.result[at]
        if not isinstance(value, TensorValue):
            raise OperatorFormError(f"the operator {name} returns more than tensors, so no stand-in can be written")
        wanted.append(value)
    given: dict[str, list[TensorValue]] = {}
    for own, column in zip(names, columns, strict=True):
        tensors = [value for arg, call in zip(column, calls, strict=True) if (value := _tensor(arg, call)) is not None]
        if len(tensors) == len(calls):
            given[own] = tensors
    dtype = f"dtype=torch.{identifier(wanted[0].dtype, name)}"
    for own, tensors in given.items():
        pairs = list(zip(tensors, wanted, strict=True))
        if all((t.shape, t.stride) == (w.shape, w.stride) for t, w in pairs):
            same = all(t.dtype == w.dtype for t, w in pairs)
            return f"torch.empty_like({own}{'' if same else f', {dtype}'})"
    sizes: list[str] = []
    for dim in range(len(wanted[0].shape)):
        extents = [w.shape[dim] for w in wanted]
        places = ((own, place, tensors) for own, tensors in given.items() for place in range(8))
        same_extent = (
            f"{own}.size({place})"
            for own, place, tensors in places
            if [t.shape[place] if place < len(t.shape) else None for t in tensors] == extents
        )
        fixed = str(extents[0]) if len(set(extents)) == 1 and isinstance(extents[0], int) else ""
        sizes.append(next(same_extent, fixed))
    if not all(sizes):
        raise OperatorFormError(f"a size that the operator {name} returns is none of its arguments' sizes")
    device = next(iter(given), "")
    shape = [dim for dim in wanted[0].shape if isinstance(dim, int)]
    if len(shape) < len(sizes) or wanted[0].stride == contiguous(shape):
        allocation = f"torch.empty(({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    else:
        allocation = f"torch.empty_strided({tuple(shape)}, {tuple(wanted[0].stride)}"
    return f"{allocation}, {dtype}{f', device={device}.device' if device else ''})"


def _tensor(arg: Arg, call: OpCall) -> TensorValue | None:
    tag, name = tag_of(arg)
    value = call.values.get(name) if tag == "node" else None
    return value if isinstance(value, TensorValue) else None


def results(value: Value | None, *, used: bool) -> tuple[list[Value | None], bool, bool]:
    """Describes a recorded result: (outputs, whether they are a list, whether there are none)."""
    if isinstance(value, SequenceValue) and used:
        return list(value.items), value.kind == "list", False
    if not used or value is None or isinstance(value, ConstValue):
        return [], False, True
    return [value], False, False
