# pyright: basic
"""The inputs of a saved graph: stored ones as they were, the others made up; and what is seen of real inputs, for inputs.json.

>>> inputs = make(record, inputs_record, tensors, seed=0)
>>> seen = observe(gm, real_inputs, "index", sink)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import RefusedError, UnreadableError, UsageError
from ..hints import Numbers, concrete, numbers, scalar, spanned, value_of_input
from ..index_bounds import bounds
from ..schema import (
    FORMAT,
    ConstValue,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from ..walk import plain
from ..wording import counted
from . import opaque, sparse, synth
from . import torch_private as t
from .storages import StorageReader, StorageWriter
from .symbols import SymbolWriter, is_symbolic
from .values import ValueWriter, dtype_of, is_plain_tensor

POLICIES = ("none", "meta", "index", "first", "last", "all")
_MODULE_STAGES = ("dynamo", "pre_grad")
"""Stages whose parameters are nn.Parameters still."""
WHOLE = frozenset({"first", "last", "all"})
"""Policies that keep whole storages."""
_PIECE = 1 << 22
"""Elements that statistics look at in one go."""


def make(record: GraphRecord, seen: InputsRecord | None, tensors: TensorSink | None, seed: int, where: str = "") -> list[Any]:
    """One value per placeholder, in order. Raises RefusedError for an input that has no saved form."""
    where = where or f"graph {record.id}"
    placeholders = [node for node in record.graph.nodes if node.op == "placeholder"]
    known = {item.name: item for item in seen.inputs} if seen is not None else {}
    found = numbers(record, seen)
    parameters = {item.name for item in record.inputs if item.role == "parameter" and record.stage in _MODULE_STAGES}
    maker = _Maker(bounds(record, found), found, StorageReader(tensors, where), seed, where, parameters)
    return [
        opaque.real(known.get(node.name)) if opaque.is_handed_through(record.graph, node)
        else maker.input(node, known.get(node.name))
        for node in placeholders
    ]  # fmt: skip


class _Maker:
    def __init__(
        self, limits: dict[str, int], numbers: Numbers, reader: StorageReader, seed: int, where: str,
        parameters: set[str],
    ) -> None:  # fmt: skip
        self.limits = limits
        self.numbers = numbers
        self.reader = reader
        self.seed = seed
        self.where = where
        self.parameters = parameters
        self.made: dict[int, torch.UntypedStorage] = {}

    def input(self, node: NodeRecord, item: InputRecord | None) -> Any:
        where = f"{self.where}: input {node.name}"
        if item is not None:
            if item.stored is not None and item.stored.storage:
                tensor = self.reader.load(item.stored, node.name)
                if item.stored.value.storage is not None:
                    self.made.setdefault(item.stored.value.storage, tensor.untyped_storage())
                return tensor
            if item.scalar is not None:
                return item.scalar
        value = value_of_input(node, item)
        if value is None:
            raise UnreadableError(where, "nothing is known of it", "record with --inputs first")
        statistics = item.statistics if item is not None else None
        parameter = node.name in self.parameters or (
            item is not None and item.stored is not None and item.stored.parameter
        )
        return self.value(node.name, value, statistics, parameter, where)

    def value(self, name: str, value: Value, statistics: Any, parameter: bool, where: str) -> Any:
        if isinstance(value, TensorValue):
            return self.tensor(name, value, statistics, parameter, where)
        if isinstance(value, SymValue):
            return scalar(value, self.numbers)
        if isinstance(value, SequenceValue):
            items = [self.value(f"{name}.{i}", item, None, False, where) for i, item in enumerate(value.items)]
            return items if value.kind == "list" else tuple(items)
        if isinstance(value, ConstValue):
            return plain(value.value)
        raise RefusedError(where, f"a value of type {value.type} has no saved form")

    def tensor(self, name: str, value: TensorValue, statistics: Any, parameter: bool, where: str) -> torch.Tensor:
        wanted = concrete(value, self.numbers, where)
        group = value.storage
        limit = self.limits.get(name)
        storage = self.made.get(group) if group is not None else None
        if storage is not None and spanned(wanted, where) * dtype_of(wanted.dtype, where).itemsize > storage.nbytes():
            storage = None
        made = synth.tensor(
            name, wanted, self.seed, statistics=statistics, bounds=(0, limit) if limit else None, storage=storage, where=where
        )
        if group is not None and made.layout is torch.strided:
            self.made.setdefault(group, made.untyped_storage())
        return torch.nn.Parameter(made.detach(), requires_grad=value.requires_grad) if parameter else made


def observe(
    graph: GraphModule | GraphRecord, inputs: Sequence[Any], policy: str, sink: TensorSink | None
) -> InputsRecord:
    """What is kept of the inputs of one execution; call it before the graph runs, since it may change them.

    `none` and `meta` keep shapes and scalars, `index` also statistics and the values of integer and boolean tensors; `first`,
    `last` and `all` also whole storages. Nothing of the user's state is changed; a tensor on an accelerator is waited for.
    """
    if policy not in POLICIES:
        raise UsageError(f"{policy!r} is no policy for inputs", f"choose one of {', '.join(POLICIES)}")
    roles = {item.name: item for item in graph.inputs} if isinstance(graph, GraphRecord) else {}
    names = placeholder_names(graph)
    if len(names) != len(inputs):
        why = f"the graph has {counted(len(names), 'placeholder')}, {counted(len(inputs), 'value')} came"
        raise UsageError("cannot observe the inputs", why)
    values = ValueWriter(SymbolWriter())
    storages = StorageWriter(values, sink)
    with torch.no_grad(), t.modes_off():
        for value in inputs:
            values.count(value)
        items = [_observe_one(name, value, policy, values, storages) for name, value in zip(names, inputs, strict=True)]
    for item in items:
        if item.name in roles:
            item.role, item.source = roles[item.name].role, roles[item.name].source
    return InputsRecord(format=FORMAT, policy=policy, inputs=items)


def placeholder_names(graph: GraphModule | GraphRecord) -> list[str]:
    """The names of the inputs of a live or recorded graph."""
    nodes = graph.graph.nodes
    return [node.name for node in nodes if node.op == "placeholder"]


def _observe_one(name: str, value: Any, policy: str, values: ValueWriter, storages: StorageWriter) -> InputRecord:
    item = InputRecord(name=name)
    if is_symbolic(value):
        number_seen = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
        if number_seen is None and isinstance(value, torch.SymInt):
            number_seen = value.node.nested_int()  # the ragged size of a nested tensor: a number that stands for its offsets
        item.scalar = number_seen if number_seen is not None else values.symbols.hint(values.symbols.expr(value))
        return item
    if isinstance(value, (bool, int, float)):
        item.scalar = value
        return item if math.isfinite(value) else InputRecord(name=name, value=values.value(value))
    if not is_plain_tensor(value) or policy == "none":
        item.value = values.value(value, whole_storage=True)
        return item
    item.value = values.tensor(value, whole_storage=value.layout is torch.strided)
    is_parameter = isinstance(value, torch.nn.Parameter)
    readable = not isinstance(value, t.FakeTensor) and not value.is_meta and value.layout is torch.strided
    if policy != "meta" and readable:
        item.statistics = statistics(value)
        if policy in WHOLE or not (value.dtype.is_floating_point or value.dtype.is_complex or value.is_quantized):
            item.stored = storages.store(value)
            return item
    if policy in WHOLE and value.layout is not torch.strided and sparse.packable(value):
        item.stored = storages.store(value)
    elif is_parameter:
        item.stored = StoredTensor(storage="", value=item.value, parameter=True)
    return item


def statistics(value: torch.Tensor) -> dict[str, float | int | None] | None:
    """min, max, mean, std over the finite elements, and how many are NaN or infinite; None for dtypes without arithmetic.

    Reads the tensor piece by piece, so that a step that barely fits its device still fits.
    """
    if value.numel() == 0:
        return None
    try:
        if value.dtype is torch.bool:
            share = sum(float(part.sum()) for part in _pieces(value)) / value.numel()
            return {"min": int(share == 1.0), "max": int(share > 0.0), "mean": share}
        if value.is_quantized:
            value = value.dequantize()
        if value.dtype.is_complex:
            value = torch.view_as_real(value.resolve_conj())
        if not value.dtype.is_floating_point:
            spans = [torch.aminmax(part.to(torch.int64)) for part in _pieces(value)]
            return {"min": min(int(low) for low, _ in spans), "max": max(int(high) for _, high in spans)}
        return _float_statistics(value)
    except (RuntimeError, NotImplementedError):
        return None


def _float_statistics(value: torch.Tensor) -> dict[str, float | int | None]:
    low, high, total, squares, count, nan = math.inf, -math.inf, 0.0, 0.0, 0, 0
    for part in _pieces(value):
        wide = part if part.dtype is torch.float64 else part.to(torch.float32)
        nan += int(torch.isnan(wide).sum())
        finite = torch.isfinite(wide)
        if not bool(finite.all()):
            wide = wide[finite]
        if not wide.numel():
            continue
        least, most = torch.aminmax(wide)
        low, high = min(low, float(least)), max(high, float(most))
        mean, spread, size = float(wide.mean()), float(wide.var(correction=0)), wide.numel()
        gap, count = mean - (total / count if count else mean), count + size
        squares += spread * size + gap * gap * (count - size) * size / count  # Chan et al., updating formulae for variances
        total += mean * size
    inf = value.numel() - count - nan
    if not count:
        return {"nan": nan, "inf": inf}
    found = {"min": low, "max": high, "mean": total / count, "std": math.sqrt(max(squares, 0.0) / count)}
    return {**{key: number for key, number in found.items() if math.isfinite(number)}, "nan": nan, "inf": inf}


def _pieces(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Parts of at most about `_PIECE` elements, split along the longest dimension."""
    if value.numel() <= _PIECE or value.dim() == 0:
        yield value
        return
    longest = max(range(value.dim()), key=lambda dim: value.shape[dim])
    parts = min(value.shape[longest], -(-value.numel() // _PIECE))
    yield from value.chunk(parts, longest)
