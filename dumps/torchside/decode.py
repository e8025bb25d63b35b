"""Rebuilds a live fx.GraphModule from a GraphRecord. Every name is checked before it reaches FX, which runs the code
that it prints.

Nothing of the graph is executed here. `build` returns a module with real tensors; with `fake` also fake values on every
node.

>>> gm, fake_inputs, mode = fake_module(record, saved.tensors, where="case/graph.json")
>>> fake_inputs[0].shape
torch.Size([16, 8])
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule

from .. import inert, names
from ..allowlist import TRITON_CALLS
from ..errors import (
    DamagedError,
    EnvironmentLackError,
    NameRefusedError,
    NotRegisteredError,
    RefusedError,
    TargetRefusedError,
)
from ..program.text import is_identifier
from ..schema import GraphBody, GraphRecord, NodeRecord, OpaqueValue, SequenceValue, Value
from ..tensors import TensorSink
from ..wording import error_line
from . import definitions, leaf_modules, targets
from .arguments import ArgumentReader
from .encode import CARRIED_VALUE, CARRY, GROUPS, VALUE_KEYS, carried_of
from .make_inputs import stand_in
from .node_meta import MetaReader
from .storages import StorageReader
from .symbols import Symbols
from .triton_kernels import KernelReader
from .values import ValueReader, is_handed_through, stand_in_traced

MAX_SUBGRAPH_DEPTH = 20
BEFORE_AOT = ("dynamo", "pre_grad")
"""Stages whose graphs may call Python functions."""


class Decoder:
    """Rebuilds one record. `where` names its file in error messages."""

    def __init__(self, record: GraphRecord, tensors: TensorSink | None, where: str) -> None:
        self.record = record
        self.where = where
        self.originals = inert.InertTexts()
        self.symbols = Symbols(record, where, self.originals)
        self.values = ValueReader(self.symbols)
        self.storages = StorageReader(tensors, where, absent=stand_in)
        self.kernels = KernelReader(record.kernels, where)

    def build(self, *, fake: bool) -> GraphModule:
        """The live module; with `fake`, `node.meta` holds the recorded values as fake tensors and SymInts."""
        definitions.ensure(self.record, self.where)
        try:
            gm = self._body(self.record.graph, fake, self.where, 0)
        except RefusedError as error:
            raise type(error)(error.what, error.why, error.fix or _instead(self.record)) from error.__cause__
        record = self.record
        gm.meta[CARRY] |= carried_of(record) | {
            "symbols": self.symbols,
            "has_shape_env": bool(record.shape_env or record.symbols),
            "originals": self.originals,
            "not_saved": dict(cast(Any, record.graph.meta.get("not_saved") or {"dict": []})["dict"]),
            "made_up": self.storages.synthesised,
            "names": (names.input_names(record), names.outputs(record)),
        }
        return gm

    def _body(self, body: GraphBody, fake: bool, where: str, depth: int) -> GraphModule:
        if depth > MAX_SUBGRAPH_DEPTH:
            raise DamagedError(where, f"subgraphs are nested more than {MAX_SUBGRAPH_DEPTH} deep")
        root = torch.nn.Module()
        for path, subgraph in body.subgraphs.items():
            _install(root, path, self._body(subgraph, fake, f"{where}: subgraph {path}", depth + 1), where)
        tensors: dict[str, torch.Tensor] = {}
        for path, stored in body.attrs.items():
            targets.check_attribute_path(path, f"{where}: tensor {path[:60]!r}")
            tensors[path] = self.storages.load(stored, path)
            _install(root, path, tensors[path], where)
        arguments = ArgumentReader(self.values, self.record.strings, self.originals, tensors)
        for path, module in body.modules.items():
            load = partial(self.storages.load, name=path)
            _install(root, path, leaf_modules.build(module, arguments, load, f"{where}: module {path}"), where)
        meta = MetaReader(arguments, fake=fake)
        graph = Graph()
        for record in body.nodes:
            node = self._node(graph, root, record, arguments, f"{where}: node {record.name[:60]}")
            arguments.nodes[record.name] = node
            meta.node(node, record, f"{where}: node {record.name}")
            if record.value is not None:
                self._value(node, record, body, meta, fake, f"{where}: node {record.name}")
        gm = _module(root, graph, where)
        meta.module(gm, body.meta, where)
        kept = ("value_key", "tensor_meta", GROUPS, names.NAMES)
        gm.meta[CARRY] = {key: body.meta[key] for key in kept if key in body.meta}
        return gm

    def _node(
        self, graph: Graph, root: torch.nn.Module, record: NodeRecord, arguments: ArgumentReader, where: str
    ) -> torch.fx.Node:
        if not is_identifier(record.name) or record.name == "self":
            raise NameRefusedError(where, f"the node name {record.name[:60]!r} is not a plain identifier")
        if record.name in arguments.nodes:
            raise DamagedError(where, "a node of that name exists already")
        for name in record.kwargs:
            if not is_identifier(name):
                raise NameRefusedError(where, f"the keyword argument {name[:60]!r} is not a plain identifier")
        arguments.options = record.target.startswith("higher_order.")  # options of kernels, unlike dicts in metadata
        args = tuple(arguments.decode(argument, where) for argument in record.args)
        kwargs = {name: arguments.decode(argument, where) for name, argument in record.kwargs.items()}
        arguments.options = False
        if record.op == "call_function" and record.target in TRITON_CALLS:
            kwargs = self.kernels.kwargs(record, kwargs, where)
        target = self._target(root, record, args, kwargs, where)
        node = graph.create_node(record.op, target, args, kwargs, name=record.name)
        if node.name != record.name:
            raise NameRefusedError(where, f"FX would rename the node {record.name!r} to {node.name!r}")
        return node

    def _target(
        self, root: torch.nn.Module, record: NodeRecord, args: tuple[Any, ...], kwargs: dict[str, Any], where: str
    ) -> Any:
        name = record.target
        if record.op == "call_function":
            if name in TRITON_CALLS:
                return self.kernels.target(name)
            try:
                function = targets.resolve(name, where)
            except EnvironmentLackError as error:
                raise definitions.refused(self.record, name, error) from None
            except TargetRefusedError as error:  # its namespace is also a Python module's name
                if not any(name.partition(".")[0] in known.spaces for known in self.record.definitions):
                    raise
                raise definitions.refused(self.record, name, NotRegisteredError(error.what, error.why)) from None
            targets.check_getattr(name, record.args, record.kwargs, where)
            return function
        if record.op == "call_method":
            return targets.check_method(name, where)
        if record.op in ("placeholder", "output"):
            if not is_identifier(name):
                raise NameRefusedError(where, f"the target {name[:60]!r} is not a plain identifier")
            if record.op == "placeholder" and (kwargs or len(args) > 1):
                raise DamagedError(where, "a placeholder takes one default value at most")
            return name
        targets.check_attribute_path(name, where)
        attribute: Any = root
        for part in name.split("."):
            attribute = getattr(attribute, part, None)
        if attribute is None or (record.op == "call_module" and not isinstance(attribute, torch.nn.Module)):
            raise DamagedError(where, f"the graph has no attribute {name!r}")
        return name

    def _value(
        self, node: torch.fx.Node, record: NodeRecord, body: GraphBody, meta: MetaReader, fake: bool, where: str
    ) -> None:
        if not fake or (record.op != "placeholder" and _is_opaque(record.value)):
            node.meta[CARRIED_VALUE] = record.value
            return
        key = "example_value" if body.meta.get("value_key") == "example_value" else "val"
        if is_handed_through(body, record):
            node.meta[key] = stand_in_traced()
            return
        try:
            node.meta[key] = self.values.value(record.value, where)  # pyright: ignore
        except EnvironmentLackError:
            if record.op == "placeholder":
                raise
            node.meta[CARRIED_VALUE] = record.value  # the value of an intermediate node is recomputed by propagation
            return
        if key == "val" and body.meta.get("tensor_meta"):
            meta.tensor_meta(node)


def module(record: GraphRecord, tensors: TensorSink | None, *, where: str = "") -> GraphModule:
    """The live graph with real parameters, buffers and constants; `node.meta` has no fake values.

    Tensors whose bytes were not recorded are synthesised; their names are in `gm.meta["graphdbg"]["made_up"]`. Raises
    RefusedError for targets that are not on the allow-list, UnreadableError for an inconsistent record,
    EnvironmentLackError for what this torch or process lacks.
    """
    return Decoder(record, tensors, where or f"graph {record.id}").build(fake=False)


def fake_module(
    record: GraphRecord, tensors: TensorSink | None, *, where: str = ""
) -> tuple[GraphModule, list[Any], Any]:
    """Returns the module with fake values on every node, ready for Inductor's inner compile; the fake values of its
    placeholders (None where none was recorded); and their FakeTensorMode.

    Symbols keep their names, hints, ranges and guards; `gm.shape_env` and the mode's shape_env are the rebuilt
    ShapeEnv.
    """
    decoder = Decoder(record, tensors, where or f"graph {record.id}")
    gm = decoder.build(fake=True)
    gm.shape_env = decoder.symbols.env  # pyright: ignore
    places = gm.graph.find_nodes(op="placeholder")
    inputs = [next((_as_number(node.meta[key]) for key in VALUE_KEYS if key in node.meta), None) for node in places]
    return gm, inputs, decoder.values.mode


def _instead(record: GraphRecord) -> str:
    """The advice for a graph of Dynamo that is refused for its Python functions; empty for other graphs."""
    name, _, stage = record.id.partition("/")
    if record.stage not in BEFORE_AOT or stage.partition(".")[0] != record.stage:
        return ""
    behind = f"the graphs of {name} behind AOTAutograd (forward, backward, inference)"
    return f"{behind}, where the compile came to them, call no Python: replay one of them"


def _as_number(value: Any) -> Any:
    """A constant SymInt as an int; anything else as it is."""
    if isinstance(value, torch.SymInt) and cast(Any, value).node.is_constant():
        return int(value)
    return value


def _is_opaque(value: Value | None) -> bool:
    """Whether a value, or a part of it, has no saved form."""
    if isinstance(value, SequenceValue):
        return any(_is_opaque(item) for item in value.items)
    return isinstance(value, OpaqueValue)


def _module(root: torch.nn.Module, graph: Graph, where: str) -> GraphModule:
    """The module with FX's code for the graph, which is compiled and not run."""
    try:
        graph.lint()
        return GraphModule(root, graph)
    except (RuntimeError, SyntaxError, AttributeError, ValueError, TypeError, LookupError) as error:
        raise DamagedError(where, f"FX cannot build a module from it ({error_line(error)})") from error


def _install(root: torch.nn.Module, path: str, value: Any, where: str) -> None:
    """Puts a tensor or module at a dotted path, and creates plain modules for the path's prefixes."""
    parts = targets.check_attribute_path(path, where)
    owner = root
    for part in parts[:-1]:
        if not hasattr(owner, part):
            owner.add_module(part, torch.nn.Module())
        owner = getattr(owner, part)
        if not isinstance(owner, torch.nn.Module):
            raise DamagedError(where, f"the attribute {path!r} is inside a tensor")
    last, held = parts[-1], cast(Any, owner)
    if hasattr(owner, last) and not any(last in own for own in (held._modules, held._parameters, held._buffers)):
        raise NameRefusedError(where, f"the attribute {path!r} would replace a part of torch.nn.Module")
    if isinstance(value, torch.nn.Parameter):
        owner.register_parameter(last, value)
    elif isinstance(value, torch.Tensor):
        owner.register_buffer(last, value)
    else:
        owner.add_module(last, value)
