"""A graph record as one plain Python function of torch calls, for a repro that a stranger reads and runs.

`dumps.emit` writes a graph as a module class; this is the shorter form: constants are parameters, subgraphs inner functions.
Must not import torch, and nothing of a record reaches the program but what `dumps.python_text` has checked: it is executed.

>>> program_of(record).source
'def graph(x):\\n    relu = torch.ops.aten.relu.default(x)\\n    return (relu,)'
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ...dumps.errors import GraphdbgError
from ...dumps.expr import symbols as symbols_of
from ...dumps.kernel_text import CALLS, FUNCTIONAL, Definitions, call, definitions
from ...dumps.python_text import Writer, identifier, is_identifier, target
from ...dumps.schema import Arg, GraphBody, GraphRecord, NodeRecord, StoredTensor, SymValue, TensorValue
from ...dumps.torchside.allowlist import DENIED_METHODS, DUNDER_METHODS, OP_HOMES
from . import higher_order

_WIDTH = 120
_DUNDER_OPS = frozenset(f"__{i}{name}__" for i in ("", "i", "r") for name in ("and", "or", "xor", "lshift", "rshift"))
"""Operators of aten that are named so."""
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and_": "&",
    "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_WORDS = """torch sys math operator subprocess traceback resource time graph compiled make_inputs run f expected actual
    bf16 f16 f32 f8 l O I resident scan print range slice float int max min len abs sum round bool complex getattr divmod pow
    tuple list"""
_SETITEM = ("operator.setitem", "_operator.setitem")
_WITH_TORCH = frozenset({"torch._inductor.inductor_prims"})
"""Modules of operators that torch.compile imports by itself."""
_TAKEN = frozenset(_WORDS.split())
"""Names that the program needs for itself; a node of such a name gets an underscore."""


class CannotExpressError(GraphdbgError):
    """The graph holds something that a plain torch program has no words for; the text names it."""


@dataclass
class Program:
    """Source of a function `graph`, the names of its parameters in order (constants last), modules to import beside torch, and
    the user's own Triton kernels that it calls."""

    source: str
    parameters: list[str]
    constants: dict[str, str] = field(default_factory=dict[str, str])
    imports: set[str] = field(default_factory=set[str])
    kernels: Definitions = field(default_factory=Definitions)


def program_of(record: GraphRecord, name: str = "graph") -> Program:
    """Renders the record's graph as `def graph(inputs..., constants...)`.

    `constants` maps a parameter to the name of its tensor in the record. Raises CannotExpressError or RefusedError.
    """
    function = Function(record)
    source = function.text(record.graph, name)
    source = "\n\n\n".join([*function.above.values(), source])
    return Program(source, function.parameters, function.constants, _imports(source) | function.imports, function.kernels)


def widened(program: Program) -> tuple[str, str | None]:
    """The source with the floating dtypes that it names as parameters, and the arguments that make them float64.

    `def graph(x, f16=torch.float16)` is one function for both: called plainly it casts as recorded, with `f16=torch.float64` it
    computes all in float64. (source, None) where functions beside the graph name such a dtype, which its parameters do not reach.
    """
    above, found, graph = program.source.rpartition("def graph(")
    if not found or _FLOAT.search(above) or _CAST.search(above):
        return program.source, None
    used: dict[str, str] = {}

    def named(dtype: str) -> str:
        used[_SHORT.get(dtype, "f8")] = dtype
        return _SHORT.get(dtype, "f8")

    if len({one[1] for one in _FLOAT.finditer(graph) if one[1] not in _SHORT}) > 1:
        return program.source, None
    graph = _CAST.sub(lambda one: f".to({named(_METHODS[one[1]])})", graph)
    graph = _FLOAT.sub(lambda one: named(one[1]), graph)
    parameters = ", ".join(f"{short}=torch.{dtype}" for short, dtype in sorted(used.items()))
    line, colon, rest = graph.partition("):\n")
    head = f"def graph({line.rstrip()}{'' if line.rstrip().endswith(',') or not line else ','} {parameters}):\n"
    whole = head if "\n" in line or len(head) <= _WIDTH else "\n".join(broken(head.rstrip())) + "\n"
    return above + whole + rest, "".join(f", {short}=torch.float64" for short in sorted(used)) if colon else None


