"""A record as a program that needs torch only: graph.py, and the pieces that other programs (repro.py) are made of.

Must not import torch, and writes nothing of a record but checked names and repr() into the program.

>>> print(forward_source(record))
class Graph(torch.nn.Module):
  def forward(self, x):
    relu = aten.relu.default(x)
    return (relu,)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from .emit_runtime import RUNTIME
from .errors import GraphdbgError, RefusedError
from .expr import symbols as symbols_of
from .hints import Numbers, concrete, numbers, scalar
from .index_bounds import bounds
from .kernel_text import CALLS, FUNCTIONAL, INTERPRETED, Definitions, call, definitions
from .python_text import Writer, identifier, is_identifier, target
from .schema import (
    Arg,
    ConstValue,
    GraphBody,
    GraphRecord,
    InputsRecord,
    ModuleRecord,
    NodeRecord,
    SequenceValue,
    StoredTensor,
    SymValue,
    TensorValue,
    Value,
)
from .sidecar import user_frame
from .torchside.allowlist import OP_HOMES

_WORDS = """self torch aten gzip math operator constant max min int float bool len abs round sum range slice complex getattr
    divmod pow print tuple list dict str type object super"""
_TAKEN = frozenset(_WORDS.split())
"""Names that the program needs for itself; a node of such a name gets an underscore."""
_CHECKPOINT = frozenset({"higher_order.tag_activation_checkpoint", "higher_order.wrap_activation_checkpoint"})
_WANT_GRAPHS = frozenset({"higher_order.autograd_function_apply"})
"""Higher-order ops that look at the FX graph of what they are given."""
_OWN_OPS = frozenset({"aten", "prims", "higher_order", "operator", "_operator", "math", "builtins", "torch", *OP_HOMES})
_PLAIN_PRIMS = frozenset(f"prims.{name}.default" for name in ("convert_element_type", "device_put", "iota", "view_of"))
"""Ops of `prims` that are registered by `import torch` alone."""
_ATEN = "torch.ops.aten."
_INDENT = "  "


def program(record: GraphRecord) -> str:
    """The text of graph.py. Raises RefusedError when the graph holds something that has no form in a program."""
    title = f"Graph {record.id} ({record.stage}), saved by graphdbg with torch {record.versions.get('torch', '?')}."
    how = "Runs eagerly: python graph.py. Inputs are those stored beside it, the others are made up."
    head = [f'"""{_one_line(title)}', "", how, '"""', ""]
    ambient = record.ambient
    settings = {"grad": _grad(record), "inference_mode": ambient.inference_mode, "autocast": dict(ambient.autocast)}
    if record.stage not in ("dynamo", "pre_grad"):
        settings["autocast"] = {}  # what autocast did is in the graph already
    kernels = _kernels(record)
    first = ["from __future__ import annotations", ""] if kernels.strings_for_types else []
    system = ["import os"] if kernels.source else []
    parts = [
        "\n".join(head), *first, "import gzip", "import json", "import math", "import operator", *system,
        "import pathlib", "import sys", "", "import torch", *[f"import {name}" for name in _modules(record)],
        *(["", INTERPRETED, *kernels.imports] if kernels.source else []), "",
        "aten = torch.ops.aten",
        f"LIBRARIES = {_libraries(record.graph)!r}", "", "", *([kernels.source, "", ""] if kernels.source else []),
        forward_source(record), "", "", inputs_source(record), "", constants_source(record), "",
        f"SETTINGS = {settings!r}", "", "", RUNTIME,
    ]  # fmt: skip
    return "\n".join(parts)


def _kernels(record: GraphRecord) -> Definitions:
    """The user's own Triton kernels, where the graph calls some."""
    return definitions(record.kernels, functional=any(FUNCTIONAL in targets for targets in _targets(record.graph)))


def _targets(body: GraphBody) -> Iterator[set[str]]:
    yield {node.target for node in body.nodes}
    for inner in body.subgraphs.values():
        yield from _targets(inner)


def forward_source(record: GraphRecord, name: str = "Graph") -> str:
    """The graph as a torch.nn.Module class, its subgraphs as classes before it.

    The program around it defines `aten = torch.ops.aten` and `constant(path)`, which returns the tensor that the graph holds
    under a dotted path; the paths of a subgraph begin with its own ("body_0.weight").
    """
    return "\n\n\n".join(_classes(record, record.graph, name, ""))


