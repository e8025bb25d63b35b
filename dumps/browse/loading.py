"""Reading one graph's table in slices, what rows show first: a screen can show 100,000 nodes before all of their table
is read.

Same checks and errors as `sidecar.read_table`. A graph without table.msgpack is small: its graph.json is read. Imports
neither torch nor textual.

>>> view = finish(loading(saved))
>>> len(view), view.whole
(15, True)
"""

from __future__ import annotations

from collections.abc import Generator

from ..reading import read_bytes
from ..sidecar import COLUMNS, TABLE, reading
from ..store import SavedGraph
from .table import GraphView

LATER = ("device", "seq_nr", "code", "inputs")
"""Columns that no row needs to be shown; the largest is the last."""

_FIRST = tuple(name for name in COLUMNS if name not in LATER)


def sidecar_bytes(saved: SavedGraph) -> bytes:
    """The bytes of table.msgpack. Reading them releases the interpreter lock, so a thread can do it."""
    return read_bytes(saved.path / TABLE)


def loading(saved: SavedGraph, data: bytes | None = None) -> Generator[GraphView | None, None, GraphView]:
    """Reads in slices: yields None, then once the view with what rows show, then None again; returns it when it is
    whole.

    `data`: the bytes of table.msgpack where somebody has read them. Raises UnreadableError as `SavedGraph.table` does.
    """
    if "table" in saved.__dict__ or not saved.has_table:
        view = GraphView(saved.table)
        yield view
        return view
    if data is None:
        data = sidecar_bytes(saved)
    view = None
    for table, name in reading(data, str(saved.path / TABLE), (*_FIRST, *LATER)):
        first = view is None and name == _FIRST[-1]
        view = GraphView(table, whole=False) if first else view
        yield view if first else None
    assert view is not None
    view.whole = True
    saved.__dict__["table"] = view.table
    return view
