"""The common part of all styles of the printer: names that may stand in a program, literals, arguments and nodes of a
record, long lines.

Must not import torch. The text will be executed, so of a record only checked identifiers, dotted names and repr() reach
it. A style defines how a statement, a call, and the objects of a graph are written (`module`, `function`, `plain`).

>>> quoted("a"), indented(["x = 1"]), broken("f(aaaa, bbbb)", 9)
('"a"', ['    x = 1'], ['f(aaaa,', '    bbbb)'])
>>> Writer({"x": "x"}).argument({"tuple": [{"node": "x"}, {"dtype": "float32"}]})
'(x, torch.float32)'
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from .. import expr as expressions
from .. import syntax
from ..allowlist import BUILTINS, TRITON_CALLS
from ..arguments import KINDS
from ..errors import GraphdbgError, NameRefusedError, RefusedError, TargetRefusedError
from ..schema import Arg, GraphBody, GraphRecord, NodeRecord
from ..walk import nodes
from . import kernels
from .case import symbol_homes

_UTILS = "torch._dynamo.utils"
MODULES = ("torch._numpy", _UTILS)
"""The imports of a program with calls of compiled NumPy."""


def is_numpy(target: str) -> bool:
    """Whether a target is a call of compiled NumPy."""
    return target.startswith("numpy.")


def wrapper(target: str) -> str:
    """The expression for the callable of a compiled NumPy target, which is a dotted name of plain identifiers (checked
    by the caller)."""
    _, *path = target.split(".")
    if path == ["getattr"]:
        return f"{_UTILS}.numpy_attr_wrapper"
    if path[0] == "operator":
        return f"{_UTILS}.numpy_operator_wrapper({'.'.join(path)})"
    if path[0] == "ndarray" and len(path) == 2:
        return f'{_UTILS}.numpy_method_wrapper("{path[1]}")'
    return f"{_UTILS}.numpy_to_tensor_wrapper(torch._numpy.{'.'.join(path)})"


def helper(target: str) -> tuple[str, str]:
    """The name for a wrapper in a program for torch.compile, and the line that defines it: Dynamo writes the wrappers
    into graphs, but cannot trace them."""
    name = target.replace(".", "_")
    return name, f"{name} = torch.compiler.allow_in_graph({wrapper(target)})"


Lines = list[str]

WIDTH = 120
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DUNDER_OPS = frozenset(f"__{i}{name}__" for i in ("", "i", "r") for name in ("and", "or", "xor", "lshift", "rshift"))
"""Operators of aten with dunder names."""
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(?::[0-9]+)?", re.ASCII)
_INFIX = {
    "Add": "+", "Mul": "*", "Div": "/", "FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%", "Pow": "**",
    "PowByNatural": "**", "IntTrueDiv": "/", "FloatTrueDiv": "/", "FloatPow": "**", "LShift": "<<", "RShift": ">>",
    "Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">=", "And": "and", "Or": "or",
    "BitwiseFn_bitwise_and": "&", "BitwiseFn_bitwise_or": "|", "BitwiseFn_bitwise_xor": "^",
}  # fmt: skip
_CALLS = {
    "Max": "max", "Min": "min", "Abs": "abs", "ToFloat": "float", "TruncToInt": "int", "RoundToInt": "round",
    "FloorToInt": "math.floor", "CeilToInt": "math.ceil", "floor": "math.floor", "ceiling": "math.ceil",
    "TruncToFloat": "math.trunc", "RoundDecimal": "round", "Identity": "",
}  # fmt: skip
_OTHER = {
    "Neg": "(-{0})",
    "Not": "(not {0})",
    "CeilDiv": "(-(-{0} // {1}))",
    "ModularIndexing": "(({0} // {1}) % {2})",
    "Where": "({1} if {0} else {2})",
}
CHECKPOINTS = frozenset({"higher_order.tag_activation_checkpoint", "higher_order.wrap_activation_checkpoint"})
GETITEM = ("operator.getitem", "_operator.getitem")


class CannotExpressError(GraphdbgError):
    """The graph holds something that a program of torch alone cannot say."""

    code = "GD60"


class InputFormError(CannotExpressError):
    """An input or attribute of the graph was not recorded, or no plain program can make it."""

    code = "GD61"


class OperatorFormError(CannotExpressError):
    """A custom operator has a signature for which no stand-in can be written."""

    code = "GD62"


def is_identifier(text: str) -> bool:
    """Whether the text is a plain ASCII identifier and no keyword."""
    return IDENTIFIER.fullmatch(text) is not None and not keyword.iskeyword(text)


def identifier(text: str, where: str) -> str:
    """The text, if it is a plain identifier; RefusedError otherwise."""
    if not is_identifier(text):
        raise NameRefusedError(where, f"{text[:60]!r} is not a plain identifier")
    return text


def dotted(text: str, what: str) -> str:
    """Returns the text, if it is a dotted name of plain identifiers without dunders; CannotExpressError otherwise."""
    parts = text.split(".")
    if parts[0] == "aten" and len(parts) == 3 and parts[1] in _DUNDER_OPS:
        return text
    if not all(is_identifier(part) and not part.startswith("__") for part in parts):
        raise CannotExpressError(f"{what} {text!r} is not a dotted name")
    return text


def quoted(value: bool | float | str | None) -> str:
    """repr() with the double quotes that formatters want, where the text needs no escapes."""
    text = repr(value)
    if isinstance(value, str) and text[1:-1] == value and '"' not in value:
        return f'"{value}"'
    return text


def items(texts: Iterable[str]) -> str:
    """The text of a tuple with these items."""
    listed = list(texts)
    return f"({', '.join(listed)}{',' if len(listed) == 1 else ''})"


def indented(lines: Iterable[str], by: str = "    ") -> list[str]:
    """The lines, indented as a block."""
    return [by + line if line else line for line in lines]


def broken(line: str, width: int = WIDTH) -> list[str]:
    """Breaks a line of a program that is too long into several, after commas inside brackets and outside of strings."""
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


def blocks(*parts: str | Iterable[str]) -> str:
    """Functions and statements with two empty lines between them; empty parts are left out."""
    texts = [part if isinstance(part, str) else "\n".join(part) for part in parts]
    return "\n\n\n".join(text for text in texts if text)


def names_read(body: str) -> set[str]:
    """The names and dotted names in a program, each with its prefixes: "math.pi" and "math".

    Raises CannotExpressError for a text that cannot be parsed (a million brackets).
    """

    def name_of(node: ast.AST) -> str:
        if isinstance(node, ast.Name):
            return node.id
        before = name_of(node.value) if isinstance(node, ast.Attribute) else ""
        return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""

    try:
        return set(map(name_of, ast.walk(syntax.parsed(body))))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CannotExpressError(f"its text is not a program ({error})") from error


def target(name: str, where: str, *, short: Collection[str] = ()) -> str:
    """The Python expression for a call_function target; RefusedError for one outside of torch, NumPy, operator, math
    and builtins.

    `short`: namespaces of operators that the program defines as variables.
    """
    parts = name.split(".")
    if name.startswith("opaque:") or len(parts) < 2 or not all(IDENTIFIER.fullmatch(part) for part in parts):
        raise TargetRefusedError(where, f"the target {name[:80]!r} cannot be saved")
    root = "operator" if parts[0] == "_operator" else parts[0]
    if any(keyword.iskeyword(part) for part in parts) or (root == "builtins" and parts[1] not in BUILTINS):
        raise TargetRefusedError(where, f"the target {name[:80]!r} may not be called from a saved graph")
    if root == "builtins":
        return parts[1]
    if root == "numpy":
        return wrapper(name)
    if root in ("operator", "math", "torch"):
        return ".".join([root, *parts[1:]])
    return name if root in short else f"torch.ops.{name}"


def _expression(tree: expressions.Expr, names: Mapping[str, str]) -> str:
    if isinstance(tree, expressions.SymbolName):
        if tree.name not in names:
            raise RefusedError(f"the symbol {tree.name!r}", "no input has this size")
        return names[tree.name]
    if not isinstance(tree, expressions.Apply):
        return repr(tree)
    args = [_expression(argument, names) for argument in tree.args]
    if tree.function in _INFIX:
        return f"({f' {_INFIX[tree.function]} '.join(args)})"
    if tree.function in _OTHER:
        return _OTHER[tree.function].format(*args)
    if tree.function in _CALLS:
        return f"{_CALLS[tree.function]}({', '.join(args)})"
    if tree.function.startswith("OpaqueUnaryFn_"):
        return f"math.{tree.function.removeprefix('OpaqueUnaryFn_')}({args[0]})"
    raise RefusedError(f"the function {tree.function!r}", "a program cannot contain it")


class Writer:
    """Writes arguments as Python. `names`: node -> variable; `symbols`: symbol -> variable; `tensors`: tensor ->
    expression.

    `strings`: the record's table of long texts.
    """

    PLAIN = False
    """Whether to write double quotes, and sizes as tuples."""

    def __init__(self, names: dict[str, str], where: str = "", strings: Sequence[str] = ()) -> None:
        self.names: dict[str, str] = names
        self.where, self.strings = where, strings
        self.symbols: dict[str, str] = {}
        self.tensors: dict[str, str] = {}

    def literal(self, value: bool | float | str | None) -> str:
        """A number or a text as a literal."""
        return quoted(value) if self.PLAIN else repr(value)

    def dtype(self, name: str) -> str:
        """A dtype as an expression."""
        return f"torch.{name}"

    def device(self, name: str) -> str:
        """A device as an expression; RefusedError for a malformed name."""
        if not _DEVICE.fullmatch(name):
            raise RefusedError(self.where, f"{name[:40]!r} is not a device")
        return f"torch.device({self.literal(name)})"

    def argument(self, arg: Arg) -> str:
        """The Python text of an encoded argument; RefusedError for an argument without a form in a program."""
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return self.literal(arg)
        if isinstance(arg, list):
            return f"[{', '.join(self.argument(item) for item in cast('list[Arg]', arg))}]"
        if not isinstance(arg, dict) or len(cast("dict[str, Any]", arg)) != 1:
            raise RefusedError(self.where, "an argument is malformed")
        ((tag, body),) = cast("dict[str, Any]", arg).items()
        try:
            text = KINDS[tag].written(body, self) if tag in KINDS else None
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise RefusedError(self.where, f"an argument of kind {tag!r} is malformed") from error
        if text is None:
            raise RefusedError(self.where, f"a program cannot contain an argument of kind {tag!r}")
        return text

    def items(self, args: Iterable[Arg]) -> str:
        """The text of a tuple of encoded arguments."""
        return items(self.argument(item) for item in args)

    def expression(self, text: str) -> str:
        """A symbol expression as Python; RefusedError for a function without a Python form."""
        try:
            return _expression(expressions.parse(text), self.symbols)
        except GraphdbgError as error:
            raise type(error)(self.where, str(error)) from error

    def function_name(self, name: str) -> str:
        """A target that is used as an argument; RefusedError for one that may not be called."""
        return target(name, self.where)

    def keywords(self, pairs: Iterable[tuple[str, Arg]]) -> list[str]:
        """Keyword arguments, as `name=value`."""
        return [f"{self.word(key)}={self.argument(value)}" for key, value in pairs]

    def word(self, text: str) -> str:
        """Returns the text, if it is a plain identifier; RefusedError otherwise."""
        return identifier(text, self.where)


class Printer(Writer):
    """Writes the graph of a record, or one nested in it, node by node. `TAKEN`: names that the program needs for
    itself."""

    TAKEN: frozenset[str] = frozenset()
    SHORT: frozenset[str] = frozenset()
    """Namespaces of operators that the program defines as variables."""
    INDENT, WIDTH = "    ", WIDTH

    def __init__(self, record: GraphRecord) -> None:
        super().__init__({}, strings=record.strings)
        self.record = record
        self.kernels = kernels.Definitions()
        if record.kernels:
            functional = any(node.target == kernels.FUNCTIONAL for node in nodes(record.graph))
            self.kernels = kernels.definitions(record.kernels, functional=functional)

    def function(
        self, name: str, body: GraphBody, first: Callable[[], Lines], statement: Callable[[NodeRecord], Lines]
    ) -> Lines:
        """A graph as a function. `first`: returns the lines before the nodes, once the parameters have names;
        `statement`: returns the lines of a node."""
        parameters = [self.name(node) for node in body.nodes if node.op == "placeholder"]
        lines = first()
        for node in body.nodes:
            if node.op == "output":
                lines.append(self.returned(node))
            elif node.op != "placeholder":
                lines += statement(node)
        rows = (row for line in indented(lines or ["pass"], self.INDENT) for row in broken(line, self.WIDTH))
        return [*self.header(name, parameters), *rows]

    def header(self, name: str, parameters: Lines) -> Lines:
        """The `def` line; called after all nodes are written."""
        return [f"def {name}({', '.join(parameters)}):"]

    def name(self, node: NodeRecord) -> str:
        """The variable of a node; a name that the program itself needs gets an underscore."""
        name = identifier(node.name, f"node {node.name[:60]}")
        taken = name in self.TAKEN or name in self.symbols.values() or name in self.kernels.names
        self.names[node.name] = f"{name}_" if taken else name
        return self.names[node.name]

    def symbol_lines(self, body: GraphBody, wanted: Collection[str]) -> Lines:
        """`s0 = x.size(0)` for each of the symbols, unless a parameter is named after it."""
        homes = symbol_homes(body) if wanted else {}
        lines: Lines = []
        for symbol in sorted(wanted):
            home, dim = homes.get(symbol, ("", None))
            text = self.names[home] if home else self.homeless(symbol)
            if not text:
                continue
            if dim is None and text == symbol:
                self.symbols[symbol] = text
                continue
            variable = symbol if symbol not in self.names.values() else f"{symbol}_size"
            self.symbols[symbol] = identifier(variable, f"symbol {symbol}")
            lines.append(f"{variable} = {text}" + ("" if dim is None else f".size({dim})"))
        return lines

    def homeless(self, symbol: str) -> str:
        """The value of a symbol that is no input's size; empty where no hint is recorded."""
        hint = next((item.hint for item in self.record.symbols if item.name == symbol), None)
        return "" if hint is None else repr(hint)

    def returned(self, node: NodeRecord) -> str:
        """The return statement, from the output node."""
        self.where = f"node {node.name}"
        return f"return {self.argument(node.args[0]) if node.args else None}"

    def call(self, node: NodeRecord) -> str:
        """A computing node as a call expression."""
        self.where = f"node {node.name}"
        if node.target in TRITON_CALLS:
            return kernels.call(node, self.record.kernels, self)
        args = [self.argument(arg) for arg in node.args]
        named = self.keywords(node.kwargs.items())
        if node.op == "call_method":
            return self.call_method(node, args, named)
        if node.op == "call_module":
            return self.call_module(node, args, named)
        return self.call_function(node, args, named)

    def call_method(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """The call of a method of the first argument."""
        return f"{args[0]}.{self.word(node.target)}({', '.join([*args[1:], *named])})"

    def call_module(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """The call of a module of the graph."""
        if node.target not in self.tensors:
            raise RefusedError(self.where, f"the graph has no attribute {node.target[:60]!r}")
        return f"{self.tensors[node.target]}({', '.join([*args, *named])})"

    def call_function(self, node: NodeRecord, args: list[str], named: list[str]) -> str:
        """The call of a function by its name."""
        if node.target in CHECKPOINTS:
            return f"torch.utils.checkpoint.checkpoint({', '.join([*args, *named])})"
        return f"{target(node.target, self.where, short=self.SHORT)}({', '.join([*args, *named])})"
