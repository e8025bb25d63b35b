"""Symbol expressions of a trace, compiled to Python closures over a table of symbol values.

The way is sympy -> text -> the parser of `dumps.expr` -> closure, so that a saved graph and a live one are read by the same
code and no text is evaluated. Must not ask a ShapeEnv anything: that would add guards.

>>> size = expression(tensor.shape[0])         # a SymInt of "2*s0 + 1"
>>> size.at({"s0": 8})
17
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...dumps import expr as expressions
from ...dumps.expr_values import evaluate as number_of
from ...dumps.torchside import sympy_text

Values = Mapping[str, Any]
Compiled = Callable[[Values], Any]


class Expression(NamedTuple):
    """One expression: its text, its symbols, and its compiled form. `at(values)` raises KeyError for a symbol without value."""

    text: str
    symbols: frozenset[str]
    at: Compiled


Size = int | Expression
"""A size, stride or offset as it was traced."""


def expression(value: Any) -> Any:
    """A SymInt, SymFloat or SymBool as an Expression, or as a number where it stands for one; anything else as it is."""
    node = getattr(value, "node", None)
    if node is None or isinstance(value, (bool, int, float)):
        return value
    expr = node.expr
    if getattr(expr, "is_number", False):
        return int(expr) if getattr(expr, "is_Integer", False) else float(expr)
    if expr in _TRUTH:
        return _TRUTH[expr]
    return _expression(expr)


_TRUTH: dict[Any, bool] = {True: True, False: False}


def evaluate(value: Any, values: Values) -> Any:
    """The number of a Size under these symbol values."""
    return value.at(values) if isinstance(value, Expression) else value


def text_of(value: Any) -> str:
    """A Size, or a tuple of them, as it was traced: "(2*s0, 1)"."""
    if isinstance(value, tuple) and not isinstance(value, Expression):
        return "(" + ", ".join(map(text_of, value)) + ("," if len(value) == 1 else "") + ")"
    return value.text if isinstance(value, Expression) else str(value)


@functools.lru_cache(maxsize=65_536)
def _expression(expr: Any) -> Expression:
    text = sympy_text.write(expr)
    parsed = expressions.parse(text)
    return Expression(text, frozenset(expressions.symbols(parsed)), compiled(parsed))


_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv,
    "PythonMod": operator.mod, "Mod": operator.mod, "Eq": operator.eq, "Ne": operator.ne, "Lt": operator.lt,
    "Le": operator.le, "Gt": operator.gt, "Ge": operator.ge,
}  # fmt: skip


def compiled(parsed: Any) -> Compiled:
    """The closure of a parsed expression. What is common becomes Python arithmetic; the rest goes through `dumps.expr_values`."""
    if isinstance(parsed, expressions.Name):
        return operator.itemgetter(parsed.name) if parsed.name not in expressions.CONSTANTS else _constant(parsed)
    if not isinstance(parsed, expressions.Apply):
        return lambda values: parsed
    if parsed.function == "Max":
        return _folded(max, [compiled(arg) for arg in parsed.args])
    if parsed.function == "Min":
        return _folded(min, [compiled(arg) for arg in parsed.args])
    if parsed.function == "Neg":
        inner = compiled(parsed.args[0])
        return lambda values: -inner(values)
    plain = _PLAIN.get(parsed.function)
    if plain is None:
        names = expressions.symbols(parsed)

        def general(values: Values) -> Any:
            return number_of(parsed, {name: values[name] for name in names})

        return general
    return _folded(plain, [compiled(arg) for arg in parsed.args])


def _constant(name: expressions.Name) -> Compiled:
    value = expressions.CONSTANTS[name.name]
    return lambda values: value


def _folded(function: Callable[[Any, Any], Any], parts: list[Compiled]) -> Compiled:
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        one, other = parts
        return lambda values: function(one(values), other(values))
    return lambda values: functools.reduce(function, [part(values) for part in parts])
