"""The facts about a graph that a comparison uses: columns with one entry per node, without names of nodes, from its
record.

Renumbering changes names, so nodes refer to each other by position, tensors and subgraphs are identified by their
contents, and an input by its source. Knows nothing of the second graph, and reads no file.

>>> facts = NodeColumns(record)
>>> facts.targets[7], facts.skeletons[7], facts.inputs[7]
('aten.mul.Tensor', b'[[@,0.5],{}]', [6])
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from .. import schema
from ..schema import GraphBody, GraphRecord, SymValue, TensorValue, Value
from ..walk import string, user_frame

Key = tuple[Any, ...]
"""The facts about a value, its kind first: ("tensor", dtype, shape, strides, device, ...), ("sym", kind, expression),
("list", keys...), ("tuple", keys...), ("other", bytes); empty where nothing is known."""

_NODE = re.compile(rb'\{"node":"(\w+)"\}')
_STRING = re.compile(rb'\{"string":(\d+)\}')
_TENSOR = re.compile(rb'\{"tensor":"(\w+)"\}')
_SYM = re.compile(rb'\{"sym":\["(\w+)","((?:[^"\\]|\\.)*)"\]\}')
_DEVICE = re.compile(rb'\{"device":"([\w:]+)"\}')
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ENCODER = msgspec.json.Encoder(order="sorted")


class NodeColumns:
    """One graph as columns of equal length, in the order of its nodes.

    `inputs`: positions in argument order, with repetitions; `users`: (position, slot); `skeletons`: the arguments as
    JSON with `@` for each node; `values`: the key of the result; `identities` tell inputs apart; nodes of different
    `kinds` never match. `rename` maps symbols and devices to their names in the other graph; without `grads`,
    requires_grad is ignored.
    """

    def __init__(
        self,
        record: GraphRecord,
        rename: Mapping[str, str] | None = None,
        body: GraphBody | None = None,
        *,
        grads: bool = True,
    ) -> None:
        self.record = record
        self.rename = rename or {}
        self.grads = grads
        self.body = body or record.graph
        self.nodes = self.body.nodes
        self.position = {node.name: index for index, node in enumerate(self.nodes)}
        self.inputs: list[list[int]] = []
        self.users: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        self.skeletons: list[bytes] = []
        self.values: list[Key] = []
        self.targets: list[str] = []
        self.identities: list[str] = []
        self.kinds: list[str] = []
        self._sources = {item.name: item.source for item in record.inputs} if body is None else {}
        self._frame = cache(self._user_frame)
        for index, node in enumerate(self.nodes):
            self._add(index, node)

    def __len__(self) -> int:
        return len(self.nodes)

    def _add(self, index: int, node: schema.NodeRecord) -> None:
        text = _ENCODER.encode((node.args, node.kwargs))
        used = [self.position[name.decode()] for name in _NODE.findall(text)]
        skeleton = _NODE.sub(b"@", text) if used else text
        if b'{"' in skeleton:
            skeleton = self._by_content(skeleton)
        self.inputs.append(used)
        for slot, producer in enumerate(used):
            self.users[producer].append((index, slot))
        self.skeletons.append(skeleton)
        self.values.append(self.value(node.value))
        self.targets.append(self._target(node))
        kind = self.values[-1][:1] if node.op == "placeholder" else ()
        self.kinds.append(f"{node.op} {kind[0]}" if kind else node.op)
        self.identities.append(self._sources.get(node.name, "") if node.op == "placeholder" else "")

    def _by_content(self, skeleton: bytes) -> bytes:
        """The skeleton by content, since indices of strings and names of tensors and symbols mean nothing in another
        graph."""
        strings, attrs = self.record.strings, self.body.attrs
        if b'{"string":' in skeleton:
            skeleton = _STRING.sub(lambda match: _ENCODER.encode(string(strings, int(match[1]))), skeleton)
        if b'{"tensor":' in skeleton:
            skeleton = _TENSOR.sub(lambda match: self._stored(attrs.get(match[1].decode())).encode(), skeleton)
        if self.rename and b'{"sym":' in skeleton:
            skeleton = _SYM.sub(
                lambda match: b'{"sym":["%s","%s"]}' % (match[1], self.dim(match[2].decode()).encode()), skeleton
            )
        if self.rename and b'{"device":' in skeleton:
            skeleton = _DEVICE.sub(lambda match: b'{"device":"%s"}' % self.device(match[1].decode()).encode(), skeleton)
        return skeleton

    def device(self, device: str) -> str:
        """The name of a device in the other graph."""
        return self.rename.get(device, device)

    def _target(self, node: schema.NodeRecord) -> str:
        if node.op == "placeholder":
            return ""
        if node.op == "get_attr":
            if node.target in self.body.attrs:
                return self._stored(self.body.attrs[node.target])
            subgraph = self.body.subgraphs.get(node.target)
            if subgraph is None:
                return node.target
            return digest(NodeColumns(self.record, self.rename, subgraph, grads=self.grads))
        module = self.body.modules.get(node.target) if node.op == "call_module" else None
        if module is None:
            return node.target
        state = {name: self._stored(stored) for name, stored in module.state.items()}
        return _ENCODER.encode((module.type, module.arguments, state, module.training)).decode()

    def _stored(self, stored: schema.StoredTensor | None) -> str:
        storage = "" if stored is None or stored.parameter else stored.storage
        return "" if stored is None else f"tensor {self.value(stored.value)} {storage}"

    def dim(self, dim: Any) -> Any:
        """A size; in an expression symbols are renamed."""
        return renamed(dim, self.rename) if isinstance(dim, str) else dim

    def number(self, name: Any) -> Any:
        """The number or expression that a node stands for; None where it is unknown."""
        index = self.position.get(name, -1) if isinstance(name, str) else -1
        value = self.nodes[index].value if index >= 0 else None
        if isinstance(value, SymValue):
            return self.dim(value.expr)
        return value.value if isinstance(value, schema.ConstValue) and isinstance(value.value, int) else None

    def value(self, value: Value | None) -> Key:
        """The compared parts of a value, without its alias group and the hints of symbols, which are specific to one
        compile."""
        if isinstance(value, TensorValue):
            shape, stride = tuple(value.shape), tuple(value.stride)
            if self.rename:
                shape, stride = tuple(map(self.dim, shape)), tuple(map(self.dim, stride))
            flags = (self.grads and value.requires_grad, value.conj, value.neg)
            quantizer = _ENCODER.encode(value.quantizer) if value.quantizer else b""
            place = (self.device(value.device), value.offset, value.layout)
            return ("tensor", value.dtype, shape, stride, *place, *flags, quantizer)
        if isinstance(value, SymValue):
            return ("sym", value.kind, self.dim(value.expr))
        if isinstance(value, schema.SequenceValue):
            return (value.kind, *map(self.value, value.items))
        return () if value is None else ("other", _ENCODER.encode(value))

    def line(self, index: int) -> tuple[str, str]:
        """The user's line of a node as ("model.py:12", its code); for an input without a line, that of its first
        user."""
        frame = self._frame(self.nodes[index].stack)
        if not frame[0] and self.nodes[index].op in ("placeholder", "get_attr") and self.users[index]:
            return self._frame(self.nodes[self.users[index][0][0]].stack)
        return frame

    def _user_frame(self, stack: int) -> tuple[str, str]:
        return user_frame(string(self.record.strings, stack))

    def code(self, index: int) -> str:
        """The code of the user's line of the node itself."""
        return self._frame(self.nodes[index].stack)[1]

    def module(self, index: int) -> str:
        """The recorded module stack of the node."""
        return string(self.record.strings, self.nodes[index].module)


