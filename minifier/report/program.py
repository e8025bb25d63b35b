"""A graph record as a plain Python function of torch calls, for a repro that needs nothing but torch.

It must not import torch, and must not let a string of the record reach the program unless it is an identifier, a dotted name
under a known root, or goes through repr(): the program is executed. What has no plain form raises CannotExpressError.

>>> program_of(record).source
'def graph(x):\\n    relu = torch.ops.aten.relu.default(x)\\n    return (relu,)'
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ...dumps.errors import GraphdbgError
from ...dumps.schema import Arg, GraphBody, GraphRecord, NodeRecord, SymValue, TensorValue

_WIDTH = 120
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z", re.ASCII)
_EXPRESSION = re.compile(r"[\w\s+*/%().,<>=!&|~-]*\Z", re.ASCII)
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and_": "&",
    "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_BUILTINS = frozenset({"getattr", "max", "min", "int", "float", "bool", "len", "sum", "abs", "round", "tuple", "list"})
_SYMBOL_FUNCTIONS = {
    "FloorDiv": "//",
    "CleanDiv": "//",
    "PythonMod": "%",
    "Mod": "%",
    "IntTrueDiv": "/",
    "PowByNatural": "**",
}


class CannotExpressError(GraphdbgError):
    """The graph holds something that a plain torch program has no words for; the text names it."""


@dataclass
class Program:
    """Source of a function `graph`, the names of its parameters in order (constants last), and modules to import beside torch."""

    source: str
    parameters: list[str]
    constants: list[str] = field(default_factory=list[str])
    imports: set[str] = field(default_factory=set[str])


def program_of(record: GraphRecord, name: str = "graph") -> Program:
    """Renders the record's graph as `def graph(inputs..., constants...)`; raises CannotExpressError."""
    writer = _Writer(record)
    source = writer.function(record.graph, name)
    return Program(source, writer.parameters, writer.constants, writer.imports)


def identifier(text: str, what: str) -> str:
    """The text itself when it is a plain identifier that hides nothing the program uses; else CannotExpressError."""
    if not text.isidentifier() or not text.isascii() or keyword.iskeyword(text) or text.startswith("__"):
        raise CannotExpressError(f"{what} {text!r} is not a plain identifier")
    return text


def dotted(text: str, what: str) -> str:
    """The text itself when it is a dotted name of plain identifiers without dunders; else CannotExpressError."""
    if not _DOTTED.match(text) or any(keyword.iskeyword(part) or part.startswith("__") for part in text.split(".")):
        raise CannotExpressError(f"{what} {text!r} is not a dotted name")
    return text


def quoted(value: bool | float | str | None) -> str:
    """repr() with the double quotes that formatters want, where the text needs no escapes."""
    text = repr(value)
    if isinstance(value, str) and text[1:-1] == value and '"' not in value:
        return f'"{value}"'
    return text