def inputs_source(record: GraphRecord, inputs: InputsRecord | None = None) -> str:
    """`INPUTS = {name: specification}` in placeholder order.

    A specification is a number, None, a list of specifications, or a dict: the fields of TensorValue with numbers for all
    symbols, and `bound` for an integer tensor that holds indices.
    """
    known = numbers(record, inputs)
    limits = bounds(record, known)
    seen = {item.name: item for item in inputs.inputs} if inputs is not None else {}
    lines: list[str] = []
    for node in record.graph.nodes:
        if node.op != "placeholder":
            continue
        item = seen.get(node.name)
        value = item.value if item is not None and item.value is not None else node.value
        specification = _specification(value, known, limits.get(node.name), f"input {node.name}")
        if item is not None and item.scalar is not None:
            specification = item.scalar
        lines.append(f"    {node.name!r}: {specification!r},\n")
    return f"INPUTS = {{\n{''.join(lines)}}}"


def constants_source(record: GraphRecord) -> str:
    """`CONSTANTS = {path: {"storage": hash, ...}}` for the tensors that the graph and its subgraphs hold."""
    lines = [
        f"    {path!r}: {_stored(stored, f'tensor {path}')!r},\n" for path, stored in _tensors(record.graph, "")
    ]
    return f"CONSTANTS = {{\n{''.join(lines)}}}"


def _grad(record: GraphRecord) -> bool:
    return record.ambient.grad and record.stage in ("dynamo", "pre_grad")


def _tensors(body: GraphBody, prefix: str) -> Iterator[tuple[str, StoredTensor]]:
    for path, stored in body.attrs.items():
        yield prefix + path, stored
    for path, module in body.modules.items():
        for name, stored in module.state.items():
            yield f"{prefix}{path}.{name}", stored
    for path, subgraph in body.subgraphs.items():
        yield from _tensors(subgraph, f"{prefix}{path}.")


def _stored(stored: StoredTensor, where: str) -> dict[str, Any]:
    return {**_short(concrete(stored.value, {}, where)), "storage_name": stored.storage, "parameter": stored.parameter}


def _short(value: TensorValue) -> dict[str, Any]:
    """A tensor's fields; left out is what the program assumes: the CPU, and the strides of a contiguous tensor."""
    found = cast("dict[str, Any]", msgspec.to_builtins(value))
    contiguous = [math.prod(int(n) for n in value.shape[i + 1 :]) for i in range(len(value.shape))]
    for name, assumed in (("device", "cpu"), ("stride", contiguous)):
        if found.get(name) == assumed:
            del found[name]
    del found["value_kind"]
    if "stride" not in found and value.stride != contiguous:
        found["stride"] = []
    return found


def _specification(value: Value | None, known: Numbers, bound: int | None, where: str) -> Any:
    if isinstance(value, TensorValue):
        found = _short(concrete(value, known, where))
        return {**found, "bound": bound} if bound is not None else found
    if isinstance(value, SymValue):
        return scalar(value, known)
    if isinstance(value, SequenceValue):
        return [_specification(item, known, None, where) for item in value.items]
    if isinstance(value, ConstValue):
        held = value.value
        return float(str(cast("dict[str, Any]", held)["float"])) if isinstance(held, dict) else held
    if value is None:
        return None
    raise RefusedError(where, f"a value of type {value.type} has no form in a program")


def _classes(record: GraphRecord, body: GraphBody, name: str, prefix: str) -> list[str]:
    """The class of a body, those of its subgraphs before it."""
    found: list[str] = []
    owners: dict[str, str] = {}
    for path, subgraph in body.subgraphs.items():
        owners[path] = f"{name}_{path.replace('.', '_')}"
        identifier(owners[path], f"subgraph {path}")
        found += _classes(record, subgraph, owners[path], f"{prefix}{path}.")
    return [*found, _Class(record, body, name, prefix, owners).text()]


