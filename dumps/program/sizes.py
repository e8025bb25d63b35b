"""Which dimensions of the inputs a repro makes dynamic: all of them as recorded, some marked with `mark_dynamic`, or
none.

A graph with symbolic sizes is first tried with `dynamic=True`. Once that fails it is tried with fixed sizes, then as
`narrower` says: with the dimensions of one symbol, then with all that were symbols. What fails first shows which
dimension the bug needs. Imports no torch, and claims nothing that no run has shown.

For example:

    replace(narrower(record, hints)[0], needed=True).sentence()
    # 'x, dimension 0, must be dynamic (mark_dynamic): with fixed sizes the failure is not there.'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..hints import size
from ..schema import GraphRecord, NodeRecord, SymValue, TensorValue
from .case import symbol_homes

MOST_SYMBOLS = 4
"""The most symbols that are tried alone; a graph of more is tried with all of them marked."""


@dataclass(frozen=True)
class Mark:
    """One dimension of an input; `symbol` is what its size was recorded as."""

    name: str
    dim: int
    symbol: str


@dataclass(frozen=True)
class Sizing:
    """Sizes of a repro: fixed where `marks` is empty, else these dimensions dynamic. `needed`: fixed sizes were seen to
    pass."""

    marks: tuple[Mark, ...] = ()
    needed: bool = False

    def sentence(self) -> str:
        """The sentence for the head of the repro."""
        if not self.marks:
            return "Recorded with symbolic sizes, which it does not need."
        listed = listing(self.marks)
        if self.needed:
            return f"{listed} must be dynamic (mark_dynamic): with fixed sizes the failure is not there."
        return f"{listed} dynamic (mark_dynamic), as recorded."

    def dims(self) -> dict[str, str]:
        """Input -> its dynamic dimensions, as `mark_dynamic` takes them."""
        dims: dict[str, list[int]] = {}
        for mark in self.marks:
            dims.setdefault(mark.name, []).append(mark.dim)
        return {
            name: str(dims_of_input[0] if len(dims_of_input) == 1 else tuple(dims_of_input))
            for name, dims_of_input in dims.items()
        }


def listing(marks: tuple[Mark, ...]) -> str:
    """ "x, dimension 0, and w, dimension 1," of several; "x, dimension 0," of one."""
    return " and ".join(f"{mark.name}, dimension {mark.dim}," for mark in marks)


def symbolic_dims(record: GraphRecord, hints: Mapping[str, Any]) -> list[Mark]:
    """The dimensions of inputs whose sizes are symbols and that can be marked: a size of 0 or 1 never is dynamic."""
    return [
        Mark(node.name, dim, str(extent))
        for node in record.graph.nodes
        if node.op == "placeholder" and isinstance(node.value, TensorValue)
        for dim, extent in enumerate(node.value.shape)
        if not isinstance(extent, int) and (size(extent, hints) or 0) > 1
    ]


def recorded(record: GraphRecord, hints: Mapping[str, Any]) -> Sizing | None:
    """The sizing with all symbolic dimensions marked; None for a graph without."""
    marks = tuple(symbolic_dims(record, hints))
    return Sizing(marks) if marks else None


def narrower(record: GraphRecord, hints: Mapping[str, Any]) -> list[Sizing]:
    """The sizings to try for a repro that fails with dynamic sizes: the fewest dynamic dimensions first. Empty without
    symbols."""
    marks = symbolic_dims(record, hints)
    if not marks:
        return []
    symbols = list(dict.fromkeys(mark.symbol for mark in marks))
    alone = [tuple(mark for mark in marks if mark.symbol == symbol) for symbol in symbols] if len(symbols) > 1 else []
    chosen = [*(alone if len(symbols) <= MOST_SYMBOLS else []), tuple(marks)]
    return [Sizing(dims) for dims in chosen]


def sizes_inside(record: GraphRecord) -> GraphRecord:
    """The record with inputs that are a size of another input computed from it: as arguments they would be
    constants."""
    nodes = record.graph.nodes
    tensors = msgspec.structs.replace(
        record.graph, nodes=[node for node in nodes if not isinstance(node.value, SymValue)]
    )
    homes = symbol_homes(tensors)
    inside: list[NodeRecord] = []
    kept: list[NodeRecord] = []
    for node in nodes:
        home = homes.get(node.value.expr) if node.op == "placeholder" and isinstance(node.value, SymValue) else None
        if home is None or home[1] is None:
            kept.append(node)
            continue
        call = {"op": "call_function", "target": "aten.sym_size.int", "args": [{"node": home[0]}, home[1]]}
        inside.append(msgspec.structs.replace(node, **call))
    if not inside:
        return record
    inputs = [node for node in kept if node.op == "placeholder"]
    rest = [node for node in kept if node.op != "placeholder"]
    return msgspec.structs.replace(record, graph=msgspec.structs.replace(record.graph, nodes=[*inputs, *inside, *rest]))
