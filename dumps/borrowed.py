"""Inputs of a graph that never runs by itself: those of the graphs of its compile that do, by the names of their
placeholders.

A post-grad graph runs as the forward, backward or inference graph it was made of, a pre-grad graph as Dynamo's, a joint
graph as its forward and its backward. Only the names of placeholders are compared.

>>> borrowed(run.graph("0_0/joint")).inputs[0].stored is not None      # recorded with --inputs first
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from .schema import InputRecord, InputsRecord, StoredTensor, TensorValue

if TYPE_CHECKING:
    from .store import SavedGraph


def borrowed(saved: SavedGraph) -> InputsRecord | None:
    """What was observed of this graph's inputs when graphs of its compile ran; None when none of them did."""
    if saved.run is None:
        return None
    compile_name = saved.local_id.partition("/")[0]
    mine = [
        graph
        for graph in saved.run.graphs()
        if graph.process == saved.process and graph.local_id.partition("/")[0] == compile_name
    ]
    by_name: dict[str, InputRecord] = {}
    first: InputsRecord | None = None
    groups = 0
    wanted = _placeholders(saved)
    for lender in _lenders(saved, mine):
        seen = lender.own_inputs_record
        if seen is None:
            continue
        first = first or seen
        for item in seen.inputs:
            if item.name in wanted:
                by_name.setdefault(item.name, _regrouped(item, groups))
        groups += 1 + max((group for item in seen.inputs for group in _groups(item)), default=0)
    if first is None or not by_name:
        return None
    inputs = [by_name[name] for name in wanted if name in by_name]
    return msgspec.structs.replace(first, inputs=inputs)


def _placeholders(saved: SavedGraph) -> list[str]:
    table = saved.table
    return [name for name, op in zip(table.name, table.op, strict=True) if table.strings[op] == "placeholder"]


def _lenders(saved: SavedGraph, mine: Sequence[SavedGraph]) -> Iterator[SavedGraph]:
    """The graphs that ran in place of this one; numbers (".N") count per stage, so some are matched by the order of
    capture."""
    places = [graph.local_id for graph in mine]
    if saved.local_id not in places:
        return
    at = places.index(saved.local_id)
    by_id = dict(zip(places, mine, strict=True))
    compile_name, _, rest = saved.local_id.partition("/")
    number = "".join(rest.partition(".")[1:])
    if saved.stage.startswith("post_grad_"):
        kind = saved.stage.removeprefix("post_grad_")
        near = (graph for graph in reversed(mine[:at]) if graph.stage == "joint_passed")
        lender = by_id.get(f"{compile_name}/{kind}{number}")
        if kind == "inference" and (lender is None or lender.own_inputs_record is None):
            lender = next(near, None)  # freezing: the inner compiler sees another graph than the one before the passes
        yield from [lender] if lender is not None else []
    elif saved.stage == "pre_grad":
        yield from [graph for graph in reversed(mine[:at]) if graph.stage == "dynamo"][:1]
    elif saved.stage in ("joint", "joint_passed"):
        forward = next((graph for graph in mine[at + 1 :] if graph.stage in ("forward", "inference")), None)
        if forward is not None and forward.stage == "forward":
            yield forward
            number = "".join(forward.local_id.partition("/")[2].partition(".")[1:])
            backward = by_id.get(f"{compile_name}/backward{number}")
            yield from [backward] if backward is not None else []


def _groups(item: InputRecord) -> list[int]:
    values = [item.value, item.stored.value if item.stored is not None else None]
    return [group for value in values if isinstance(value, TensorValue) for group in _of_tensor(value)]


def _of_tensor(value: TensorValue) -> list[int]:
    own = [] if value.storage is None else [value.storage]
    return own + [group for part in value.inner.values() for group in _of_tensor(part)]


def _regrouped(item: InputRecord, by: int) -> InputRecord:
    """A copy whose storages have other numbers: each record counts its own."""
    if not by or not _groups(item):
        return item
    changed = msgspec.structs.replace(item)
    if isinstance(item.value, TensorValue):
        changed.value = _moved(item.value, by)
    if item.stored is not None:
        changed.stored = _stored_moved(item.stored, by)
    return changed


def _moved(value: TensorValue, by: int) -> TensorValue:
    own = None if value.storage is None else value.storage + by
    inner = {name: _moved(part, by) for name, part in value.inner.items()}
    return msgspec.structs.replace(value, storage=own, inner=inner)


def _stored_moved(stored: StoredTensor, by: int) -> StoredTensor:
    inner = {name: _stored_moved(part, by) for name, part in stored.inner.items()}
    return msgspec.structs.replace(stored, value=_moved(stored.value, by), inner=inner)