class _Writer:
    """Renders one record; gathers parameters, constants and imports on the way."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.parameters: list[str] = []
        self.constants: list[str] = []
        self.imports: set[str] = set()
        self.names: dict[str, str] = {}

    def function(self, body: GraphBody, name: str, depth: int = 0) -> str:
        """One `def`, its subgraphs as nested functions first."""
        outer, self.names = self.names, dict(self.names)
        parameters: list[str] = []
        lines: list[str] = []
        uses = _uses(body)
        for node in body.nodes:
            own = self.names[node.name] = _safe(identifier(node.name, "the node name"))
            if node.op == "placeholder":
                parameters.append(own)
            elif node.op == "get_attr":
                lines += self._attribute(body, node, parameters, depth)
            elif node.op == "output":
                lines.append(f"return {self.value(node.args[0]) if node.args else None}")
            else:
                target = "_" if not uses.get(node.name) else own
                lines.append(f"{target} = {self._call(node)}" if target != "_" else self._call(node))
        if depth == 0:
            self.parameters = [p for p in parameters if p not in self.constants]
            parameters = self.parameters + self.constants
            lines = [*self._symbols(body, lines), *lines]
        self.names = outer
        return _header(name, parameters) + "\n" + "\n".join(_indent(line) for line in lines)

    def _attribute(self, body: GraphBody, node: NodeRecord, parameters: list[str], depth: int) -> list[str]:
        own = self.names[node.name]
        if node.target in body.subgraphs:
            return self.function(body.subgraphs[node.target], own, depth + 1).splitlines()
        if node.target in body.attrs:
            if depth:
                raise CannotExpressError(f"the constant {node.target!r} of a nested graph has no plain form yet")
            self.constants.append(own)
            parameters.append(own)
            return []
        raise CannotExpressError(f"the attribute {node.target!r} is not stored")

    def _call(self, node: NodeRecord) -> str:
        args = [self.value(arg) for arg in node.args]
        named = [f"{identifier(key, 'the argument name')}={self.value(arg)}" for key, arg in node.kwargs.items()]
        if node.op == "call_method":
            method = identifier(node.target, "the method name")
            return f"{args[0]}.{method}({', '.join(args[1:] + named)})"
        if node.op == "call_module":
            raise CannotExpressError(f"node {node.name!r} calls the module {node.target!r}, which has no plain form")
        root, _, last = node.target.rpartition(".")
        if root in ("operator", "_operator") and not named:
            if last == "getitem":
                return f"{args[0]}[{_index(node.args[1], args[1])}]"
            if last in _INFIX and len(args) == 2:
                return f"{_operand(args[0])} {_INFIX[last]} {_operand(args[1])}"
        return f"{self.target(node.target)}({', '.join(args + named)})"

    def target(self, text: str) -> str:
        """The Python name of a target string."""
        name = dotted(text, "the target")
        root, _, rest = name.partition(".")
        if root == "torch":
            self.imports.add(_module_of(name))
            return name
        if root in ("operator", "_operator", "math"):
            module = "math" if root == "math" else "operator"
            self.imports.add(module)
            return f"{module}.{rest}"
        if root == "builtins":
            if rest not in _BUILTINS:
                raise CannotExpressError(f"the target {text!r} is not allowed in a repro")
            return rest
        return f"torch.ops.{name}"

    def value(self, arg: Arg) -> str:
        """An encoded argument as an expression."""
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return quoted(arg)
        if isinstance(arg, list):
            return f"[{', '.join(self.value(item) for item in cast('list[Arg]', arg))}]"
        ((tag, body),) = cast("dict[str, Any]", arg).items()
        return self._tagged(tag, body)

    def _tagged(self, tag: str, body: Any) -> str:
        if tag == "node":
            return self.names[body]
        if tag in ("tuple", "size"):
            items = [self.value(item) for item in body]
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
        if tag == "dict":
            return "{" + ", ".join(f"{self.value(key)}: {self.value(item)}" for key, item in body) + "}"
        if tag in ("slice", "range"):
            return f"{tag}({', '.join(self.value(item) for item in body)})"
        if tag == "float":
            return f'float("{body}")'
        if tag == "complex":
            return f"complex({self.value(body[0])}, {self.value(body[1])})"
        if tag in ("dtype", "layout", "memory_format", "qscheme"):
            return f"torch.{identifier(str(body).removeprefix('torch.'), f'the {tag}')}"
        if tag == "device":
            return f"torch.device({quoted(str(body))})"
        if tag == "sym":
            return self.expression(str(body[1]))
        if tag == "function":
            return self.target(body)
        if tag == "ellipsis":
            return "..."
        if tag == "string":
            return quoted(self.record.strings[int(body)])
        raise CannotExpressError(f"an argument of kind {tag!r} ({str(body)[:60]}) has no plain form")

    def expression(self, text: str) -> str:
        """A symbol expression as Python over the symbols that the function binds at its start."""
        if not _EXPRESSION.match(text):
            raise CannotExpressError(f"the size expression {text!r} has no plain form yet")
        for function, sign in _SYMBOL_FUNCTIONS.items():
            text = re.sub(rf"\b{function}\(([^(),]+), ([^(),]+)\)", rf"((\1) {sign} (\2))", text)
        for function in set(re.findall(r"\b([A-Za-z_]\w*)\(", text)):
            if function not in ("Max", "Min"):
                raise CannotExpressError(
                    f"the size expression {text!r} calls {function!r}, which has no plain form yet"
                )
        return re.sub(r"\bM(ax|in)\(", lambda match: f"m{match[1]}(", text)

    def _symbols(self, body: GraphBody, lines: list[str]) -> list[str]:
        """`s0 = x.size(0)` for each symbol that the lines mention and no parameter is named after."""
        text = "\n".join(lines)
        bound = symbol_homes(body)
        out: list[str] = []
        for symbol in [symbol.name for symbol in self.record.symbols]:
            if not re.search(rf"\b{re.escape(symbol)}\b", text) or symbol in self.names.values():
                continue
            if symbol not in bound:
                raise CannotExpressError(f"the symbol {symbol!r} is the size of no input")
            node, dim = bound[symbol]
            out.append(f"{symbol} = {self.names[node]}" + ("" if dim is None else f".size({dim})"))
        return out


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


def _header(name: str, parameters: list[str]) -> str:
    """The `def` line, broken where it is long."""
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= _WIDTH:
        return line
    rows = textwrap.wrap(", ".join(parameters) + ",", _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"def {name}(", *(f"    {row}" for row in rows), "):"])


def _uses(body: GraphBody) -> dict[str, int]:
    """How often each node is used, found in the encoded arguments."""
    uses: dict[str, int] = {}

    def walk(arg: Arg) -> None:
        if isinstance(arg, list):
            for item in cast("list[Arg]", arg):
                walk(item)
        elif isinstance(arg, dict):
            ((tag, content),) = cast("dict[str, Any]", arg).items()
            if tag == "node":
                uses[content] = uses.get(content, 0) + 1
            else:
                walk(content)

    for node in body.nodes:
        walk(node.args)
        for arg in node.kwargs.values():
            walk(arg)
    return uses


def _index(arg: Arg, text: str) -> str:
    """A tuple index without its parentheses, where it has any items."""
    return text[1:-1] if isinstance(arg, dict) and cast("dict[str, Any]", arg).get("tuple") else text


def _operand(text: str) -> str:
    """An operand in parentheses unless it is one word."""
    return text if re.match(r"[\w.]+\Z", text) else f"({text})"


def _module_of(name: str) -> str:
    """The module to import for a torch function: `torch` knows all of its public submodules."""
    return "torch._C" if name.startswith("torch._C.") else "torch"


def _safe(name: str) -> str:
    """A parameter or variable name that hides no module of the program."""
    return (
        f"{name}_"
        if name in ("torch", "sys", "math", "operator", "graph", "print", "range", "slice", "float", *_BUILTINS)
        else name
    )


def _indent(line: str) -> str:
    return f"    {line}" if line else line
