"""Reading one graph's table in slices, what rows show first: a screen can show 100,000 nodes before all of their table is read.

Same checks and errors as `sidecar.read_table`, column by column. A graph without table.msgpack is small: its graph.json is read.
Must not import torch or textual.

>>> view = finish(loading(saved))
>>> len(view), view.whole
(100018, True)
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NoReturn, get_type_hints

import msgspec

from ..compressed import stored
from ..errors import UnreadableError
from ..reading import read_bytes, refuse_format
from ..sidecar import TABLE, Table
from ..store import SavedGraph
from .table import GraphView

LATER = ("device", "seq_nr", "code", "inputs")
"""Columns that no row needs to be shown; the largest is the last."""
INPUTS_AT_ONCE = 20_000

_COLUMNS = tuple(name for name in Table.__struct_fields__ if name not in ("format", "strings"))
_TYPES: dict[str, Any] = get_type_hints(Table)
_TEXTS = ("op", "target", "dtype", "shape", "stride", "device", "module", "where", "code")


class _Raw(msgspec.Struct):
    format: int
    strings: list[str]
    columns: dict[str, msgspec.Raw]


def has_sidecar(saved: SavedGraph) -> bool:
    """Whether there is a table.msgpack; otherwise the whole graph.json is read, which takes a while and does not pause."""
    return stored(saved.path / TABLE) is not None


def sidecar_bytes(saved: SavedGraph) -> bytes:
    """The bytes of table.msgpack; reading them needs no lock of the interpreter, so a thread is the place for it."""
    return read_bytes(saved.path / TABLE)


def loading(saved: SavedGraph, data: bytes | None = None) -> Generator[GraphView | None, None, GraphView]:
    """Reads in slices: yields None, then once the view with what rows show, then None again; returns it when it is whole.

    `data`: the bytes of table.msgpack where somebody has read them. Raises UnreadableError as `SavedGraph.table` does.
    """
    if "table" in saved.__dict__ or not has_sidecar(saved):
        view = GraphView(saved.table)
        yield view
        return view
    where = str(saved.path / TABLE)
    raw = _raw(data if data is not None else sidecar_bytes(saved), where)
    yield None
    table = Table(raw.format, raw.strings)
    count = -1
    for name in (*(name for name in _COLUMNS if name not in LATER), *LATER):
        if name == LATER[0]:
            view = GraphView(table, whole=False)
            yield view
        column = _decoded(raw.columns.get(name), _TYPES[name], where)
        count = len(column) if count < 0 else count
        if len(column) != count or (name in _TEXTS and count and not 0 <= min(column) <= max(column) < len(table.strings)):
            _damaged(where, "its columns do not fit together")
        setattr(table, name, column)
        yield None
    for start in range(0, count, INPUTS_AT_ONCE):
        part = table.inputs[start : start + INPUTS_AT_ONCE]
        if any(used and not 0 <= min(used) <= max(used) < index for index, used in enumerate(part, start)):
            _damaged(where, "a node uses a later node")
        yield None
    view = view if count >= 0 else GraphView(table)  # pyright: ignore[reportPossiblyUnboundVariable]
    view.whole = True
    saved.__dict__["table"] = table
    return view


def _raw(data: bytes, where: str) -> _Raw:
    try:
        fields = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw])
        version = msgspec.msgpack.decode(fields["format"], type=int)
        strings = msgspec.msgpack.decode(fields["strings"], type=list[str])
    except KeyError as error:
        _damaged(where, f"it has no {error}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _damaged(where, str(error))
    refuse_format(version, where)
    return _Raw(version, strings, fields)


def _decoded(raw: msgspec.Raw | None, kind: Any, where: str) -> list[Any]:
    try:
        return [] if raw is None else msgspec.msgpack.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        _damaged(where, str(error))


def _damaged(where: str, why: str) -> NoReturn:
    raise UnreadableError(f"cannot read {where}", f"it is damaged ({why})", "delete it: graphdbg then reads graph.json instead")
