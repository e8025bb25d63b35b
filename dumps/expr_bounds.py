"""Bounds for the size of a symbol expression's results, computed from its text before sympy evaluates it.

Sympy computes while it builds: `(2**4096)**4096` is a number of 16 million bits, a ceiling asks for as many digits as
its argument has, `//` and `%` look for common divisors of expanded products. So each operation gets a bound, derived
from those of its operands: bits of the number, terms after expansion, pairs to compare. Needs no torch, and accepts the
sizes that real programs have.

>>> from graphdbg.dumps.expr import parse
>>> check(parse("Eq(((2**4096)**4096)**4096, 5)"))
Traceback (most recent call last):
...
graphdbg.dumps.errors.RefusedError: refused Pow: its result may have more than 4096 bits
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .errors import RefusedError
from .expr import CONSTANTS, MAX_BITS, UNARY_OPAQUE, Expr, SymbolName

MAX_TERMS = 1024
"""The most terms that a result may expand to."""

MAX_WORK = 250_000
"""The work limit of operations that look for a common divisor (terms of the dividend, times terms of the divisor, times
degree, times symbols squared) or compare all arguments with each other (eight times the number of pairs). One unit
takes at most ten microseconds."""

MAX_INEXACT_BITS = 256
"""The most bits of an argument whose root, logarithm or the like is computed."""

_SYMBOL_BITS = 64
_DIVIDE = frozenset({"FloorDiv", "CleanDiv", "CeilDiv", "Mod", "PythonMod", "ModularIndexing"})
_POWERS = frozenset({"Pow", "PowByNatural", "FloatPow"})
_COMPARE = frozenset({"Min", "Max", "And", "Or", "Xor", "Piecewise", "IsNonOverlappingAndDenseIndicator"})
_EXPONENTIAL = frozenset({"exp", "cosh", "sinh"})


class Size(NamedTuple):
    """The bound of one result. `bits` of its value (of a number: of its digits); `whole`: it is an integer; `open`: it
    contains a symbol without a number, so that no value is computed; `terms` after expansion, over `names`; `parts`:
    arguments compared with one another; `degree` in its names; `work`: units of MAX_WORK; `divided`: dividend and
    divisor, for divisions of this result."""

    bits: float
    whole: bool = True
    open: bool = False
    terms: int = 1
    names: frozenset[object] = frozenset()
    parts: int = 1
    degree: float = 0
    work: float = 0
    divided: tuple[Size, Size] | None = None


def check(tree: Expr, numbers: Mapping[str, float | None] | None = None) -> Size:
    """Returns the bound of an expression. `numbers`: the values of its symbols, where known. Raises RefusedError where
    an operation exceeds a limit."""
    if isinstance(tree, SymbolName):
        number = CONSTANTS.get(tree.name, (numbers or {}).get(tree.name))
        names = frozenset((tree.name,))
        known = Size(_SYMBOL_BITS, open=True) if number is None else _number(number)
        return known._replace(names=names, degree=1)
    if isinstance(tree, (int, float)):
        return _number(tree)
    name = tree.function.removeprefix("OpaqueUnaryFn_")
    args = [check(arg, numbers) for arg in tree.args]
    result = _result(name, args, tree)
    result = result._replace(work=result.work + sum(arg.work for arg in args))
    if result.bits > MAX_BITS and not result.open:
        raise _refused(name, f"its result may have more than {MAX_BITS} bits")
    if result.terms > MAX_TERMS:
        raise _refused(name, f"its result expands to more than {MAX_TERMS} terms")
    if result.work > MAX_WORK:
        raise _refused(name, "there is too much in it to be compared or divided")
    return result


def _refused(name: str, why: str) -> RefusedError:
    return RefusedError(f"refused {name}", why)


def _number(value: float) -> Size:
    whole = isinstance(value, int)
    return Size(abs(math.log2(abs(value))) if value and (whole or math.isfinite(value)) else 0.0, whole=whole)


def _result(name: str, args: list[Size], tree: Expr) -> Size:
    first, last = args[0], args[-1]
    widest, names = max(arg.bits for arg in args), frozenset[object]().union(*(arg.names for arg in args))
    known = Size(widest, whole=all(arg.whole for arg in args), open=any(arg.open for arg in args), names=names)
    if name == "Add":
        bits = widest + math.log2(len(args)) + sum(arg.bits for arg in args if not arg.whole)  # of one denominator
        return known._replace(bits=bits, terms=sum(arg.terms for arg in args), degree=max(arg.degree for arg in args))
    if name in ("Mul", "Div"):
        bits, degree = sum(arg.bits for arg in args), sum(arg.degree for arg in args)
        terms = _times(arg.terms for arg in args)
        return known._replace(bits=bits, terms=terms, degree=degree, whole=known.whole and name == "Mul")
    if name == "Neg":
        return first._replace(work=0)
    if name in _POWERS:
        return _power(name, first, last, known)
    if name == "LShift":
        return known._replace(bits=first.bits + _exponent(name, last), terms=first.terms, degree=first.degree)
    atom = known._replace(names=frozenset[object]((tree,)), degree=1) if names else known
    if name in _DIVIDE:
        return _divided(args, atom._replace(bits=widest + 1))
    if name in _COMPARE:
        parts = sum(arg.parts for arg in args)
        return atom._replace(parts=parts, work=8 * parts * parts)
    if name in UNARY_OPAQUE:
        if first.bits > MAX_INEXACT_BITS and not first.open:
            raise _refused(name, f"its argument may have more than {MAX_INEXACT_BITS} bits")
        bits = 1.5 * _exponent(name, first) if name in _EXPONENTIAL and not first.open else 0.0
        return atom._replace(bits=max(first.bits, bits) + _SYMBOL_BITS, whole=False)
    return atom._replace(bits=widest + 1, whole=known.whole or name not in ("ToFloat", "Identity", "Abs", "Where"))


def _power(name: str, base: Size, exponent: Size, known: Size) -> Size:
    if exponent.open:  # sympy leaves it as it is
        return known._replace(bits=_SYMBOL_BITS, degree=1)
    if not exponent.whole and base.bits > MAX_INEXACT_BITS and not base.open:
        why = f"its exponent is not a whole number, and its base may have more than {MAX_INEXACT_BITS} bits"
        raise _refused(name, why)
    times = _exponent(name, exponent)
    terms = 1
    if base.terms > 1:
        terms = math.comb(math.ceil(times) + base.terms - 1, base.terms - 1) if times < MAX_TERMS else _MANY
    return known._replace(bits=base.bits * times, terms=min(terms, _MANY), degree=base.degree * times)


_MANY = MAX_TERMS + 1


def _times(counts: Iterable[int]) -> int:
    """The product of bounds, at most _MANY."""
    return min(math.prod(counts), _MANY)


def _exponent(name: str, size: Size) -> float:
    """The largest value that an exponent may have; raises RefusedError where that is too large."""
    if size.bits > math.log2(MAX_BITS):
        raise _refused(name, f"its exponent may be larger than {MAX_BITS}")
    return 2**size.bits


def _divided(args: list[Size], result: Size) -> Size:
    """The bound of a quotient; a division of a quotient counts as one division by the product of both divisors."""
    dividend, divisor, *modulus = args
    if dividend.divided is not None:
        dividend, inner = dividend.divided
        terms, degree = _times((inner.terms, divisor.terms)), inner.degree + divisor.degree
        divisor = Size(0.0, terms=terms, names=inner.names | divisor.names, degree=degree)
    names = dividend.names.union(divisor.names, *(arg.names for arg in modulus))
    terms = dividend.terms * divisor.terms * _times(arg.terms for arg in modulus)
    degree = max(1, dividend.degree, *(arg.degree for arg in (divisor, *modulus)))
    work = terms * degree * len(names) ** 2
    return result._replace(divided=(dividend, divisor), work=work)