_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_METHODS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
_FLOAT = re.compile(r"\btorch\.(bfloat16|float16|float32|float8_\w+)\b")
_CAST = re.compile(r"\.(float|half|bfloat16)\(\)")


def broken(line: str, width: int = _WIDTH) -> list[str]:
    """A line of a program as several where it is too long: broken behind commas that lie in brackets and in no text."""
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    pieces: list[str] = []
    start, depth, quote, skip = 0, 0, "", False
    for at, letter in enumerate(line):
        if quote:
            skip, quote = letter == "\\" and not skip, "" if letter == quote and not skip else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == "," and depth and line[at + 1 : at + 2] == " ":
            pieces, start = [*pieces, line[start : at + 1]], at + 2
    rows = [""]
    for piece in [*pieces, line[start:]]:
        joined = f"{rows[-1]} {piece}" if rows[-1] else piece
        if len(joined) > width and rows[-1]:
            rows.append(f"{indent}    {piece}")
        else:
            rows[-1] = joined
    return rows


def quoted(value: bool | float | str | None) -> str:
    """repr() with the double quotes that formatters want, where the text needs no escapes."""
    text = repr(value)
    if isinstance(value, str) and text[1:-1] == value and '"' not in value:
        return f'"{value}"'
    return text


def dotted(text: str, what: str) -> str:
    """The text itself when it is a dotted name of plain identifiers without dunders; else CannotExpressError."""
    parts = text.split(".")
    if parts[0] == "aten" and len(parts) == 3 and parts[1] in _DUNDER_OPS:
        return text
    if not all(is_identifier(part) and not part.startswith("__") for part in parts):
        raise CannotExpressError(f"{what} {text!r} is not a dotted name")
    return text


class _Arguments(Writer):
    """The room's own taste: double quotes, sizes as tuples; long texts from the record's table."""

    strings: list[str]

    def argument(self, arg: Arg) -> str:
        return quoted(arg) if isinstance(arg, str) else super().argument(arg)

    def _tagged(self, tag: str, body: Any) -> str:
        if tag == "size":
            return super()._tagged("tuple", body)
        if tag == "string":
            return quoted(self.strings[int(body)])
        text = super()._tagged(tag, body)
        return text.replace("'", '"') if tag in ("device", "float") else text


