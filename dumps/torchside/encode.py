"""Encodes a live fx.GraphModule as a GraphRecord. Changes nothing: adds no guard, runs no op, touches no `node.meta`.

>>> encode(gm, id="0_0/forward", stage="forward", sink=saved.tensors).graph.nodes[0].name
'primals_1'
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ..allowlist import TRITON_CALLS
from ..names import NAMES
from ..schema import (
    FORMAT,
    Ambient,
    Arg,
    GraphBody,
    GraphRecord,
    InputRecord,
    ModuleRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from ..tensors import TensorSink
from . import definitions, leaf_modules, targets
from . import torch_private as t
from .arguments import ArgumentWriter
from .node_meta import MetaWriter
from .storages import StorageWriter
from .symbols import SymbolWriter
from .triton_kernels import KernelWriter
from .values import ValueWriter, is_plain_tensor

CARRY = "graphdbg"
"""Key in GraphModule.meta of the data that a loaded module keeps from its record."""
CARRIED_VALUE = "graphdbg_value"
"""Key in node.meta of a recorded value, on modules that were loaded without fake values."""
VALUE_KEYS = ("val", "example_value")
GROUPS = "process_groups"
"""Key in GraphBody.meta of the process groups that collectives name, so that a replay can make them."""


_CARRIED = ("id", "stage", "compile_id", "compile_kwargs", "ambient", "config", "definitions", "inputs", "versions")


def carried_of(record: GraphRecord) -> dict[str, Any]:
    """The fields of a record that a module loaded from it, or a case saved with `like`, takes over."""
    return {name: getattr(record, name) for name in _CARRIED}


def encode(
    gm: GraphModule,
    *,
    id: str,
    stage: str,
    compile_id: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None,
    ambient: Ambient | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    roles: Iterable[InputRecord] = (),
    sink: TensorSink | None = None,
) -> GraphRecord:
    """The record of a live graph, which is left untouched; adds no guard.

    `roles` has the known roles and sources of inputs. Tensors that the graph holds go to `sink`; without a sink, and
    for tensors that it declines, only their metadata is written.
    """
    known = {item.name: InputRecord(item.name, item.role, item.source, statistics=item.statistics) for item in roles}
    with torch.no_grad(), t.modes_off():
        encoder = _Encoder(gm, sink)
        body = encoder.whole()
        plain = encoder.plain.encode
        kwargs = {key: plain(_unboxed(value)) for key, value in (compile_kwargs or {}).items()}
        rooms = (config or {}).items()
        settings = {room: {key: plain(value) for key, value in values.items()} for room, values in rooms}
        symbols, guards, shape_env = encoder.symbols.finish()
        kernels = encoder.kernels.finish() if "kernels" in vars(encoder) else []
    names = [node.name for node in body.nodes if node.op == "placeholder"]
    record = GraphRecord(
        format=FORMAT,
        id=id,
        stage=stage,
        compile_id=compile_id,
        versions={"torch": str(torch.__version__)},
        graph=body,
        inputs=[known.get(name) or InputRecord(name) for name in names],
        symbols=symbols,
        guards=guards,
        shape_env=shape_env,
        strings=list(encoder.meta.strings),
        kernels=kernels,
        compile_kwargs=kwargs,
        ambient=ambient or Ambient(),
        config=settings,
    )
    record.definitions = definitions.of_record(record, config or {}, encoder.functions)
    return record


class _Encoder:
    def __init__(self, gm: GraphModule, sink: TensorSink | None) -> None:
        self.gm = gm
        self.carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})
        self.originals: dict[str, str] = self.carry.get("originals", {})
        self.symbols = SymbolWriter(self.originals)
        self.values = ValueWriter(self.symbols)
        self.storages = StorageWriter(self.values, sink)
        self.plain = ArgumentWriter(self.values, originals=self.originals)
        self.meta = MetaWriter(self.plain, self.originals, self.carry.get("not_saved", {}))
        self.functions: set[str] = set()

    @cached_property
    def kernels(self) -> KernelWriter:
        """The user's own Triton kernels that the graph calls."""
        return KernelWriter()

    def whole(self) -> GraphBody:
        """The graph with its subgraphs."""
        self._count(self.gm)
        if self.carry.get("has_shape_env"):
            self.symbols.adopt(self.carry["symbols"].env)
        body = self.body(self.gm)
        groups = _process_groups(self.gm) or self.carry.get(GROUPS)
        if groups:
            body.meta[GROUPS] = groups
        if NAMES in self.carry:
            body.meta[NAMES] = self.carry[NAMES]
        if self.meta.lost:
            body.meta["not_saved"] = {"dict": [[key, count] for key, count in sorted(self.meta.lost.items())]}
        return body

    def body(self, gm: GraphModule) -> GraphBody:
        """One graph with the objects that it refers to; subgraphs are bodies of their own."""
        body = GraphBody(nodes=[])
        held: dict[int, str] = {}
        graph_carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})

        def keep(tensor: torch.Tensor) -> str:
            """Stores a tensor that stands directly among the arguments, and returns its name."""
            if id(tensor) not in held:
                held[id(tensor)] = _free_name(gm, body.attrs)
                body.attrs[held[id(tensor)]] = self.storages.store(tensor)
            return held[id(tensor)]

        arguments = ArgumentWriter(self.values, keep, self.originals)
        body.meta = self.meta.module(gm)
        keys: Counter[str] = Counter()
        for node in gm.graph.nodes:
            body.nodes.append(self._node(gm, body, node, arguments, keys))
        self.functions |= arguments.functions
        if keys["example_value"] > keys["val"] or graph_carry.get("value_key") == "example_value":
            body.meta["value_key"] = "example_value"
        if keys["tensor_meta"] or graph_carry.get("tensor_meta"):
            body.meta["tensor_meta"] = True
        return body

    def _node(
        self, gm: GraphModule, body: GraphBody, node: torch.fx.Node, arguments: ArgumentWriter, keys: Counter[str]
    ) -> NodeRecord:
        target = str(node.target)
        if node.op == "call_function":
            target = targets.name_of(node.target)
            self.functions.add(target)
        record = NodeRecord(name=node.name, op=cast(Any, node.op), target=target)
        record.args = [arguments.encode(argument) for argument in node.args]
        record.kwargs = {name: arguments.encode(argument) for name, argument in node.kwargs.items()}
        if node.op in ("get_attr", "call_module"):
            self._refer(gm, body, node, arguments)
        key = _value_key(node)
        if key is not None:
            keys[key] += 1
            record.value = self.values.value(node.meta[key], whole_storage=node.op == "placeholder")
            if key == "example_value" and node.op == "placeholder" and isinstance(record.value, TensorValue):
                record.value.base = self.values.base(node.meta[key])
        else:
            record.value = node.meta.get(CARRIED_VALUE)
            if record.value is not None:
                self._use_carried(record.value)
        keys["tensor_meta"] += "tensor_meta" in node.meta
        self.meta.node(node, record)
        if target in TRITON_CALLS:
            self.kernels.node(node, record)
        return record

    def _refer(self, gm: GraphModule, body: GraphBody, node: torch.fx.Node, arguments: ArgumentWriter) -> None:
        """Writes the attribute that a node refers to by its path, once."""
        path = str(node.target)
        if path in body.attrs or path in body.subgraphs or path in body.modules:
            return
        attribute = attrgetter(path)(gm)
        if isinstance(attribute, GraphModule):
            body.subgraphs[path] = self.body(attribute)
        elif node.op == "call_module":
            body.modules[path] = leaf_modules.encode(attribute, arguments, self.storages.store)
        elif is_plain_tensor(attribute):
            body.attrs[path] = self.storages.store(attribute)
        else:
            kind = cast(type[Any], type(attribute))
            body.modules[path] = ModuleRecord(type=f"{kind.__module__}.{kind.__qualname__}", repr=repr(attribute)[:200])

    def _count(self, gm: GraphModule) -> None:
        """Counts the storages of all values and tensors, before any is written, to find those that are shared."""
        paths: dict[str, None] = {}
        for node in gm.graph.nodes:
            key = _value_key(node)
            if key is not None:
                self.values.count(node.meta[key])
            if node.op in ("get_attr", "call_module"):
                paths[node.target] = None
        for path in paths:
            attribute = attrgetter(path)(gm)
            if isinstance(attribute, GraphModule):
                self._count(attribute)
            else:
                is_module = isinstance(attribute, torch.nn.Module)
                self.values.count([*attribute.parameters(), *attribute.buffers()] if is_module else attribute)

    def _use_carried(self, value: Value) -> None:
        symbols = self.carry.get("symbols")
        if symbols is None:
            return
        if isinstance(value, TensorValue):
            for dim in (*value.shape, *value.stride, value.offset, value.storage_bytes):
                if isinstance(dim, str):
                    self.symbols.text(symbols.expr(dim))
        elif isinstance(value, SymValue):
            self.symbols.text(symbols.expr(value.expr))
        elif isinstance(value, SequenceValue):
            for item in value.items:
                self._use_carried(item)


