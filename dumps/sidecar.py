"""What tables show of a graph, as columns beside graph.json, so that `ls`, `show` and the TUI never parse a whole graph.json.

`table.msgpack` holds the columns with interned strings. It is derived and can be rebuilt from the record at any time; nothing may
read it as the truth. (`ls` does not need it either: the journal says how many nodes a graph has.)

>>> table = build(record)
>>> table.row(0).name
'primals_1'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from .dtypes import ITEM_BYTES
from .errors import GraphdbgError, UnreadableError
from .expr_values import evaluate
from .reading import read_bytes, refuse_format
from .schema import FORMAT, Dim, GraphRecord, SequenceValue, SymValue, TensorValue, Value
from .walk import given, references

TABLE = "table.msgpack"

MANY_NODES = 4000
"""In a run, graphs of fewer nodes have no such file: their graph.json is read as fast."""

_TORCH_FILE = re.compile(r"(?:site|dist)-packages[/\\]torch[/\\]|[/\\]torch[/\\]nn[/\\]modules[/\\]")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$', re.MULTILINE)


class Row(msgspec.Struct):
    """One node as a table shows it. `inputs` are positions of the nodes it uses; `size_bytes` is as recorded.

    `shape` and `stride` are JSON text: [2, "s0"] for a tensor, a list of those for a multi-output node, "s0" for a symbol.
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
    """table.msgpack: columns of equal length; those of texts hold positions in `strings`."""

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

    def row(self, index: int) -> Row:
        """The node at that position."""
        text = self.strings
        return Row(
            index, self.name[index], text[self.op[index]], text[self.target[index]], text[self.dtype[index]],
            text[self.shape[index]], text[self.stride[index]], text[self.device[index]], self.size_bytes[index],
            self.users[index], self.inputs[index], text[self.module[index]], text[self.where[index]],
            text[self.code[index]], self.seq_nr[index],
        )  # fmt: skip

    def rows(self) -> Iterator[Row]:
        """All nodes in order."""
        return (self.row(index) for index in range(len(self.name)))


class _Interner:
    def __init__(self) -> None:
        self.strings: list[str] = []
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self.strings)
            self.strings.append(text)
        return index


def user_frame(stack: str) -> tuple[str, str]:
    """The innermost frame outside torch, as ("model.py:12", "y = self.fc(x)"); empty strings when there is no frame."""
    frames = list(_FRAME.finditer(stack))
    if not frames:
        return "", ""
    chosen = next((frame for frame in reversed(frames) if not _TORCH_FILE.search(frame["file"])), frames[-1])
    code = stack[chosen.end() :].strip("\n").partition("\n")[0].strip()
    return f"{Path(chosen['file']).name}:{chosen['line']}", "" if code.startswith('File "') else code


def dims_text(column: str) -> str:
    """A shape or stride column as people read it: [2, s0]."""
    return column.replace('"', "")


def dims_value(column: str) -> Any:
    """A shape or stride column as a value: [2, "s0"]; None when there is none."""
    return json.loads(column) if column else None


class _Hints:
    """The number that a dim had when it was recorded."""

    def __init__(self, record: GraphRecord) -> None:
        self._values = {symbol.name: symbol.hint for symbol in record.symbols if symbol.hint is not None}
        self._known: dict[str, int | None] = {}

    def __call__(self, dim: Dim) -> int | None:
        if isinstance(dim, int):
            return dim
        if dim not in self._known:
            try:
                self._known[dim] = int(evaluate(dim, self._values))
            except (GraphdbgError, ValueError, OverflowError):  # no hint for a symbol (unbacked): the size is unknown
                self._known[dim] = None
        return self._known[dim]


def value_columns(value: Value | None, hint: Callable[[Dim], int | None]) -> tuple[str, str, str, str, int | None]:
    """A value as its columns dtype, shape, stride, device and bytes (None: unknown); `hint` gives a dim its number."""
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
    intern = _Interner()
    intern("")
    frames: dict[int, tuple[int, int]] = {}
    position: dict[str, int] = {}
    hint = _Hints(record)
    table = Table(FORMAT, intern.strings)
    values: dict[tuple[str, ...], tuple[int, int, int, int]] = {}
    for index, node in enumerate(record.graph.nodes):
        position[node.name] = index
        used = list(dict.fromkeys(
            position[name] for name in references(given(node)) if name in position
        ))  # fmt: skip
        for producer in used:
            table.users[producer] += 1
        dtype, shape, stride, device, size = value_columns(node.value, hint)
        key = (dtype, shape, stride, device)
        if key not in values:
            values[key] = (intern(dtype), intern(shape), intern(stride), intern(device))
        if node.stack not in frames:
            stack = record.strings[node.stack] if 0 <= node.stack < len(record.strings) else ""
            where, code = user_frame(stack)
            frames[node.stack] = intern(where), intern(code)
        columns = values[key]
        table.name.append(node.name)
        table.op.append(intern(node.op))
        table.target.append(intern(node.target))
        table.dtype.append(columns[0])
        table.shape.append(columns[1])
        table.stride.append(columns[2])
        table.device.append(columns[3])
        table.size_bytes.append(size)
        table.users.append(0)
        table.inputs.append(used)
        table.module.append(intern(record.strings[node.module] if 0 <= node.module < len(record.strings) else ""))
        table.where.append(frames[node.stack][0])
        table.code.append(frames[node.stack][1])
        table.seq_nr.append(node.seq_nr)
    return table


def encode(record: GraphRecord) -> bytes:
    """The bytes of table.msgpack."""
    return msgspec.msgpack.encode(build(record))


def read_table(path: Path) -> Table:
    """Reads table.msgpack; raises UnreadableError for a file that is damaged or newer."""
    data = read_bytes(path)
    why = ""
    try:
        table = msgspec.msgpack.decode(data, type=Table)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = str(error)
    else:
        refuse_format(table.format, str(path))
        why = _inconsistency(table)
        if not why:
            return table
    raise UnreadableError(
        f"cannot read {path}", f"it is damaged ({why})", "delete it: graphdbg then reads graph.json instead"
    )


def _inconsistency(table: Table) -> str:
    count = len(table.name)
    texts = (
        table.op,
        table.target,
        table.dtype,
        table.shape,
        table.stride,
        table.device,
        table.module,
        table.where,
        table.code,
    )
    for column in texts:
        if len(column) != count or (count and not 0 <= min(column) <= max(column) < len(table.strings)):
            return "its columns do not fit together"
    if any(len(column) != count for column in (table.size_bytes, table.users, table.inputs, table.seq_nr)):
        return "its columns do not fit together"
    if any(used and not 0 <= min(used) <= max(used) < index for index, used in enumerate(table.inputs)):
        return "a node uses a later node"
    return ""
