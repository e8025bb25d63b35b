"""The data of a graph's tables, as columns beside graph.json, so that `ls`, `show` and the TUI never parse a whole
graph.json.

`table.msgpack` holds the columns with interned strings. It is derived and can be rebuilt from the record at any time;
nothing may take it for the truth. (`ls` does not need it either: the journal has the number of nodes of a graph.)

>>> table = build(record)
>>> table.row(0).name
'primals_1'
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from .errors import DamagedError, UnreadableError
from .hints import size as number_of_dim
from .reading import read_bytes, refuse_format
from .schema import FORMAT, Dim, GraphRecord, SequenceValue, SymValue, TensorValue, Value
from .walk import given, references, string, user_frame

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip
"""Bytes per element; 1 for a dtype that is not listed."""


_CALL = re.compile(r"^\s*def call\b|^def call\b")
_MADE = re.compile(r"^\s*(\w+) = empty_strided\w*\(\(([^()]*)\), \(([^()]*)\),.*?torch\.(\w+)")
_TAKEN = re.compile(r"^\s*(\w+) = (?:reinterpret_tensor\()?(\w+)\b.*; del \2\b")
_WRITER = re.compile(r"^\s*(?:\w+ = )?([\w.]+)\(")
_NAMES = re.compile(r"\b\w+\b")


class Buffer(msgspec.Struct, frozen=True):
    """A buffer, its size, and the first kernel or operator that writes to it."""

    name: str
    bytes: int
    by: str = ""


class Peak(msgspec.Struct, frozen=True):
    """The most bytes that were held at once, and the buffers at that time, the largest first."""

    bytes: int
    live: list[Buffer]

    @property
    def largest(self) -> Buffer | None:
        """The buffer with the most bytes at the peak."""
        return self.live[0] if self.live else None


def peak(source: str) -> Peak:
    """Returns the peak of an Inductor wrapper, from its text: allocations and `del` lines of `call`. 0 bytes where the
    wrapper allocates nothing, or the text is no wrapper."""
    held: dict[str, tuple[str, int]] = {}
    writers: dict[str, str] = {}
    most, at = 0, dict(held)
    for line in _body(source):
        if allocation := _MADE.match(line):
            held[allocation[1]] = allocation[1], _bytes(allocation[2], allocation[3], allocation[4])
            total = sum(size for _, size in held.values())
            if total > most:
                most, at = total, dict(held)
        elif taken := _TAKEN.match(line):
            if taken[2] in held:
                held[taken[1]] = held.pop(taken[2])
        elif line.lstrip().startswith("del "):
            for name in _NAMES.findall(line)[1:]:
                held.pop(name, None)
        elif writer := _WRITER.match(line):
            for name in _NAMES.findall(line):
                if name in held and not writer[1].startswith("assert_"):
                    writers.setdefault(held[name][0], writer[1])
    at_peak = [Buffer(name, size, writers.get(first, "")) for name, (first, size) in at.items()]
    return Peak(most, sorted(at_peak, key=lambda buffer: -buffer.bytes))


def _body(source: str) -> Iterable[str]:
    inside = False
    for line in source.splitlines():
        if _CALL.match(line):
            inside = True
        elif inside:
            yield line
            if line.lstrip().startswith("return"):
                return


def _bytes(shape: str, stride: str, dtype: str) -> int:
    sizes, steps = ([extent.strip() for extent in text.split(",") if extent.strip()] for text in (shape, stride))
    if not all(extent.isdecimal() for extent in [*sizes, *steps]):
        return 0
    if any(extent == "0" for extent in sizes):
        return 0
    elements = 1 + sum((int(size) - 1) * int(step) for size, step in zip(sizes, steps, strict=False))
    return math.ceil(elements * ITEM_BYTES.get(dtype, 1))


TABLE = "table.msgpack"

T = TypeVar("T")

MANY_NODES = 4000
"""In a run, graphs of fewer nodes have no such file: their graph.json is read as fast."""


class NodeRow(msgspec.Struct):
    """One node as a table shows it. `inputs` are positions of the nodes it uses; `size_bytes` is as recorded.

    `shape` and `stride` are JSON text: [2, "s0"] for a tensor, a list of those for a multi-output node, "s0" for a
    symbol.
    """

    index: int
    name: str
    op: str
    target: str
    dtype: str
    shape: str
    stride: str
    device: str
    size_bytes: int | None
    users: int
    inputs: list[int]
    module: str
    where: str
    code: str
    seq_nr: int


class Table(msgspec.Struct):
    """table.msgpack: columns of equal length; text columns hold positions in `strings`."""

    format: int
    strings: list[str]
    name: list[str] = []
    op: list[int] = []
    target: list[int] = []
    dtype: list[int] = []
    shape: list[int] = []
    stride: list[int] = []
    device: list[int] = []
    size_bytes: list[int | None] = []
    users: list[int] = []
    inputs: list[list[int]] = []
    module: list[int] = []
    where: list[int] = []
    code: list[int] = []
    seq_nr: list[int] = []

    def __len__(self) -> int:
        return len(self.name)

    def row(self, index: int) -> NodeRow:
        """The node at position `index`."""
        entries: dict[str, Any] = {name: getattr(self, name)[index] for name in COLUMNS}
        for name in _TEXTS:
            entries[name] = self.strings[entries[name]]
        return NodeRow(index, **entries)

    def rows(self) -> Iterator[NodeRow]:
        """All nodes in order."""
        return (self.row(index) for index in range(len(self.name)))


COLUMNS = tuple(name for name in Table.__struct_fields__ if name not in ("format", "strings"))
_TYPES: dict[str, Any] = get_type_hints(Table)
_TEXTS = ("op", "target", "dtype", "shape", "stride", "device", "module", "where", "code")


class _Head(msgspec.Struct):
    format: int
    strings: list[str]


class Intern(dict[T, int]):
    """Gives each new thing the next number; returns the known number of others."""

    def __call__(self, thing: T) -> int:
        return self.setdefault(thing, len(self))


def dims_text(column: str) -> str:
    """A shape or stride column in readable form: [2, s0]."""
    return column.replace('"', "")


def dims_value(column: str) -> Any:
    """A shape or stride column as a value: [2, "s0"]; None when there is none."""
    return json.loads(column) if column else None


def value_columns(value: Value | None, hint: Callable[[Dim], int | None]) -> tuple[str, str, str, str, int | None]:
    """Returns the columns of a value: dtype, shape, stride, device and bytes (None: unknown). `hint` returns the number
    of a dim."""
    if isinstance(value, TensorValue):
        size: int | None = ITEM_BYTES.get(value.dtype, 1)
        for dim in map(hint, value.shape):
            size = None if size is None or dim is None else size * dim
        size = size if size is not None and 0 <= size < 2**63 else None
        return value.dtype, json.dumps(value.shape), json.dumps(value.stride), value.device, size
    if isinstance(value, SymValue):
        return f"Sym{value.kind.capitalize()}", json.dumps(value.expr), "", "", 0
    if isinstance(value, SequenceValue):
        parts = [value_columns(item, hint) for item in value.items]
        known = [part[4] for part in parts if part[4] is not None]
        return (
            "; ".join(part[0] or "-" for part in parts),
            f"[{', '.join(part[1] or 'null' for part in parts)}]",
            f"[{', '.join(part[2] or 'null' for part in parts)}]",
            ", ".join(sorted({part[3] for part in parts if part[3]})),
            sum(known) if len(known) == len(parts) else None,
        )
    return "", "", "", "", None if value is None else 0


def build(record: GraphRecord) -> Table:
    """The table of a record's top-level nodes."""
    intern = Intern({"": 0})
    known = {symbol.name: symbol.hint for symbol in record.symbols if symbol.hint is not None}
    hint = cache(partial(number_of_dim, known=known))  # None where a symbol has no hint (unbacked): the size is unknown
    position: dict[str, int] = {}
    lines: dict[int, tuple[int, int]] = {}
    users = [0] * len(record.graph.nodes)
    rows: list[tuple[Any, ...]] = []

    for index, node in enumerate(record.graph.nodes):
        position[node.name] = index
        used = list(dict.fromkeys(position[name] for name in references(given(node)) if name in position))
        for producer in used:
            users[producer] += 1
        *value, size_bytes = value_columns(node.value, hint)
        if node.stack not in lines:
            where, code = user_frame(string(record.strings, node.stack))
            lines[node.stack] = intern(where), intern(code)
        texts = (intern(text) for text in (node.op, node.target, *value))
        module = intern(string(record.strings, node.module))
        rows.append((node.name, *texts, size_bytes, used, module, *lines[node.stack], node.seq_nr))
    columns: list[list[Any]] = [list(column) for column in zip(*rows, strict=True)]
    names = (name for name in COLUMNS if name != "users")
    return Table(FORMAT, list(intern), users=users, **dict(zip(names, columns, strict=False)))


