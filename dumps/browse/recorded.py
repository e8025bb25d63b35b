"""Reads one node of a large graph.json without decoding the whole: its text is cut out between two node names, and
decoded alone.

A graph of 100,000 nodes takes a second to decode and a tenth of that to unpack, and finding a node in its text takes a
few milliseconds. For display only: a replay reads and checks the whole record (`SavedGraph.record`).

>>> Recorded(saved).node("mul").args
[{'node': 'addmm'}, 0.5]
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from ..errors import TooLargeError
from ..graph_folder import GRAPH_FILE
from ..opening import opened
from ..reading import read_bytes, stored
from ..schema import InputRecord, NodeRecord, SymbolRecord
from ..store import SavedGraph
from ..walk import string
from ..wording import size_text

MOST_BYTES = 1 << 29
"""A graph.json that unpacks to more is not read: its text would not fit into memory beside the workbench."""

_LONGEST_NODE = 1 << 22
_LONGEST_TAIL = 1 << 26

T = TypeVar("T")


class Recorded:
    """The nodes of one saved graph, read on first use. Safe in any thread, but only in one at a time."""

    def __init__(self, saved: SavedGraph) -> None:
        self.saved = saved
        self.large = saved.has_table and "record" not in saved.__dict__

    @property
    def too_large(self) -> str:
        """Why only the table can be shown; empty where the record can be read."""
        size = _unpacked_bytes(self.saved) if self.large else 0
        return f"graph.json has {size_text(size)}: arguments and stacks are not looked up" if size > MOST_BYTES else ""

    def node(self, name: str, after: str = "") -> NodeRecord | None:
        """The top-level node of that name; None where there is none. `after` is the name of the next node."""
        if not self.large:
            return self._by_name.get(name)
        data = self._data
        start = data.find(_mark(name))
        if start < 0:
            return self._whole().get(name)
        end = data.find(b"," + _mark(after), start) if after else -1
        end = end if start < end < start + _LONGEST_NODE else min(len(data), start + _LONGEST_NODE)
        return _converted(_beginning(data[start:end]), NodeRecord) or self._whole().get(name)

    @cached_property
    def strings(self) -> list[str]:
        """The texts that nodes refer to by position."""
        return self._tail("strings", list[str]) if self.large else self.saved.record.strings

    @cached_property
    def symbols(self) -> list[SymbolRecord]:
        """The records of the graph's symbols."""
        return self._tail("symbols", list[SymbolRecord]) if self.large else self.saved.record.symbols

    @cached_property
    def inputs(self) -> dict[str, InputRecord]:
        """The records of the inputs: from the observed execution, else from the capture."""
        seen_inputs = self._tail("inputs", list[InputRecord]) if self.large else self.saved.record.inputs
        by_name = {item.name: item for item in seen_inputs}
        seen = self.saved.inputs_record
        for item in seen.inputs if seen is not None else ():
            role = by_name.get(item.name)
            if role is not None and item.role == "unknown":
                item = msgspec.structs.replace(item, role=role.role, source=item.source or role.source)
            by_name[item.name] = item
        return by_name

    def string(self, place: int) -> str:
        """The text at that index; empty where there is none."""
        return string(self.strings, place)

    @cached_property
    def _by_name(self) -> dict[str, NodeRecord]:
        return {node.name: node for node in self.saved.record.graph.nodes}

    def _whole(self) -> dict[str, NodeRecord]:
        """The nodes of the whole file, for a file that another program wrote in another layout."""
        self.large = False
        return self._by_name

    @cached_property
    def _data(self) -> bytes:
        if self.too_large:
            raise TooLargeError(f"cannot look into {self.saved.path / GRAPH_FILE}", self.too_large)
        return read_bytes(self.saved.path / GRAPH_FILE)

    def _tail(self, key: str, kind: type[list[T]]) -> list[T]:
        """Reads a list that is written after the nodes; empty where the field is missing."""
        data = self._data
        mark = f',"{key}":['.encode()
        place = data.rfind(mark)
        tail = None if place < 0 else _converted(_beginning(data[place + len(mark) - 1 : place + _LONGEST_TAIL]), kind)
        return tail or []


def _mark(name: str) -> bytes:
    return b'{"name":' + msgspec.json.encode(name) + b',"op":"'


def _beginning(data: bytes) -> Any:
    """The JSON value at the beginning of a text; None where there is none."""
    try:
        return json.JSONDecoder().raw_decode(data.decode("utf-8", "ignore"))[0]
    except (ValueError, RecursionError):
        return None


def _converted(value: Any, kind: type[T]) -> T | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError):
        return None


def _unpacked_bytes(saved: SavedGraph) -> int:
    """The size of graph.json unpacked, modulo 4 GiB, from the end of its gzip form."""
    path = stored(saved.path / GRAPH_FILE)
    if path is None:
        return 0
    if path.suffix != ".gz":
        return path.stat().st_size
    with opened(path) as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(4), "little")
