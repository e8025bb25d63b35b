"""The arithmetic of symbol expressions, with torch's meaning of each function and exact fractions in between.

Must stay bounded: integers never grow past MAX_BITS bits, powers cannot explode.

>>> evaluate("2*s0 + 1", {"s0": 8})
17
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from .errors import ExpressionError
from .expr import CONSTANTS, MAX_BITS, UNARY_OPAQUE, Apply, Expr, Name, parse


def evaluate(expr: Expr | str, values: Mapping[str, int | float | bool]) -> int | float | bool:
    """The number an expression has for those symbol values.

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
    if isinstance(expr, Name):
        number = values.get(expr.name, CONSTANTS.get(expr.name))
        if number is None:
            raise ExpressionError("cannot evaluate an expression", f"no value is known for the symbol {expr.name!r}")
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
    raise ExpressionError("cannot evaluate an expression", "no case of its Piecewise holds")


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


def _divide(a: Any, b: Any) -> Any:
    return float(a) / float(b) if isinstance(a, float) or isinstance(b, float) else _exact(Fraction(a) / Fraction(b))


def _product(args: list[Any]) -> Any:
    result: Any = 1
    for arg in args:
        result = _bounded(result * arg)
    return result


def _ceil_divide(a: Any, b: Any) -> Any:
    return -(-a // b)


def _true_divide(a: Any, b: Any) -> Any:
    return float(a) / float(b)


def _index(value: Any, divisor: Any, modulus: Any) -> Any:
    return value // divisor % modulus


def _float_power(a: Any, b: Any) -> Any:
    return _power(float(a), float(b))


def _shift_left(value: Any, count: Any) -> Any:
    if count > MAX_BITS:
        raise OverflowError(f"a shift in it has more than {MAX_BITS} bits")
    return int(value) << int(count)


def _shift_right(value: Any, count: Any) -> Any:
    return int(value) >> int(min(count, MAX_BITS))


def _truncate_to_float(value: Any) -> Any:
    return float(math.trunc(value))


def _round(value: Any, digits: Any = None) -> Any:
    return round(value) if digits is None else round(float(value), int(digits))


def _identity(value: Any) -> Any:
    return value


def _odd(args: list[Any]) -> bool:
    return sum(map(bool, args)) % 2 == 1


def _dense(args: list[Any]) -> int:
    """Sizes, then strides: whether the tensor has no holes and no overlap (torch:
    IsNonOverlappingAndDenseIndicator)."""
    half = len(args) // 2
    expected = 1
    for stride, size in sorted(zip(args[half:], args[:half], strict=False)):
        if size != 1:
            if stride != expected:
                return 0
            expected *= size
    return 1


_untyped: Any = operator  # the stubs leave the types of some open
_OPAQUE: dict[str, Callable[..., Any]] = {name: getattr(math, name) for name in UNARY_OPAQUE}

_FOLDS: dict[str, Callable[[list[Any]], Any]] = {
    "Add": sum,
    "Mul": _product,
    "Min": min,
    "Max": max,
    "And": all,
    "Or": any,
    "Xor": _odd,
    "IsNonOverlappingAndDenseIndicator": _dense,
}
"""Functions of any number of arguments."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Neg": operator.neg, "Div": _divide, "Pow": _power,
    "CeilDiv": _ceil_divide, "IntTrueDiv": _true_divide, "FloatTrueDiv": _true_divide,
    "Mod": operator.mod, "PythonMod": operator.mod, "ModularIndexing": _index,
    "LShift": _shift_left, "RShift": _shift_right, "PowByNatural": _power, "FloatPow": _float_power,
    "Abs": abs, "floor": math.floor, "ceiling": math.ceil, "CeilToInt": math.ceil,
    "FloorToInt": math.floor, "TruncToInt": math.trunc, "TruncToFloat": _truncate_to_float,
    "RoundToInt": _round, "RoundDecimal": _round, "ToFloat": float, "Identity": _identity,
    "Eq": operator.eq, "Ne": operator.ne, "Lt": operator.lt, "Le": operator.le, "Gt": operator.gt, "Ge": operator.ge,
    "Not": operator.not_, "FloorDiv": _untyped.floordiv, "CleanDiv": _untyped.floordiv,
    "BitwiseFn_bitwise_and": _untyped.and_, "BitwiseFn_bitwise_or": _untyped.or_, "BitwiseFn_bitwise_xor": _untyped.xor,
    **_OPAQUE, **{f"OpaqueUnaryFn_{name}": function for name, function in _OPAQUE.items()},
}  # fmt: skip
