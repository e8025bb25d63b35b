"""Inputs of a repro as source text, in three ways: seeded (shapes and ranges only), literal (small tensors written
out), stored.

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
from typing import Literal

import msgspec

from ..hints import Numbers, numbers_and_bounds, size
from ..schema import GraphBody, GraphRecord, InputRecord, InputsRecord, StoredTensor, SymValue, TensorValue, Value
from ..sidecar import ITEM_BYTES
from .case import REAL, Read, ReproFacts, placeholders
from .text import InputFormError, quoted

Way = Literal["seeded", "literal", "stored"]

SMALL_ELEMENTS = 64
"""A tensor of up to this many elements is written out in the program; a larger one goes to the file beside it."""

_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "bool": "?",
}
_LIMITS = {"uint8": 256, "int8": 128}
_WANTS = ", requires_grad=True)"


@dataclass(frozen=True)
class Slot:
    """One input or constant of the graph: what is known of it."""

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
    """The head of the function that returns them."""


def slots_of(
    record: GraphRecord, inputs: InputsRecord | None, constants: Mapping[str, str], *, grad: bool
) -> tuple[list[Slot], Numbers]:
    """The placeholders in order, then the constants (parameter -> name of its tensor), and a number for every symbol.

    `grad`: inputs keep requires_grad.
    """
    seen = {item.name: item for item in record.inputs} | {item.name: item for item in (inputs.inputs if inputs else [])}
    known, limits = numbers_and_bounds(record, inputs)
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
    plain: bool = False,
    views: bool = False,
    moved: bool = False,
) -> InputSource:
    """Renders the slots. `stored` and `literal` fall back to seeded for a slot whose bytes were not kept.

    `plain`: `requires_grad=True` stands among the arguments, where it can. `views`: what shares memory are views of the
    tensors that autograd knew them as views of. `moved`: the function that makes them has one that all floating memory
    goes through.
    """
    writer = _Writer(way, read, dict(hints or {}), plain, views, moved)
    groups: dict[int, list[Slot]] = {}
    for slot in slots:
        if isinstance(slot.value, TensorValue) and slot.value.storage is not None:
            groups.setdefault(slot.value.storage, []).append(slot)
    writer.shared = {group: members for group, members in groups.items() if len(members) > 1}
    writer.source.expressions += [writer.slot(slot) for slot in slots]
    return writer.source


def inputs_of(case: ReproFacts, constants: Mapping[str, str], way: Way) -> tuple[list[Slot], InputSource]:
    """The inputs of a case and the constants of its function, and how a program makes them."""
    slots, known = slots_of(case.record, case.inputs, constants, grad=case.facts.grad)
    views = {"views": case.facts.views, "moved": case.facts.moved}
    return slots, source_of(slots, way, case.read, known, **views)


class _Writer:
    """Renders slot after slot, sharing the storages of those that alias."""

    def __init__(
        self, way: Way, read: Read | None, hints: dict[str, float], plain: bool, views: bool, moved: bool
    ) -> None:
        self.way, self.read, self.hints, self.plain, self.views, self.moved = way, read, hints, plain, views, moved
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
            says_gradient = self.plain and text.endswith(_WANTS)
            return f"{text}.requires_grad_()" if slot.requires_grad and not says_gradient else text
        if slot.scalar is not None:
            return repr(slot.scalar)
        if isinstance(value, SymValue):
            known = value.hint if value.hint is not None else self.hints.get(value.expr)
            if known is not None:
                return repr(known)
        if value is None:
            raise InputFormError(f"nothing is known of the input {slot.name!r}", "", "record with --inputs first")
        raise InputFormError(f"the input {slot.name!r} is a {type(value).__name__}, which has no plain form")

    def _tensor(self, slot: Slot, value: TensorValue) -> str:
        if value.inner:
            raise InputFormError(f"the input {slot.name!r} is a {value.subclass}, which has no plain form yet")
        if value.layout != "strided":
            raise InputFormError(f"the input {slot.name!r} has the layout {value.layout}, which has no plain form yet")
        if value.dtype not in ITEM_BYTES:
            raise InputFormError(f"the input {slot.name!r} has the dtype {value.dtype}, which has no plain form yet")
        if value.quantizer:
            raise InputFormError(f"the input {slot.name!r} is quantised, which has no plain form yet")
        text = self._strided(slot, value)
        text = f"{text}.conj()" if value.conj else text
        return f"torch._neg_view({text})" if value.neg else text

    def _strided(self, slot: Slot, value: TensorValue) -> str:
        """The tensor without its lazy bits."""
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
        """A view of the tensor that it was a view of, or that tensor."""
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
        """A generator call whose result has the wanted strides; the plainest of the forms that do."""
        order = sorted(range(len(shape)), key=lambda d: (-stride[d], d))
        dense = [shape[d] for d in order]
        if offset == 0 and stride == contiguous(shape):
            wants = self.plain and slot.requires_grad and not value.conj and not value.neg
            return self._generate(slot, value, shape, wants=wants)
        if offset == 0 and [stride[d] for d in order] == contiguous(dense) and 0 not in stride:
            back = [order.index(d) for d in range(len(shape))]
            return f"{self._generate(slot, value, dense)}.permute({', '.join(map(str, back))})"
        small = [1 if s == 0 else n for n, s in zip(shape, stride, strict=True)]
        if offset == 0 and all(s == 0 or s == c for s, c in zip(stride, contiguous(small), strict=True)):
            return f"{self._generate(slot, value, small)}.expand({', '.join(map(str, shape))})"
        return self._view(self._generate(slot, value, [extent(shape, stride, offset)]), shape, stride, offset)

    def _base(self, slot: Slot, value: TensorValue) -> str:
        """The name of the storage that several inputs view, as a flat tensor of the dtype of the first."""
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

    def _generate(self, slot: Slot, value: TensorValue, shape: list[int], *, wants: bool = False) -> str:
        """A call that makes a contiguous tensor of that shape, in the value range that was seen. `wants`: a
        gradient."""
        dtype, seen = value.dtype, slot.statistics or {}
        low, high = seen.get("min"), seen.get("max")
        sizes = ", ".join(map(str, shape)) if shape else "()"
        kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        device = "" if value.device == "cpu" else f", device={quoted(value.device)}"
        size = tuple(shape)
        if low is not None and low == high:
            if low in (0, 1):
                return f"torch.{'ones' if low else 'zeros'}({sizes}{kind}{device}{_WANTS if wants else ')'}"
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
        return f"torch.{maker}({sizes}{kind}{device}{_WANTS if wants else ')'}"

    def _kept(self, stored: StoredTensor, value: TensorValue, *, alone: bool) -> str:
        """The recorded bytes: written out when they are few, else read from the file beside the program."""
        data, device = self._bytes(stored), "" if value.device == "cpu" else f".to({quoted(value.device)})"
        shape, stride, offset = self._form(stored.value)
        count = prod(shape)
        if self.way == "literal" and alone and value.dtype in _FORMATS:
            if count <= SMALL_ELEMENTS and offset == 0 and stride == contiguous(shape):
                return _literal(data, shape, value.dtype) + device
            held = len(data) // ITEM_BYTES[value.dtype]
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
        """All of the recorded bytes, as one row."""
        data, device = self._bytes(stored), "" if value.device == "cpu" else f".to({quoted(value.device)})"
        count = len(data) // ITEM_BYTES[value.dtype]
        written = self.way == "literal" and value.dtype in _FORMATS and count <= SMALL_ELEMENTS
        return (_literal(data, [count], value.dtype) if written else self._from_file(stored, value, data)) + device

    def _view(self, base: str, shape: list[int], stride: list[int], offset: int) -> str:
        return f"{base}.as_strided({tuple(shape)}, {tuple(stride)}{f', {offset}' if offset else ''})"


def _held(body: GraphBody, path: str) -> StoredTensor:
    """The tensor of a constant: its name, after the names of the subgraphs that it lies in."""
    if path in body.attrs:
        return body.attrs[path]
    for name, inner in body.subgraphs.items():
        if path.startswith(f"{name}."):
            return _held(inner, path.removeprefix(f"{name}."))
    raise InputFormError(f"the attribute {path!r} is not stored")


def contiguous(shape: Sequence[int]) -> list[int]:
    """Row-major strides, in elements, counting an empty dimension as one (as torch does)."""
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * max(shape[index + 1], 1)
    return strides


def extent(shape: Sequence[int], stride: Sequence[int], offset: int) -> int:
    """How many elements a storage needs for the view."""
    if 0 in shape:
        return offset
    return offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1


def sidecar_bytes(tensors: Mapping[str, bytes]) -> bytes:
    """A safetensors file of uint8 tensors; the same tensors give the same bytes."""
    header: dict[str, object] = {}
    position = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [position, position + len(data)]}
        position += len(data)
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensors.values())


def _literal(data: bytes, shape: Sequence[int], dtype: str) -> str:
    letter = _FORMATS[dtype]
    count = prod(shape)
    numbers = struct.unpack(f"<{count}{letter}", data[: count * ITEM_BYTES[dtype]])
    texts = [_number(number, letter) for number in numbers]
    kind = "" if count and dtype in ("bool", "int64", "float32") else f", dtype=torch.{dtype}"
    return f"torch.tensor({_nest(texts, list(shape))}{kind})"


def _number(number: float | bool, letter: str) -> str:
    """The shortest text that gives the same bits back."""
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
