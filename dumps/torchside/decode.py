"""Rebuilds a live fx.GraphModule from a GraphRecord. Every name is checked before it reaches FX, which runs the code
that it prints.

Nothing of the graph is executed here. `build` returns a module with real tensors; with `fake` also fake values on every
node.

>>> gm, fake_inputs, mode = fake_module(record, saved.tensors, where="case/graph.json")
>>> fake_inputs[0].shape
torch.Size([16, 8])
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from functools import partial
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule
from torch.fx.node import map_aggregate

from .. import inert, names, syntax
from ..allowlist import TRITON_CALLS
from ..errors import (
    DamagedError,
    EnvironmentLackError,
    GraphdbgError,
    NameRefusedError,
    NotRegisteredError,
    RefusedError,
    TargetRefusedError,
)
from ..program.text import is_identifier
from ..schema import Arg, GraphBody, GraphRecord, NodeRecord, OpaqueValue, SequenceValue, Value
from ..tensors import TensorSink
from ..walk import contents
from ..wording import error_line
from . import definitions, leaf_modules, targets
from . import torch_private as t
from .encode import (
    CARRIED,
    CARRIED_DESCRIPTOR,
    CARRIED_META,
    CARRIED_VALUE,
    CARRY,
    GROUPS,
    HANDLED,
    KEPT,
    STACK_KEYS,
    VALUE_KEYS,
    FunctionName,
    described,
)
from .live_values import ArgumentReader, StorageReader, Symbols, ValueReader, is_handed_through, stand_in_traced
from .make_inputs import stand_in
from .triton_kernels import KernelReader

MAX_SUBGRAPH_DEPTH = 20
BEFORE_AOT = ("dynamo", "pre_grad")
"""Stages whose graphs may call Python functions."""


class Decoder:
    """Rebuilds one record. `where` names its file in error messages."""

    def __init__(self, record: GraphRecord, tensors: TensorSink | None, where: str) -> None:
        self.record = record
        self.where = where
        self.originals = inert.InertTexts()
        self.values = ValueReader(Symbols(record, where, self.originals))
        self.symbols = self.values.symbols
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
        gm.meta[CARRY] |= {name: getattr(record, name) for name in CARRIED} | {
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


_KEYS = ("SequenceKey", "MappingKey", "GetAttrKey", "ConvertIntKey", "CallMethodKey", "InnerTensorKey", "DivideByKey")
"""The kinds of path keys that lead to an unbacked symbol inside a value."""

_SIZE_METHODS = ("size", "stride", "storage_offset", "numel", "dim")

_MAX_LENGTH = 4_000
"""The most characters of the text of a descriptor."""


class MetaReader:
    """Restores the metadata of a rebuilt node; without `fake` only what needs no fake value."""

    def __init__(self, arguments: ArgumentReader, *, fake: bool) -> None:
        self.arguments = arguments
        self.fake = fake
        self.strings = arguments.strings
        self.texts = arguments.texts
        self._stacks: dict[int, str] = {}

    def node(self, node: torch.fx.Node, record: NodeRecord, where: str) -> None:
        """Restores `node.meta` from a record, except the value."""
        meta = node.meta
        if record.stack >= 0:
            meta["stack_trace"] = self._stack(record.stack, where)
        if record.seq_nr >= 0:
            meta["seq_nr"] = record.seq_nr
        if record.original_aten:
            try:
                meta["original_aten"] = targets.resolve(record.original_aten, where)
            except GraphdbgError:  # it only names kernels, so an op that is not registered here is no reason to refuse
                meta["graphdbg_original_aten"] = record.original_aten
        if record.from_node:
            meta.update(_from_node([self.texts(name) for name in record.from_node]))
        if record.module >= 0:
            key = STACK_KEYS[bool(record.meta.get("module_of") == "forward")]
            lines = [line.partition(": ") for line in self._stack(record.module, where).split("\n")]
            meta[key] = {str(index): (path, kind) for index, (path, _, kind) in enumerate(lines)}
        for key, value in record.meta.items():
            try:
                self._restore(meta, key, value, where)
            except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:
                why = f"its metadata {key!r} is malformed ({type(error).__name__}: {error})"
                raise DamagedError(where, why) from error

    def module(self, gm: torch.nn.Module, kept: dict[str, Arg], where: str) -> None:
        """Restores the metadata of a GraphModule."""
        for key, value in kept.items():
            if key in KEPT:
                gm.meta[key] = self.arguments.decode(value, where)  # pyright: ignore

    def tensor_meta(self, node: torch.fx.Node) -> None:
        """Sets meta["tensor_meta"], as tracing does for every node whose value is a single tensor."""
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            with t.suppress_guards(self.arguments.reader.symbols.env):
                node.meta["tensor_meta"] = t.tensor_metadata(value)

    def _restore(self, meta: dict[str, Any], key: str, value: Arg, where: str) -> None:
        if value is None:
            if key in KEPT or key in HANDLED:
                meta[key] = None
        elif not self.fake and _has_values(value):
            meta.setdefault(CARRIED_META, {})[key] = value
        elif key in ("source_fn_stack", "fwd_source_fn_stack"):
            pairs = [(str(name), str(kind)) for name, kind in _pairs(value, where)]
            meta[key] = [(self.texts(name), FunctionName(inert.name(kind), kind)) for name, kind in pairs]
        elif key == "output_stack_traces":
            meta[key] = [None if item is None else self._stack(item["string"], where) for item in value]
        elif key == "unbacked_bindings":
            meta[key] = self._bindings(value, where)
        elif key == "fwd_seq_nr" and isinstance(value, int):
            meta[key] = value
        elif key == "desc":
            texts = cast(list[Any], value if isinstance(value, list) else [value])
            descriptors = [_descriptor(text) if isinstance(text, str) else None for text in texts]
            if described(descriptors) == texts:
                meta[key] = descriptors if isinstance(value, list) else descriptors[0]
            else:
                meta[CARRIED_DESCRIPTOR] = value
        elif key == "eager_input_vals":  # matched with a node's arguments, so of the same list and dict types
            meta[key] = map_aggregate(self.arguments.decode(value, where), lambda leaf: leaf)
        elif key in KEPT:
            meta[key] = self.arguments.decode(value, where)

    def _bindings(self, value: Arg, where: str) -> dict[Any, Any]:
        kinds = {name: kind for name in _KEYS if (kind := t.optional(name)) is not None}
        paths: dict[Any, Any] = {}
        for name, keys in _pairs(value, where):
            symbol = self.arguments.reader.symbols.by_name.get(name)
            if symbol is None:
                raise DamagedError(where, f"it binds {name!r}, which is not a symbol of the graph")
            path: list[Any] = []
            for kind, item in _pairs(keys, where):
                if kind not in kinds:
                    raise DamagedError(where, f"it binds {name!r} through {kind!r}, which is not a known kind of path")
                decoded = self.arguments.decode(item, where)
                if isinstance(decoded, str) and not _is_harmless(kind, decoded):
                    why = f"it binds {name!r} through {kind} {decoded!r}, which a saved graph may not use"
                    raise RefusedError(where, why)
                path.append(kinds[kind]() if kind == "ConvertIntKey" else kinds[kind](decoded))
            paths[symbol] = tuple(path)
        return paths

    def _stack(self, index: int, where: str) -> str:
        """A text of several lines, made inert."""
        if index not in self._stacks:
            text = self._string(index, where)
            self._stacks[index] = self.texts.kept(inert.lines(text), text)
        return self._stacks[index]

    def _string(self, index: int, where: str) -> str:
        if not 0 <= index < len(self.strings):
            raise DamagedError(where, f"it refers to text {index} of {len(self.strings)}")
        return self.strings[index]


def _descriptor(text: str) -> Any:
    """The descriptor of a text, which is parsed, never evaluated: only descriptor classes exist. None when this torch
    has no such descriptor, or the text is none. Inductor and the partitioner look at their classes."""
    if len(text) > _MAX_LENGTH:
        return None
    try:
        return _built(syntax.expression(text))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _built(tree: ast.AST) -> Any:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, str, type(None))):
        return inert.text(tree.value) if isinstance(tree.value, str) else tree.value
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
        descriptor_class = _descriptor_classes().get(tree.func.id)
        if descriptor_class is not None and all(keyword.arg is not None for keyword in tree.keywords):
            return descriptor_class(**{str(keyword.arg): _built(keyword.value) for keyword in tree.keywords})
    raise ValueError("no descriptor")


@functools.cache
def _descriptor_classes() -> dict[str, Any]:
    """Name -> class of all descriptors that are plain dataclasses."""
    home: Any = t.optional("descriptors", object)
    bases = tuple(base for name in ("AOTInput", "AOTOutput") if (base := getattr(home, name, None)) is not None)
    return {
        name: kind
        for name, kind in cast(dict[str, Any], vars(home)).items()
        if isinstance(kind, type) and issubclass(kind, bases) and dataclasses.is_dataclass(kind)
    }


def _has_values(value: Arg) -> bool:
    """Whether encoded metadata holds fake values."""
    return any(True for _ in contents(value, "value"))


def _is_harmless(kind: str, name: str) -> bool:
    """Whether a path key is safe to follow on a value: the name is used in getattr, or called."""
    if kind == "CallMethodKey":
        return name in _SIZE_METHODS
    return kind in ("InnerTensorKey", "GetAttrKey", "MappingKey") and is_identifier(name) and "__" not in name


def _from_node(chain: list[str]) -> dict[str, Any]:
    """Builds meta["from_node"] from names, nearest first; NodeSource's constructor would need live nodes."""
    make = t.optional("NodeSource._from_dict")
    if make is None or not chain:
        return {}
    entry: dict[str, Any] = {}
    for name in reversed(chain):
        of_nothing = {"target": "", "graph_id": 0, "pass_name": "", "action": "create"}
        entry = {"name": name, **of_nothing, "from_node": [entry] if entry else []}
    return {"from_node": [make(entry)]}


def _pairs(value: Any, where: str) -> list[Any]:
    pairs = cast(list[Any], value) if isinstance(value, list) else [None]
    if not all(isinstance(item, list) and len(cast(list[Any], item)) == 2 for item in pairs):
        raise DamagedError(where, "its metadata is malformed")
    return pairs
