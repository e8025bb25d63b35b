"""Symbol expressions as torch prints them ("2*s0 + 1", "((s0 + 1)//2)", "Eq(Mod(s0, 2), 0)"), read
through Python's own syntax tree.

Also the arithmetic of symbol expressions: each function has torch's meaning, intermediate results are exact fractions.

Must never hand a stored string to `eval`, `sympify` or anything that looks names up: only the functions of ARITY exist,
sizes and depths are bounded. `dumps.torchside` turns the parsed form into sympy.

>>> parse("s0 - 1")
Apply(function='Add', args=(SymbolName(name='s0'), Apply(function='Neg', args=(1,))))
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from . import syntax
from .allowlist import words
from .errors import ExpressionError, RefusedError
from .wording import counted

MAX_LENGTH = 20_000
MAX_DEPTH = 120
MAX_DIGITS = 400
MAX_BITS = 4_096


class SymbolName(msgspec.Struct, frozen=True):
    """A symbol, or one of CONSTANTS."""

    name: str


class Apply(msgspec.Struct, frozen=True):
    """A function of ARITY on its arguments. Operators are functions too: `a - b` is Add(a, Neg(b)), `a//b` is
    FloorDiv(a, b)."""

    function: str
    args: tuple[Expr, ...]


Expr = int | float | bool | SymbolName | Apply

CONSTANTS: dict[str, float] = {
    "oo": math.inf,
    "int_oo": math.inf,
    "nan": math.nan,
    "zoo": math.nan,
    "pi": math.pi,
    "E": math.e,
}
"""Names that are not symbols."""

_MANY = 10_000
UNARY_OPAQUE = words("sqrt cos cosh sin sinh tan tanh asin acos atan exp log log2 asinh")
_BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")

ARITY: dict[str, tuple[int, int]] = {
    "Add": (1, _MANY), "Mul": (1, _MANY), "Neg": (1, 1), "Div": (2, 2), "Pow": (2, 2),
    "FloorDiv": (2, 2), "CleanDiv": (2, 2), "CeilDiv": (2, 2), "IntTrueDiv": (2, 2), "FloatTrueDiv": (2, 2),
    "Mod": (2, 2), "PythonMod": (2, 2), "ModularIndexing": (3, 3), "LShift": (2, 2), "RShift": (2, 2),
    "PowByNatural": (2, 2), "FloatPow": (2, 2), "Min": (1, _MANY), "Max": (1, _MANY), "Abs": (1, 1),
    "floor": (1, 1), "ceiling": (1, 1), "CeilToInt": (1, 1), "FloorToInt": (1, 1), "TruncToInt": (1, 1),
    "TruncToFloat": (1, 1), "RoundToInt": (1, 1), "RoundDecimal": (2, 2), "ToFloat": (1, 1), "Identity": (1, 1),
    "Where": (3, 3), "Piecewise": (1, _MANY), "IsNonOverlappingAndDenseIndicator": (1, _MANY),
    "Eq": (2, 2), "Ne": (2, 2), "Lt": (2, 2), "Le": (2, 2), "Gt": (2, 2), "Ge": (2, 2),
    "And": (1, _MANY), "Or": (1, _MANY), "Xor": (1, _MANY), "Not": (1, 1),
    **dict.fromkeys(UNARY_OPAQUE, (1, 1)), **{f"OpaqueUnaryFn_{name}": (1, 1) for name in UNARY_OPAQUE},
    **{f"BitwiseFn_{name}": (2, 2) for name in _BITWISE},
}  # fmt: skip
"""Function -> the least and the greatest number of arguments. Piecewise takes pairs: value, condition, ..."""

_ALIASES = {
    "Equality": "Eq",
    "Unequality": "Ne",
    "StrictLessThan": "Lt",
    "LessThan": "Le",
    "StrictGreaterThan": "Gt",
    "GreaterThan": "Ge",
    "ceil": "ceiling",
    "trunc": "TruncToInt",
}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Or: "Or", ast.And: "And", ast.Eq: "Eq", ast.NotEq: "Ne", ast.Lt: "Lt", ast.LtE: "Le", ast.Gt: "Gt",
    ast.GtE: "Ge", ast.BitOr: "Or", ast.BitXor: "Xor", ast.BitAnd: "And", ast.LShift: "LShift", ast.RShift: "RShift",
    ast.Add: "Add", ast.Sub: "Add", ast.Mult: "Mul", ast.Div: "Div", ast.FloorDiv: "FloorDiv", ast.Mod: "PythonMod",
    ast.Pow: "Pow", ast.Not: "Not", ast.Invert: "Not", ast.USub: "Neg",
}  # fmt: skip
_FLAT = frozenset({"Add", "Mul", "And", "Or", "Xor"})
_UNEXPECTED = re.compile(
    r"[^\w\s.,()+*/%<>=!&|^~-]|(?<!\w)\d\w*[a-df-zA-DF-Z_]|(?<!\w)\d+\.\w*_|,(?=\s*\))|(?<!\w)None(?!\w)", re.ASCII
)
"""Text that Python's grammar takes and this parser does not: other characters, 0x1, 1_0 and 1j, a comma before ")",
None."""
_MANY_SIGNS = re.compile(rf"(?:[-+~]\s*|\bnot\b\s*){{{MAX_DEPTH + 1}}}", re.ASCII)
_SPACE = re.compile(r"\s", re.ASCII)
_DEEP = f"it is nested more than {MAX_DEPTH} deep"


@lru_cache(maxsize=65_536)
def parse(text: str) -> Expr:
    """The parsed form. Raises RefusedError for an unknown function, UnreadableError for text that is no expression."""
    if len(text) > MAX_LENGTH:
        why = f"it has {counted(len(text), 'character')}, more than {MAX_LENGTH}"
        raise ExpressionError("cannot read an expression", why)
    return _Parser(text).whole()


class _Parser:
    """Converts the Python syntax tree of one text to Expr. Size and nesting are bounded before Python parses."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, why: str) -> NoReturn:
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        raise ExpressionError(f"cannot read the expression {shown!r}", why)

    def whole(self) -> Expr:
        if (unexpected := _UNEXPECTED.search(self.text)) is not None:
            self.fail(f"unexpected {unexpected[0]!r} at character {unexpected.start() + 1}")
        depth = max(accumulate((character == "(") - (character == ")") for character in self.text), default=0)
        if depth >= MAX_DEPTH or _MANY_SIGNS.search(self.text):
            self.fail(_DEEP)
        try:
            tree = syntax.expression(_SPACE.sub(" ", self.text).strip())
        except SyntaxError as error:
            self.fail(error.msg)
        except (RecursionError, MemoryError, ValueError):
            self.fail("it is nested too deeply")
        return self.expression(tree, 0)

    def expression(self, node: ast.expr, depth: int) -> Expr:
        """Converts a node. Sums, products and the like come out flat, except where the text has parentheses."""
        if depth > MAX_DEPTH:
            self.fail(_DEEP)
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                digits = (node.end_col_offset or 0) - node.col_offset
                if digits > MAX_DIGITS:
                    self.fail(f"a number has {counted(digits, 'digit')}, more than {MAX_DIGITS}")
                return value
            case ast.Name(id="true" | "false" as name):
                return name == "true"
            case ast.Name(id=name):
                return SymbolName(name)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.expression(operand, depth + 1)
            case ast.UnaryOp(op=op, operand=operand):
                return Apply(_OPERATORS[type(op)], (self.expression(operand, depth + 1),))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return Apply(
                    _OPERATORS[type(op)], (self.expression(left, depth + 1), self.expression(right, depth + 1))
                )
            case ast.Compare(ops=[_, _, *_]):
                return self.fail("it chains comparisons (a < b < c)")
            case ast.BinOp() | ast.BoolOp() if type(node.op) in _OPERATORS:
                return self.operation(node, depth)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if node.func.col_offset == node.col_offset:
                return self.call(name, args, depth)
            case _:
                return self.fail(f"unexpected {self.text.strip()[node.col_offset : node.end_col_offset][:77]!r}")

    def operation(self, node: ast.BinOp | ast.BoolOp, depth: int) -> Expr:
        function = _OPERATORS[type(node.op)]
        args: list[Expr] = []  # last first
        first: ast.expr = node
        while isinstance(first, (ast.BinOp, ast.BoolOp)) and _OPERATORS.get(type(first.op)) == function:
            outer, rest = first, first.values[1:] if isinstance(first, ast.BoolOp) else [first.right]
            for right in reversed(rest):
                minus = isinstance(first.op, ast.Sub)
                arg = self.expression(right, depth + 1 + minus)
                args.append(Apply("Neg", (arg,)) if minus else arg)
            first = first.values[0] if isinstance(first, ast.BoolOp) else first.left
            if function not in _FLAT or first.col_offset > outer.col_offset:
                break
        return Apply(function, (self.expression(first, depth + 1), *reversed(args)))

    def call(self, function: str, nodes: list[ast.expr], depth: int) -> Expr:
        function = _ALIASES.get(function, function)
        if function not in ARITY:
            why = f"it calls {function!r}, which a size expression may not call"
            raise RefusedError(f"refused the expression {self.text[:80]!r}", why)
        if function == "Piecewise":
            if not all(isinstance(node, ast.Tuple) and len(node.elts) == 2 for node in nodes):
                self.fail("Piecewise takes pairs: (value, condition), ...")
            nodes = [part for node in nodes if isinstance(node, ast.Tuple) for part in node.elts]
        args = [self.expression(node, depth + 1) for node in nodes]
        least, most = ARITY[function]
        if not least <= len(args) <= most:
            wanted = counted(least, "argument") if least == most else f"{least} or more arguments"
            self.fail(f"{function} takes {wanted}, not {len(args)}")
        return Apply(function, tuple(args))