class _Class:
    def __init__(
        self, record: GraphRecord, body: GraphBody, name: str, prefix: str, owners: Mapping[str, str]
    ) -> None:
        self.record = record
        self.body = body
        self.name = name
        self.prefix = prefix
        self.owners = owners
        self.members: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.kernels = _kernels(record).names if record.kernels else set[str]()
        self._last_line = ""
        self._places: dict[int, str] = {}

    def text(self) -> str:
        setup = self._setup()
        parameters: list[str] = []
        for node in self.body.nodes:
            self.names[node.name] = self._variable(node.name)
            if node.op == "placeholder":
                parameters.append(self.names[node.name])
        lines = [*self._symbol_lines()]
        for node in self.body.nodes:
            lines += self._node(node)
        text = [f"class {self.name}(torch.nn.Module):"]
        if setup:
            text += [f"{_INDENT}def __init__(self):", f"{_INDENT * 2}super().__init__()"]
            text += [*[_INDENT * 2 + line for line in setup], ""]
        text.append(f"{_INDENT}def forward({', '.join(['self', *parameters])}):")
        return "\n".join([*text, *[_INDENT * 2 + line for line in lines or ["pass"]]])

    def _setup(self) -> list[str]:
        """Lines of __init__: one member for every tensor, leaf module and subgraph."""
        lines: list[str] = []
        for path in self.body.attrs:
            lines.append(f"{self._member(path)} = constant({self.prefix + path!r})")
        wanted = any(node.target in _WANT_GRAPHS for node in self.body.nodes)
        for path, owner in self.owners.items():
            made = f"torch.fx.symbolic_trace({owner}())" if wanted else f"{owner}()"
            lines.append(f"{self._member(path)} = {made}")
        for path, module in self.body.modules.items():
            member = self._member(path)
            lines.append(f"{member} = {self._leaf(module, path)}")
            if module.state:
                states = ", ".join(f"{name!r}: constant({f'{self.prefix}{path}.{name}'!r})" for name in module.state)
                lines.append(f"{member}.load_state_dict({{{states}}}, strict=False)")
            lines.append(f"{member}.train({module.training})")
        return lines

    def _leaf(self, module: ModuleRecord, path: str) -> str:
        parts = module.type.split(".")
        if parts[:2] != ["torch", "nn"] or len(parts) != 3 or not is_identifier(parts[2]):
            raise RefusedError(f"module {path}", f"the class {module.type!r} has no form in a program")
        writer = Writer({}, where=f"module {path}")
        arguments = [f"{identifier(name, path)}={writer.argument(value)}" for name, value in module.arguments.items()]
        return f"{module.type}({', '.join(arguments)})"

    def _member(self, path: str) -> str:
        """`self.name` for a dotted path; dots become underscores, and a name is used once."""
        wanted = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in path)
        name = f"m_{wanted}"
        while f"self.{name}" in self.members.values():
            name += "_"
        self.members[path] = f"self.{name}"
        return self.members[path]

    def _variable(self, name: str) -> str:
        identifier(name, f"node {name[:60]}")
        if name in self.names:
            raise RefusedError(f"node {name}", "a node of that name exists already")
        return f"{name}_" if name in _TAKEN or name in self.kernels else name

    def _symbol_lines(self) -> list[str]:
        """`s0 = x.size(0)` for every symbol that an argument mentions."""
        wanted: set[str] = set()
        for node in self.body.nodes:
            _symbols_in([*node.args, *node.kwargs.values()], wanted)
        lines: list[str] = []
        homes = _homes(self.body)
        for symbol in sorted(wanted):
            hint = next((item.hint for item in self.record.symbols if item.name == symbol), None)
            if symbol in homes:
                home, dim = homes[symbol]
                text = self.names[home] if dim is None else f"{self.names[home]}.size({dim})"
            elif hint is not None:
                text = repr(hint)
            else:
                continue
            variable = symbol if symbol not in self.names else f"{symbol}_size"
            self.symbols[symbol] = identifier(variable, f"symbol {symbol}")
            lines.append(f"{variable} = {text}")
        return lines

    def _node(self, node: NodeRecord) -> list[str]:
        where = f"node {node.name}"
        name = self.names[node.name]
        writer = Writer(self.names, symbols=self.symbols, tensors=self.members, where=where)
        if node.op == "placeholder":
            return []
        if node.op == "output":
            return [f"return {writer.argument(node.args[0]) if node.args else None}"]
        if node.op == "get_attr":
            if node.target not in self.members:
                raise RefusedError(where, f"the graph holds nothing under {node.target[:60]!r}")
            return [f"{name} = {self.members[node.target]}"]
        if node.target in CALLS:
            return [*self._comment(node), f"{name} = {call(node, self.record.kernels, writer, where)}"]
        args = [writer.argument(argument) for argument in node.args]
        kwargs = [f"{identifier(key, where)}={writer.argument(value)}" for key, value in node.kwargs.items()]
        return [*self._comment(node), f"{name} = {self._call(node, args, kwargs, where)}"]

    def _call(self, node: NodeRecord, args: list[str], kwargs: list[str], where: str) -> str:
        arguments = ", ".join([*args, *kwargs])
        if node.op == "call_method":
            return f"{args[0]}.{identifier(node.target, where)}({', '.join([*args[1:], *kwargs])})"
        if node.op == "call_module":
            if node.target not in self.members:
                raise RefusedError(where, f"the graph holds nothing under {node.target[:60]!r}")
            return f"{self.members[node.target]}({arguments})"
        if node.target in _CHECKPOINT:
            return f"torch.utils.checkpoint.checkpoint({arguments})"
        if node.target in ("operator.getitem", "_operator.getitem") and len(args) == 2:
            return f"{args[0]}[{args[1]}]"
        return f"{target(node.target, where).replace(_ATEN, 'aten.', 1)}({arguments})"

    def _comment(self, node: NodeRecord) -> list[str]:
        if not 0 <= node.stack < len(self.record.strings):
            return []
        if node.stack not in self._places:
            self._places[node.stack] = _place(self.record.strings[node.stack])
        line = self._places[node.stack]
        if not line or line == self._last_line:
            return []
        self._last_line = line
        return [f"# {line}"]