def encode(record: GraphRecord) -> bytes:
    """The bytes of table.msgpack."""
    return msgspec.msgpack.encode(build(record))


def read_table(path: Path) -> Table:
    """Reads table.msgpack; raises UnreadableError for a file that is damaged or newer."""
    data, where = read_bytes(path), str(path)
    try:
        head = msgspec.msgpack.decode(data, type=_Head)
        raw = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(where, str(error)) from error
    refuse_format(head.format, where)
    table = Table(head.format, head.strings)
    for name in COLUMNS:
        try:
            column: list[Any] = msgspec.msgpack.decode(raw.get(name, b"\x90"), type=_TYPES[name])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _damaged(where, str(error).replace("`$", f"`$.{name}")) from error
        setattr(table, name, column)
        texts = column if name in _TEXTS else []
        if len(column) != len(table.name) or (texts and not 0 <= min(texts) <= max(texts) < len(table.strings)):
            raise _damaged(where, "its columns do not fit together")
        if name in ("shape", "stride"):
            _check_dims(where, name, table.strings, set(column))
    if any(used and not 0 <= min(used) <= max(used) < index for index, used in enumerate(table.inputs)):
        raise _damaged(where, "a node uses a later node")
    return table


def _check_dims(where: str, name: str, strings: list[str], used: set[int]) -> None:
    try:
        if not all(isinstance(json.loads(strings[at]), str | list) for at in used if strings[at]):
            raise ValueError(f"$.{name} is neither a list nor an expression")
    except (ValueError, RecursionError) as error:
        raise _damaged(where, str(error)) from error


def _damaged(where: str, why: str) -> UnreadableError:
    return DamagedError(
        f"cannot read {where}", f"it is damaged ({why})", "delete it: graphdbg then reads graph.json instead"
    )