def symbols(expr: Expr | str) -> set[str]:
    """The names of the symbols in an expression."""
    expr = parse(expr) if isinstance(expr, str) else expr
    if isinstance(expr, SymbolName):
        return set() if expr.name in CONSTANTS else {expr.name}
    if isinstance(expr, Apply):
        return {name for arg in expr.args for name in symbols(arg)}
    return set()


def evaluate(expr: Expr | str, values: Mapping[str, int | float | bool]) -> int | float | bool:
    """Returns the value of an expression for the given symbol values.

    Raises UnreadableError for a symbol without value, a division by zero, or a result too large to hold.
    """
    parsed = parse(expr) if isinstance(expr, str) else expr
    try:
        result = _value(parsed, values)
    except ZeroDivisionError:
        raise ExpressionError("cannot evaluate an expression", "it divides by zero") from None
    except (OverflowError, ValueError, TypeError) as error:
        raise ExpressionError("cannot evaluate an expression", str(error)) from error
    if isinstance(result, Fraction):
        return result.numerator if result.denominator == 1 else float(result)
    return result


def _value(expr: Expr, values: Mapping[str, int | float | bool]) -> Any:
    if isinstance(expr, SymbolName):
        number = values.get(expr.name, CONSTANTS.get(expr.name))
        if number is None:
            raise ExpressionError("cannot evaluate an expression", f"the symbol {expr.name!r} has no known value")
        return number
    if not isinstance(expr, Apply):
        return expr
    if expr.function == "Piecewise":
        return _piecewise(expr.args, values)
    if expr.function == "Where":
        condition, yes, no = expr.args
        return _value(yes if _value(condition, values) else no, values)
    args = [_value(arg, values) for arg in expr.args]
    fold = _FOLDS.get(expr.function)
    return _bounded(fold(args) if fold is not None else _FUNCTIONS[expr.function](*args))


