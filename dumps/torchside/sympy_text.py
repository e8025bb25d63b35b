"""Converts sympy expressions to and from text, without `sympify` (which evaluates what it reads).

Written as sympy prints them where that can be read back to an equal expression, else as nested calls ("CleanDiv(s0,
4)"). Read from the tree that `dumps.expr` parses, which admits only the graph's symbols and the functions of shapes,
after `dumps.expr_bounds` has checked that no result becomes too large.

>>> read("2*s0 + 1", {"s0": sympy.Symbol("s0", integer=True, positive=True)}, "graph.json: x")
2*s0 + 1
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, cast

import sympy

from .. import expr as expressions
from .. import expr_bounds
from ..errors import GraphdbgError, RefusedError
from . import torch_private as t

_CONSTANTS: dict[str, Any] = {name: getattr(sympy, name) for name in ("oo", "zoo", "nan", "pi", "E")}
_CONSTANTS["int_oo"] = t.int_oo

_FROM_SYMPY = ("Abs", "Add", "And", "Eq", "Ge", "Gt", "Le", "Lt", "Mul", "Ne", "Not", "Or", "Xor", "ceiling", "floor",
    "log",
               "exp", "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "asinh")  # fmt: skip

_BUILDERS: dict[str, Callable[..., Any]] = {
    **{name: getattr(sympy, name) for name in _FROM_SYMPY},
    "Neg": operator.neg,
    "Div": cast(Any, operator).truediv,
    "Piecewise": lambda *flat: sympy.Piecewise(*zip(flat[::2], flat[1::2], strict=True)),
}

_FAILURES = (TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, AssertionError)


def write(expr: Any) -> str:
    """The text of an expression; `read` turns it into an equal expression wherever that is possible."""
    if isinstance(expr, (bool, int)):
        return str(expr)
    text = str(expr)
    if expr.is_Symbol or expr.is_Integer:
        return text
    symbols = {symbol.name: symbol for symbol in expr.free_symbols}
    for attempt in (text, nested(expr)):
        try:
            if read(attempt, symbols, "") == expr:
                return attempt
        except GraphdbgError:
            continue
    return text


def nested(expr: Any) -> str:
    """The expression as nested calls, one per operation."""
    if isinstance(expr, sympy.Rational) and not expr.is_Integer:
        return f"({expr.p}/{expr.q})"
    if isinstance(expr, sympy.Float):
        return repr(float(expr))
    if not expr.args:
        return str(expr)
    if isinstance(expr, sympy.Piecewise):
        pairs = (pair.args for pair in expr.args)
        return f"Piecewise({', '.join(f'({nested(value)}, {nested(condition)})' for value, condition in pairs)})"
    return f"{expr.func.__name__}({', '.join(nested(argument) for argument in expr.args)})"


def read(text: str, symbols: Mapping[str, Any], where: str, numbers: Mapping[str, float | None] | None = None) -> Any:
    """Reads a text as a sympy expression. Raises an error naming the place for anything but symbols, numbers and known
    functions, and for results that would become too large, given the symbols' `numbers`."""
    try:
        tree = expressions.parse(text)
        expr_bounds.check(tree, numbers)
        return _build(tree, symbols)
    except GraphdbgError as error:
        raise type(error)(where, str(error)) from error
    except _FAILURES as error:
        shown = text if len(text) < 120 else text[:117] + "..."
        raise RefusedError(where, f"the expression {shown!r} cannot be evaluated ({error})") from error


def _build(tree: expressions.Expr, symbols: Mapping[str, Any]) -> Any:
    if isinstance(tree, bool):
        return sympy.true if tree else sympy.false
    if isinstance(tree, int):
        return sympy.Integer(tree)
    if isinstance(tree, float):
        return sympy.Float(tree)
    if isinstance(tree, expressions.SymbolName):
        if tree.name in symbols:
            return symbols[tree.name]
        if tree.name in _CONSTANTS:
            return _CONSTANTS[tree.name]
        raise RefusedError(f"refused the name {tree.name!r}", "it is not a symbol of the graph")
    args = [_build(argument, symbols) for argument in tree.args]
    if tree.function == "Pow":
        return args[0] ** args[1]
    builder = _BUILDERS.get(tree.function) or getattr(t.sympy_functions, tree.function, None)
    if builder is None or tree.function not in expressions.ARITY:
        raise RefusedError(f"refused the function {tree.function!r}", "this torch has no such shape function")
    return builder(*args)