def _value_key(node: torch.fx.Node) -> str | None:
    return next((key for key in VALUE_KEYS if key in node.meta), None)


def _free_name(gm: GraphModule, taken: Mapping[str, StoredTensor]) -> str:
    index = len(taken)
    while f"_argument_{index}" in taken or hasattr(gm, f"_argument_{index}"):
        index += 1
    return f"_argument_{index}"


def _unboxed(value: Any) -> Any:
    """The value in Inductor's BoxedBool or BoxedDeviceIndex; other values as they are."""
    return value.value if type(value).__name__ in ("BoxedBool", "BoxedDeviceIndex") else value


def _process_groups(gm: GraphModule) -> Arg:
    """Process groups by name, from the arguments of functional collectives; None for a graph without collectives, or
    where this process knows none of the names. Does not communicate."""
    groups = ((name, _group(name)) for name in sorted(set(_group_names(gm))))
    facts: list[Arg] = [[name, _facts_of(group)] for name, group in groups if group is not None]
    return {"dict": facts} if facts else None


def _group_names(gm: GraphModule) -> Iterator[str]:
    for part in gm.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                if node.op == "call_function" and "c10d" in str(node.target):
                    yield from (value for value in (*node.args, *node.kwargs.values()) if isinstance(value, str))


def _group(name: str) -> Any:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        return t.resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None


def _facts_of(group: Any) -> Arg:
    distributed = sys.modules["torch.distributed"]
    ranks = [int(rank) for rank in distributed.get_process_group_ranks(group)]
    of_all = [["rank", int(distributed.get_rank())], ["world_size", int(distributed.get_world_size())]]
    return {"dict": [["backend", str(distributed.get_backend(group))], ["ranks", ranks], *of_all]}