def _piecewise(args: tuple[Expr, ...], values: Mapping[str, int | float | bool]) -> Any:
    for value, condition in zip(args[::2], args[1::2], strict=True):
        if _value(condition, values):
            return _value(value, values)
    raise ExpressionError("cannot evaluate an expression", "no condition of its Piecewise is true")


def _bounded(result: Any) -> Any:
    if isinstance(result, int) and result.bit_length() > MAX_BITS:
        raise OverflowError(f"a number in it has more than {MAX_BITS} bits")
    return result


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        exponent = int(exponent)
    if isinstance(base, (int, Fraction)) and isinstance(exponent, int):
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size > 1 and size * abs(exponent) > MAX_BITS:
            raise OverflowError(f"a power in it has more than {MAX_BITS} bits")
        return _exact(Fraction(base) ** exponent)
    result: Any = float(base) ** float(exponent)
    if isinstance(result, complex):
        raise ValueError("a power in it is not a real number")
    return result


def _exact(value: Fraction) -> Any:
    return value.numerator if value.denominator == 1 else value


def _index(value: Any, divisor: Any, modulus: Any) -> Any:
    return value // divisor % modulus


def _divide(a: Any, b: Any) -> Any:
    return float(a) / float(b) if isinstance(a, float) or isinstance(b, float) else _exact(Fraction(a) / Fraction(b))