def _place(stack: str) -> str:
    """The user's line of a stack, "model.py:12 y = self.fc(x)"; empty when there is none."""
    return _one_line(" ".join(user_frame(stack)).strip())[:120]


def _homes(body: GraphBody) -> dict[str, tuple[str, int | None]]:
    """Symbol -> the input that is it (None) or has it as a size (the dimension)."""
    homes: dict[str, tuple[str, int | None]] = {}
    for node in body.nodes:
        if node.op == "placeholder" and isinstance(node.value, SymValue):
            homes[node.value.expr] = (node.name, None)
        elif node.op == "placeholder" and isinstance(node.value, TensorValue):
            for dim, size in enumerate(node.value.shape):
                if isinstance(size, str):
                    homes.setdefault(size, (node.name, dim))
    return homes


def _symbols_in(arg: Arg, found: set[str]) -> None:
    if isinstance(arg, list):
        for item in cast("list[Arg]", arg):
            _symbols_in(item, found)
    elif isinstance(arg, dict):
        for tag, body in cast("dict[str, Any]", arg).items():
            if tag == "sym":
                try:
                    found |= symbols_of(str(body[1]))
                except GraphdbgError:
                    continue
            else:
                _symbols_in(body, found)


def _modules(record: GraphRecord) -> list[str]:
    """Modules beside torch that the targets live in."""
    found: set[str] = set()

    def walk(body: GraphBody) -> None:
        for node in body.nodes:
            if node.op == "call_function" and node.target.startswith("torch."):
                home = node.target.rpartition(".")[0]
                if home not in ("torch", "torch.Tensor") and not home.startswith("torch._C"):
                    found.add(home)
            if node.target in _CHECKPOINT:
                found.add("torch.utils.checkpoint")
            root = node.target.partition(".")[0] if node.op == "call_function" else ""
            if root == "higher_order" and node.target not in CALLS:
                found.add("torch._higher_order_ops")
            elif node.target not in _PLAIN_PRIMS:
                found.update(OP_HOMES.get(root, ())[-1:])
        for subgraph in body.subgraphs.values():
            walk(subgraph)

    walk(record.graph)
    return sorted(name for name in found if all(is_identifier(part) for part in name.split(".")))


def _libraries(body: GraphBody) -> list[str]:
    """Ops of libraries that the program cannot import by itself, as dotted names."""
    found = {
        ".".join(node.target.split(".")[:2])
        for node in body.nodes
        if node.op == "call_function" and node.target.split(".")[0] not in _OWN_OPS
    }
    for subgraph in body.subgraphs.values():
        found.update(_libraries(subgraph))
    return sorted(found)


def _one_line(text: str) -> str:
    """Text for a comment or docstring: no line breaks, quotes or backslashes that could end it."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("\\", "/").replace('"""', "'''")