class Function:
    """Renders one graph; gathers parameters and constants on the way."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.parameters: list[str] = []
        self.constants: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.above: dict[str, str] = {}
        """Functions above the graph: helpers, and regions that are compiled once."""
        self.imports: set[str] = set()
        self.path: list[str] = []
        self.kernels = definitions(record.kernels, functional=_functional(record.graph)) if record.kernels else Definitions()

    def text(self, body: GraphBody, name: str, depth: int = 0, *, copies: bool = False) -> str:
        """One `def`, its subgraphs as inner functions before their first use. `copies`: it may not return what it is given."""
        outer, self.names = self.names, dict(self.names)
        regions, without_aliases = higher_order.regions(body), higher_order.without_aliases(body)
        parameters: list[str] = []
        lines: list[str] = []
        used = set(_used(body))
        for node in body.nodes:
            if node.op == "placeholder":
                parameters.append(self._name(node))
        lines += [
            f"{self.names[one]} = {self.names[one]}.clone()" for one in sorted(higher_order.given_back(body)) if copies
        ]
        if depth == 0:
            lines += self._symbols(body)
        for node in body.nodes:
            if node.op == "get_attr":
                lines += self._attribute(body, node, depth, regions.get(node.name, ""), node.name in without_aliases)
            elif node.op == "output":
                lines.append(f"return {self._arguments(node).argument(node.args[0]) if node.args else None}")
            elif node.op != "placeholder":
                called = self._call(node)
                if node.target in _SETITEM and len(node.args) == 3 and node.name not in used:
                    writer = self._arguments(node)
                    base, index, value = (writer.argument(arg) for arg in node.args)
                    lines.append(f"{base}[{_index(node.args[1], index)}] = {value}")
                    continue
                lines.append(f"{self._name(node)} = {called}" if node.name in used else called)
        if depth == 0:
            self.parameters = parameters
            parameters = [*parameters, *self.constants]
        self.names = outer
        return "\n".join([*_header(name, parameters), *(row for line in lines for row in broken(f"    {line}"))])

    def _name(self, node: NodeRecord) -> str:
        name = identifier(node.name, f"node {node.name[:60]}")
        taken = name in _TAKEN or name in self.symbols.values() or name in self.kernels.names
        self.names[node.name] = f"{name}_" if taken else name
        return self.names[node.name]

    def _attribute(self, body: GraphBody, node: NodeRecord, depth: int, region: str, copies: bool) -> list[str]:
        own = self._name(node)
        if node.target in body.subgraphs:
            self.path.append(node.target)
            try:
                if region:
                    return self._region(body.subgraphs[node.target], node, identifier(region, "a region"), depth)
                return self.text(body.subgraphs[node.target], own, depth + 1, copies=copies).splitlines()
            finally:
                self.path.pop()
        if node.target not in body.attrs:
            raise CannotExpressError(f"the attribute {node.target!r} is not stored")
        if own in self.constants:  # the same name in two graphs
            own = self.names[node.name] = f"{own}_{len(self.constants)}"
        self.constants[own] = ".".join([*self.path, node.target])
        return []

    def _region(self, body: GraphBody, node: NodeRecord, region: str, depth: int) -> list[str]:
        """A region stands above the graph, once for all its calls."""
        region = self.names[node.name] = f"region_{region}"  # Dynamo gives "subgraph_0" itself
        if region not in self.above:
            before, names, self.names = len(self.constants), self.names, {}
            text = self.text(body, region, depth + 1)
            self.names = names
            if len(self.constants) != before:
                raise CannotExpressError(f"the compiled region {region!r} holds a constant, which has no plain form")
            self.above[region] = (
                text if region.startswith("region_autograd") else f"@torch.compiler.nested_compile_region\n{text}"
            )
        return []

    def _arguments(self, node: NodeRecord) -> _Arguments:
        writer = _Arguments(self.names, symbols=self.symbols, where=f"node {node.name}")
        writer.strings = self.record.strings
        return writer

    def _call(self, node: NodeRecord) -> str:
        writer, where = self._arguments(node), f"node {node.name}"
        if node.target in CALLS:
            return call(node, self.record.kernels, writer, where)
        args = [writer.argument(arg) for arg in node.args]
        named = [f"{identifier(key, where)}={writer.argument(arg)}" for key, arg in node.kwargs.items()]
        if node.op == "call_method":
            return f"{args[0]}.{_method(node.target, where)}({', '.join(args[1:] + named)})"
        if node.op == "call_module":
            raise CannotExpressError(
                f"node {node.name!r} calls the module {node.target!r}, which has no plain form yet"
            )
        other = higher_order.rewritten(node.target, args, named)
        if other is not None:
            self.imports |= {other.module} if other.module else set()
            if other.helper:
                self.above.setdefault(other.text.partition("(")[0], other.helper)
            return other.text
        if node.op == "call_function":
            self.imports |= set(OP_HOMES.get(node.target.partition(".")[0], ())[-1:]) - _WITH_TORCH
        root, _, last = node.target.rpartition(".")
        if root in ("operator", "_operator") and len(args) == 2 and not named:
            if last == "getitem":
                return f"{args[0]}[{_index(node.args[1], args[1])}]"
            if last in _INFIX:
                return f"{_operand(args[0])} {_INFIX[last]} {_operand(args[1])}"
        plain = len(args) == 2 and not named and isinstance(node.args[1], str) and is_identifier(node.args[1])
        if node.target == "builtins.getattr" and plain and not str(node.args[1]).startswith("_"):
            return f"{_operand(args[0])}.{node.args[1]}"
        return f"{target(dotted(node.target, 'the target'), where)}({', '.join(args + named)})"

    def _symbols(self, body: GraphBody) -> list[str]:
        """`s0 = x.size(0)` for each symbol that an argument mentions, unless a parameter is named after it."""
        homes = symbol_homes(body)
        lines: list[str] = []
        for symbol in sorted(set(_mentioned(body))):
            if symbol not in homes:
                raise CannotExpressError(f"the symbol {symbol!r} is the size of no input")
            home, dim = homes[symbol]
            own = self.names[home]
            if dim is None and own == symbol:
                self.symbols[symbol] = own
                continue
            self.symbols[symbol] = identifier(
                symbol if symbol not in self.names.values() else f"{symbol}_size", "a symbol"
            )
            lines.append(f"{self.symbols[symbol]} = {own}" + ("" if dim is None else f".size({dim})"))
        return lines


def _functional(body: GraphBody) -> bool:
    """Whether a kernel is called that leaves its arguments as they are."""
    return any(node.target == FUNCTIONAL for node in body.nodes) or any(map(_functional, body.subgraphs.values()))


def _method(name: str, where: str) -> str:
    """The name of a Tensor method that a saved graph may call."""
    if name in DENIED_METHODS or (name.startswith("_") and name not in DUNDER_METHODS):
        raise CannotExpressError(f"{where} calls the method {name[:60]!r}, which a repro may not")
    return identifier(name, where)


def held(body: GraphBody, path: str) -> StoredTensor:
    """The tensor of a constant: its name, after the names of the subgraphs that it lies in."""
    if path in body.attrs:
        return body.attrs[path]
    for name, inner in body.subgraphs.items():
        if path.startswith(f"{name}."):
            return held(inner, path.removeprefix(f"{name}."))
    raise CannotExpressError(f"the attribute {path!r} is not stored")


def symbol_homes(body: GraphBody) -> Mapping[str, tuple[str, int | None]]:
    """For each symbol the first input that is it (None) or has it as a dimension (its index)."""
    homes: dict[str, tuple[str, int | None]] = {}
    for node in body.nodes:
        if node.op != "placeholder":
            continue
        if isinstance(node.value, SymValue):
            homes.setdefault(node.value.expr, (node.name, None))
        elif isinstance(node.value, TensorValue):
            for index, dim in enumerate(node.value.shape):
                homes.setdefault(str(dim), (node.name, index))
    return homes


def _tagged(arg: Arg) -> Iterator[tuple[str, Any]]:
    """All (tag, content) of an encoded argument, nested ones too."""
    if isinstance(arg, list):
        for item in cast("list[Arg]", arg):
            yield from _tagged(item)
    elif isinstance(arg, dict):
        for tag, content in cast("dict[str, Any]", arg).items():
            yield tag, content
            yield from _tagged(content)


def _used(body: GraphBody) -> Iterator[str]:
    """The names of nodes that are an argument of another."""
    for node in body.nodes:
        yield from (content for tag, content in _tagged([node.args, list(node.kwargs.values())]) if tag == "node")


def _mentioned(body: GraphBody) -> Iterator[str]:
    """The symbols in arguments, those of subgraphs too."""
    for node in body.nodes:
        for tag, content in _tagged([node.args, list(node.kwargs.values())]):
            if tag == "sym":
                yield from symbols_of(str(content[1]))
    for subgraph in body.subgraphs.values():
        yield from _mentioned(subgraph)


def _header(name: str, parameters: list[str]) -> list[str]:
    """The `def` line, broken where it is long."""
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= _WIDTH:
        return [line]
    rows = textwrap.wrap(", ".join(parameters) + ",", _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return [f"def {name}(", *(f"    {row}" for row in rows), "):"]


def _index(arg: Arg, text: str) -> str:
    """A tuple index without its parentheses, where it has any items."""
    return text[1:-1] if isinstance(arg, dict) and cast("dict[str, Any]", arg).get("tuple") else text


def _operand(text: str) -> str:
    """An operand in parentheses unless it is one word or has some."""
    return text if re.match(r"[\w.]+\Z|\([^()]*\)\Z", text) else f"({text})"


def _imports(source: str) -> set[str]:
    """Modules of torch that `import torch` leaves out."""
    return {"torch.fft"} if "torch.fft." in source else set()
