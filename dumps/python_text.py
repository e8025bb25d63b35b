"""Pieces of Python text for programs made from records: arguments, targets, symbol expressions. Must not import torch.

The text is run by whoever runs the program, so nothing of a record reaches it but checked identifiers, dotted names and repr().

>>> Writer({"x": "x"}).argument({"tuple": [{"node": "x"}, {"dtype": "float32"}]})
'(x, torch.float32)'
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any, cast

from . import expr as expressions
from .errors import GraphdbgError, RefusedError
from .schema import Arg

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DEVICE = re.compile(r"[a-z][a-z0-9_]*(?::[0-9]+)?", re.ASCII)
_TORCH_NAMES = ("dtype", "layout", "memory_format", "qscheme")
_INFIX = {"Add": "+", "Mul": "*", "Div": "/", "FloorDiv": "//", "CleanDiv": "//", "Mod": "%", "PythonMod": "%", "Pow": "**",
          "PowByNatural": "**", "IntTrueDiv": "/", "FloatTrueDiv": "/", "FloatPow": "**", "LShift": "<<", "RShift": ">>",
          "Eq": "==", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">=", "And": "and", "Or": "or",
          "BitwiseFn_bitwise_and": "&", "BitwiseFn_bitwise_or": "|", "BitwiseFn_bitwise_xor": "^"}  # fmt: skip
_CALLS = {"Max": "max", "Min": "min", "Abs": "abs", "ToFloat": "float", "TruncToInt": "int", "RoundToInt": "round",
          "FloorToInt": "math.floor", "CeilToInt": "math.ceil", "floor": "math.floor", "ceiling": "math.ceil",
          "TruncToFloat": "math.trunc", "RoundDecimal": "round", "Identity": ""}  # fmt: skip
_ALIASES = {"_operator": "operator"}
_BUILTINS = frozenset({"abs", "bool", "complex", "divmod", "float", "getattr", "int", "len", "max", "min", "pow", "round", "sum"})


def is_identifier(text: str) -> bool:
    """A plain ASCII identifier that is no keyword."""
    return IDENTIFIER.fullmatch(text) is not None and not keyword.iskeyword(text)


def identifier(text: str, where: str) -> str:
    """The text, if it is a plain identifier; RefusedError otherwise."""
    if not is_identifier(text):
        raise RefusedError(where, f"{text[:60]!r} is not a plain identifier")
    return text


def target(name: str, where: str) -> str:
    """The Python expression for a call_function target; RefusedError for what is not of torch, operator, math or builtins."""
    parts = name.split(".")
    if name.startswith("opaque:") or len(parts) < 2 or not all(IDENTIFIER.fullmatch(part) for part in parts):
        raise RefusedError(where, f"the target {name[:80]!r} has no saved form")
    root = _ALIASES.get(parts[0], parts[0])
    if any(keyword.iskeyword(part) for part in parts) or (root == "builtins" and parts[1] not in _BUILTINS):
        raise RefusedError(where, f"the target {name[:80]!r} may not be called from a saved graph")
    if root == "builtins":
        return parts[1]
    if root in ("operator", "math", "torch"):
        return ".".join([root, *parts[1:]])
    return f"torch.ops.{name}"


def expression(text: str, names: Mapping[str, str], where: str) -> str:
    """A symbol expression as Python over `names`; RefusedError for a function that has no Python form."""
    try:
        return _expression(expressions.parse(text), names)
    except GraphdbgError as error:
        raise type(error)(where, str(error)) from error


def _expression(tree: expressions.Expr, names: Mapping[str, str]) -> str:
    if isinstance(tree, expressions.Name):
        if tree.name not in names:
            raise RefusedError(f"the symbol {tree.name!r}", "it is no size of an input")
        return names[tree.name]
    if not isinstance(tree, expressions.Apply):
        return repr(tree)
    args = [_expression(argument, names) for argument in tree.args]
    if tree.function in _INFIX:
        return f"({f' {_INFIX[tree.function]} '.join(args)})"
    if tree.function in ("Neg", "Not"):
        return f"({'-' if tree.function == 'Neg' else 'not '}{args[0]})"
    if tree.function in _CALLS:
        return f"{_CALLS[tree.function]}({', '.join(args)})"
    if tree.function == "CeilDiv":
        return f"(-(-{args[0]} // {args[1]}))"
    if tree.function == "ModularIndexing":
        return f"(({args[0]} // {args[1]}) % {args[2]})"
    if tree.function == "Where":
        return f"({args[1]} if {args[0]} else {args[2]})"
    if tree.function.startswith("OpaqueUnaryFn_"):
        return f"math.{tree.function.removeprefix('OpaqueUnaryFn_')}({args[0]})"
    raise RefusedError(f"the function {tree.function!r}", "it has no form in a program")


class Writer:
    """Writes arguments. `names` maps nodes to variables, `symbols` symbols to variables, `tensors` tensors to expressions."""

    def __init__(
        self, names: Mapping[str, str], *, symbols: Mapping[str, str] | None = None,
        tensors: Mapping[str, str] | None = None, where: str = "",
    ) -> None:  # fmt: skip
        self.names = names
        self.symbols = symbols or {}
        self.tensors = tensors or {}
        self.where = where

    def argument(self, arg: Arg) -> str:
        """The Python text of an encoded argument; RefusedError for what has no form in a program."""
        if arg is None or isinstance(arg, (bool, int, float, str)):
            return repr(arg)
        if isinstance(arg, list):
            return f"[{', '.join(self.argument(item) for item in cast('list[Arg]', arg))}]"
        if not isinstance(arg, dict) or len(cast("dict[str, Any]", arg)) != 1:
            raise RefusedError(self.where, "an argument is malformed")
        ((tag, body),) = cast("dict[str, Any]", arg).items()
        try:
            return self._tagged(tag, body)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise RefusedError(self.where, f"an argument of kind {tag!r} is malformed") from error

    def _tagged(self, tag: str, body: Any) -> str:
        if tag == "node":
            return self.names[body]
        if tag in ("tuple", "size"):
            items = [self.argument(item) for item in body]
            text = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            return text if tag == "tuple" else f"torch.Size({text})"
        if tag == "dict":
            return "{" + ", ".join(f"{self.argument(key)}: {self.argument(item)}" for key, item in body) + "}"
        if tag in ("slice", "range"):
            return f"{tag}({', '.join(self.argument(part) for part in body)})"
        if tag == "float":
            return f"float({str(float(body))!r})"
        if tag == "complex":
            return f"complex({self.argument(body[0])}, {self.argument(body[1])})"
        if tag in _TORCH_NAMES:
            return f"torch.{identifier(body, self.where)}"
        if tag == "device":
            if not _DEVICE.fullmatch(body):
                raise RefusedError(self.where, f"{body[:40]!r} is no device")
            return f"torch.device({body!r})"
        if tag == "sym":
            return expression(body[1], self.symbols, self.where)
        if tag == "function":
            return target(body, self.where)
        if tag == "tensor":
            return self.tensors[body]
        if tag == "ellipsis":
            return "..."
        raise RefusedError(self.where, f"an argument of kind {tag!r} has no form in a program")