def renamed(text: str, rename: Mapping[str, str]) -> str:
    """An expression with its symbols renamed."""
    return _WORD.sub(lambda match: rename.get(match[0], match[0]), text) if rename else text


def digest(facts: NodeColumns) -> str:
    """A hash of everything that a graph computes, for subgraphs of higher-order ops."""
    rows = [
        (node.op, target, skeleton.decode(), inputs, repr(value))
        for node, target, skeleton, inputs, value in zip(
            facts.nodes, facts.targets, facts.skeletons, facts.inputs, facts.values, strict=True
        )
    ]
    return "graph " + hashlib.blake2b(_ENCODER.encode(rows), digest_size=12).hexdigest()


def device_names(a: GraphRecord, b: GraphRecord) -> dict[str, str]:
    """Renames the only GPU of `b` to that of `a`, where each graph is on one device of the same type and only its
    number differs."""
    devices_a, two = ({value.device for value in _tensors(record) if ":" in value.device} for record in (a, b))
    if len(devices_a) == len(two) == 1 and devices_a != two:
        (old,), (new,) = devices_a, two
        if old.partition(":")[0] == new.partition(":")[0]:
            return {new: old}
    return {}


def _tensors(record: GraphRecord) -> Iterator[TensorValue]:
    values = [node.value for node in record.graph.nodes]
    while values:
        value = values.pop()
        if isinstance(value, TensorValue):
            yield value
        elif isinstance(value, schema.SequenceValue):
            values.extend(value.items)


def symbol_names(a: GraphRecord, b: GraphRecord) -> dict[str, str]:
    """Symbols of `b` -> symbols of `a` for the same size of the same input; empty where no name differs."""
    known = {symbol.source: symbol.name for symbol in a.symbols if symbol.source}
    names = {symbol.name: known[symbol.source] for symbol in b.symbols if symbol.source in known}
    return names if any(old != new for old, new in names.items()) else {}
