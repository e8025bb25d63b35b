# pyright: basic
"""A live fx.GraphModule -> GraphRecord. Changes nothing: adds no guard, runs no op, touches no `node.meta`.

>>> record = encode(gm, id="0_0/forward", stage="forward", sink=process.tensors)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ..schema import (
    FORMAT,
    Ambient,
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
from . import groups, targets
from . import torch_private as t
from .arguments import ArgumentWriter
from .leaf_modules import LeafWriter
from .node_meta import MetaWriter, Strings
from .storages import StorageWriter
from .symbols import SymbolWriter
from .triton_kernels import KernelWriter
from .values import ValueWriter, is_plain_tensor

CARRY = "graphdbg"
"""Key in GraphModule.meta of what a loaded module remembers of its record."""
CARRIED_VALUE = "graphdbg_value"
"""Key in node.meta of a recorded value, on modules that were loaded without fake values."""
VALUE_KEYS = ("val", "example_value")


def encode(
    gm: GraphModule, *, id: str, stage: str, compile_id: str | None = None,
    compile_kwargs: Mapping[str, Any] | None = None, ambient: Ambient | None = None,
    config: Mapping[str, Mapping[str, Any]] | None = None, input_roles: Mapping[str, Any] | None = None,
    sink: TensorSink | None = None,
) -> GraphRecord:  # fmt: skip
    """The record of a graph.

    `input_roles` maps placeholder names to a role of InputRecord or to (role, source). Tensors that the graph holds go to `sink`;
    without one, and for those it declines, only their metadata is written.
    """
    with torch.no_grad(), t.modes_off():
        return _Encoder(gm, sink).record(
            id, stage, compile_id, compile_kwargs or {}, ambient, config or {}, input_roles or {}
        )


class _Encoder:
    def __init__(self, gm: GraphModule, sink: TensorSink | None) -> None:
        self.gm = gm
        self.carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})
        self.symbols = SymbolWriter()
        self.values = ValueWriter(self.symbols)
        self.storages = StorageWriter(self.values, sink)
        self.strings = Strings()
        self.kernels = KernelWriter()
        self.originals: dict[str, str] = self.carry.get("originals", {})
        self.lost: Counter[str] = Counter(self.carry.get("not_saved", {}))

    def record(
        self, id: str, stage: str, compile_id: str | None, compile_kwargs: Mapping[str, Any], ambient: Ambient | None,
        config: Mapping[str, Mapping[str, Any]], roles: Mapping[str, Any],
    ) -> GraphRecord:  # fmt: skip
        self._count(self.gm)
        if self.carry.get("has_shape_env"):
            self.symbols.adopt(self.carry["symbols"].env)
        body = self.body(self.gm)
        plain = ArgumentWriter(self.values)
        inputs = [self._input(node, roles) for node in body.nodes if node.op == "placeholder"]
        encoded_kwargs = {key: plain.encode(_unboxed(value)) for key, value in compile_kwargs.items()}
        encoded_config = {
            module: {key: plain.encode(value) for key, value in settings.items()} for module, settings in config.items()
        }
        symbols, guards, shape_env = self.symbols.finish()
        told = groups.of_graph(self.gm) or self.carry.get(groups.KEY)
        if told:
            body.meta[groups.KEY] = told
        if self.lost:
            body.meta["not_saved"] = {"dict": [[key, count] for key, count in sorted(self.lost.items())]}
        return GraphRecord(
            format=FORMAT, id=id, stage=stage, compile_id=compile_id, versions={"torch": str(torch.__version__)}, graph=body,
            inputs=inputs, symbols=symbols, guards=guards, shape_env=shape_env, strings=self.strings.texts,
            kernels=self.kernels.finish(), compile_kwargs=encoded_kwargs, ambient=ambient or Ambient(), config=encoded_config,
        )  # fmt: skip

    def body(self, gm: GraphModule) -> GraphBody:
        """One graph with what it refers to; subgraphs are bodies of their own."""
        body = GraphBody(nodes=[])
        held: dict[int, str] = {}
        graph_carry: dict[str, Any] = getattr(gm, "meta", {}).get(CARRY, {})

        def keep(tensor: torch.Tensor) -> str:
            """Stores a tensor that is written straight into the arguments."""
            if id(tensor) not in held:
                held[id(tensor)] = _free_name(gm, body.attrs)
                body.attrs[held[id(tensor)]] = self.storages.store(tensor)
            return held[id(tensor)]

        arguments = ArgumentWriter(self.values, keep)
        meta = MetaWriter(ArgumentWriter(self.values), self.strings, self.originals)
        body.meta = meta.module(gm, self.lost)
        keys: Counter[str] = Counter()
        for node in gm.graph.nodes:
            body.nodes.append(self._node(gm, body, node, arguments, meta, keys))
        if keys["example_value"] > keys["val"] or graph_carry.get("value_key") == "example_value":
            body.meta["value_key"] = "example_value"
        if keys["tensor_meta"] or graph_carry.get("tensor_meta"):
            body.meta["tensor_meta"] = True
        return body

    def _node(
        self, gm: GraphModule, body: GraphBody, node: torch.fx.Node, arguments: ArgumentWriter, meta: MetaWriter,
        keys: Counter[str],
    ) -> NodeRecord:  # fmt: skip
        record = NodeRecord(name=node.name, op=cast(Any, node.op), target=self._target(node))
        record.args = [arguments.encode(argument) for argument in node.args]
        record.kwargs = {name: arguments.encode(argument) for name, argument in node.kwargs.items()}
        if node.op == "get_attr":
            self._attribute(gm, body, str(node.target))
        elif node.op == "call_module":
            self._submodule(gm, body, str(node.target), arguments)
        for key in VALUE_KEYS:
            if key in node.meta:
                keys[key] += 1
                record.value = self.values.value(node.meta[key], whole_storage=node.op == "placeholder")
                break
        else:
            record.value = node.meta.get(CARRIED_VALUE)
            if record.value is not None:
                self._use_carried(record.value)
        keys["tensor_meta"] += "tensor_meta" in node.meta
        meta.node(node, record, self.lost)
        self.kernels.node(node, record)
        return record

    def _target(self, node: torch.fx.Node) -> str:
        return targets.name_of(node.target) if node.op == "call_function" else str(node.target)

    def _attribute(self, gm: GraphModule, body: GraphBody, path: str) -> None:
        if path in body.attrs or path in body.subgraphs or path in body.modules:
            return
        found: Any = gm
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, GraphModule):
            body.subgraphs[path] = self.body(found)
        elif is_plain_tensor(found):
            body.attrs[path] = self.storages.store(found)
        else:
            kind = type(found)
            body.modules[path] = ModuleRecord(type=f"{kind.__module__}.{kind.__qualname__}", repr=repr(found)[:200])

    def _submodule(self, gm: GraphModule, body: GraphBody, path: str, arguments: ArgumentWriter) -> None:
        if path in body.modules or path in body.subgraphs:
            return
        module = gm.get_submodule(path)
        if isinstance(module, GraphModule):
            body.subgraphs[path] = self.body(module)
        else:
            body.modules[path] = LeafWriter(arguments, self.storages.store).encode(module)

    def _count(self, gm: GraphModule) -> None:
        """Finds storages that several values or tensors share, before any of them is written."""
        for node in gm.graph.nodes:
            for key in VALUE_KEYS:
                if key in node.meta:
                    self.values.count(node.meta[key])
                    break
        seen: set[str] = set()
        for node in gm.graph.nodes:
            if node.op in ("get_attr", "call_module") and node.target not in seen:
                seen.add(node.target)
                self._count_attribute(gm, node.target)

    def _count_attribute(self, gm: GraphModule, path: str) -> None:
        found: Any = gm
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, GraphModule):
            self._count(found)
        elif isinstance(found, torch.nn.Module):
            for tensor in (*found.parameters(), *found.buffers()):
                self.values.count(tensor)
        else:
            self.values.count(found)

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

    def _input(self, node: NodeRecord, roles: Mapping[str, Any]) -> InputRecord:
        role = roles.get(node.name, "unknown")
        role, source = (role, "") if isinstance(role, str) else (role[0], role[1])
        return InputRecord(name=node.name, role=cast(Any, role), source=source or "")


def _free_name(gm: GraphModule, taken: Mapping[str, StoredTensor]) -> str:
    index = len(taken)
    while f"_argument_{index}" in taken or hasattr(gm, f"_argument_{index}"):
        index += 1
    return f"_argument_{index}"


def _unboxed(value: Any) -> Any:
    """What Inductor's BoxedBool and BoxedDeviceIndex hold."""
    return value.value if type(value).__name__ in ("BoxedBool", "BoxedDeviceIndex") else value