def _product(args: list[Any]) -> Any:
    result: Any = 1
    for arg in args:
        result = _bounded(result * arg)
    return result


def _shift_left(value: Any, count: Any) -> Any:
    if count > MAX_BITS:
        raise OverflowError(f"a shift in it has more than {MAX_BITS} bits")
    return int(value) << int(count)


def _dense(args: list[Any]) -> int:
    """1 if a tensor of these sizes (first half of `args`) and strides (second half) has neither holes nor overlap, else
    0 (torch: IsNonOverlappingAndDenseIndicator)."""
    half = len(args) // 2
    expected = 1
    for stride, size in sorted(zip(args[half:], args[:half], strict=False)):
        if size != 1:
            if stride != expected:
                return 0
            expected *= size
    return 1


_OPAQUE: dict[str, Callable[[Any], Any]] = {name: getattr(math, name) for name in UNARY_OPAQUE}

_FOLDS: dict[str, Callable[[list[Any]], Any]] = {
    "Add": sum,
    "Mul": _product,
    "Min": min,
    "Max": max,
    "And": all,
    "Or": any,
    "Xor": lambda args: sum(map(bool, args)) % 2 == 1,
    "IsNonOverlappingAndDenseIndicator": _dense,
}
"""Functions of any number of arguments."""

_UNARY: dict[str, Callable[[Any], Any]] = {
    "Neg": operator.neg, "Not": operator.not_, "Abs": abs, "floor": math.floor, "ceiling": math.ceil,
    "CeilToInt": math.ceil, "FloorToInt": math.floor, "TruncToInt": math.trunc, "RoundToInt": round, "ToFloat": float,
    "TruncToFloat": lambda value: float(math.trunc(value)), "Identity": lambda value: value,
    **_OPAQUE, **{f"OpaqueUnaryFn_{name}": function for name, function in _OPAQUE.items()},
}  # fmt: skip
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Div": _divide, "Pow": _power, "PowByNatural": _power, "FloatPow": lambda a, b: _power(float(a), float(b)),
    "IntTrueDiv": lambda a, b: float(a) / float(b), "FloatTrueDiv": lambda a, b: float(a) / float(b),
    "FloorDiv": lambda a, b: a // b, "CleanDiv": lambda a, b: a // b, "CeilDiv": lambda a, b: -(-a // b),
    "Mod": operator.mod, "PythonMod": operator.mod, "LShift": _shift_left,
    "RShift": lambda value, count: int(value) >> int(min(count, MAX_BITS)),
    "RoundDecimal": lambda value, digits: round(float(value), int(digits)),
    "Eq": operator.eq, "Ne": operator.ne, "Lt": operator.lt, "Le": operator.le, "Gt": operator.gt, "Ge": operator.ge,
    "BitwiseFn_bitwise_and": lambda a, b: a & b, "BitwiseFn_bitwise_or": lambda a, b: a | b,
    "BitwiseFn_bitwise_xor": lambda a, b: a ^ b,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {**_UNARY, **_BINARY, "ModularIndexing": _index}
