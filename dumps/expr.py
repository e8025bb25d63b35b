"""Symbol expressions as torch prints them ("2*s0 + 1", "((s0 + 1)//2)", "Eq(Mod(s0, 2), 0)"): a parser of our own.

Must never hand a stored string to `eval`, `sympify` or anything that looks names up: only the functions of ARITY exist,
sizes and depths are bounded. `dumps.expr_values` has the arithmetic, `dumps.torchside` turns the parsed form into
sympy.

>>> parse("s0 - 1")
Apply(function='Add', args=(Name(name='s0'), Apply(function='Neg', args=(1,))))
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn

import msgspec

from .errors import RefusedError, UnreadableError
from .wording import counted

MAX_LENGTH = 20_000
MAX_DEPTH = 120
MAX_DIGITS = 400
MAX_BITS = 4_096


class Name(msgspec.Struct, frozen=True):
    """A symbol, or one of CONSTANTS."""

    name: str


class Apply(msgspec.Struct, frozen=True):
    """A function of ARITY on its arguments. Operators are functions too: `a - b` is Add(a, Neg(b)), `a//b` is
    FloorDiv(a, b)."""

    function: str
    args: tuple[Expr, ...]


Expr = int | float | bool | Name | Apply

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
UNARY_OPAQUE = (
    "sqrt",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "asin",
    "acos",
    "atan",
    "exp",
    "log",
    "log2",
    "asinh",
)
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
"""The functions that exist, with the least and greatest number of arguments. Piecewise takes pairs: value, condition,
..."""

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
_COMPARISON = 4
_BINARY: dict[str, tuple[int, str]] = {
    "or": (1, "Or"),
    "and": (2, "And"),
    "==": (4, "Eq"),
    "!=": (4, "Ne"),
    "<": (4, "Lt"),
    "<=": (4, "Le"),
    ">": (4, "Gt"),
    ">=": (4, "Ge"),
    "|": (5, "Or"),
    "^": (6, "Xor"),
    "&": (7, "And"),
    "<<": (8, "LShift"),
    ">>": (8, "RShift"),
    "+": (9, "Add"),
    "-": (9, "Add"),
    "*": (10, "Mul"),
    "/": (10, "Div"),
    "//": (10, "FloorDiv"),
    "%": (10, "PythonMod"),
    "**": (12, "Pow"),
}
"""Operator -> how tightly it binds (Python's order) and its function."""
_PREFIX = {"not": (3, "Not"), "-": (11, "Neg"), "+": (11, ""), "~": (11, "Not")}
_FLAT = frozenset({"Add", "Mul", "And", "Or", "Xor"})
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator>\*\*|//|<<|>>|<=|>=|==|!=|[-+*/%<>&|^~(),]))",
    re.ASCII,
)


@lru_cache(maxsize=65_536)
def parse(text: str) -> Expr:
    """The parsed form. Raises RefusedError for an unknown function, UnreadableError for text that is no expression."""
    if len(text) > MAX_LENGTH:
        raise UnreadableError(
            "cannot read an expression", f"it has {counted(len(text), 'character')}, more than {MAX_LENGTH}"
        )
    try:
        return _Parser(text).whole()
    except RecursionError:
        raise UnreadableError(f"cannot read the expression {text[:77]!r}", "it is nested too deeply") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokenize()
        self.position = 0
        self.open = 0
        self.depths: dict[int, int] = {}

    def fail(self, why: str) -> NoReturn:
        shown = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        raise UnreadableError(f"cannot read the expression {shown!r}", why)

    def _tokenize(self) -> list[tuple[str, str]]:
        tokens: list[tuple[str, str]] = []
        position, end = 0, len(self.text.rstrip())
        while position < end:
            found = _TOKEN.match(self.text, position)
            if found is None:
                self.fail(f"unexpected {self.text[position : position + 1]!r} at character {position + 1}")
            tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
            position = found.end()
        return [*tokens, ("end", "the end")]

    def peek(self) -> str:
        """The operator that comes next, or an empty text."""
        kind, text = self.tokens[self.position]
        return text if kind == "operator" or text in ("and", "or", "not") else ""

    def take(self, operator: str) -> bool:
        taken = self.peek() == operator
        self.position += taken
        return taken

    def expect(self, operator: str) -> None:
        if not self.take(operator):
            self.fail(f"expected {operator!r} but found {self.tokens[self.position][1]!r}")

    def apply(self, function: str, args: Sequence[Expr]) -> Expr:
        made = Apply(function, tuple(args))
        # Children stay alive inside `made`, so their ids stay theirs while we parse.
        depth = 1 + max((self.depths.get(id(arg), 0) for arg in args), default=0)
        if depth > MAX_DEPTH:
            self.fail(f"it is nested more than {MAX_DEPTH} deep")
        self.depths[id(made)] = depth
        return made

    def whole(self) -> Expr:
        expr = self.expression(0)
        if self.tokens[self.position][0] != "end":
            self.fail(f"unexpected {self.tokens[self.position][1]!r}")
        return expr

    def expression(self, level: int) -> Expr:
        """Precedence climbing: takes operators that bind at least as tightly as `level`; sums and the like come out
        flat."""
        self.open += 1
        if self.open > MAX_DEPTH:
            self.fail(f"it is nested more than {MAX_DEPTH} deep")
        items: list[Expr] = [self.prefix()]
        flat = ""
        while (found := _BINARY.get(self.peek())) is not None and found[0] >= level:
            binds, function = found
            operator = self.tokens[self.position][1]
            self.position += 1
            right = self.expression(binds + (operator != "**"))
            if operator == "-":
                right = self.apply("Neg", [right])
            if flat and flat != function:
                items, flat = [self.apply(flat, items)], ""
            items.append(right)
            if function in _FLAT:
                flat = function
            else:
                items = [self.apply(function, items)]
            if binds == _COMPARISON and _BINARY.get(self.peek(), (0,))[0] == _COMPARISON:
                self.fail("it compares a comparison")
        self.open -= 1
        return self.apply(flat, items) if flat else items[0]

    def prefix(self) -> Expr:
        operator = self.peek()
        if operator in _PREFIX:
            self.position += 1
            binds, function = _PREFIX[operator]
            operand = self.expression(binds)
            return self.apply(function, [operand]) if function else operand
        kind, text = self.tokens[self.position]
        self.position += 1
        if kind == "number":
            return self.number(text)
        if kind == "name" and not operator:
            if self.take("("):
                return self.call(text)
            return text.lower() == "true" if text in ("True", "False", "true", "false") else Name(text)
        if operator == "(":
            inner = self.expression(0)
            self.expect(")")
            return inner
        return self.fail(f"expected a number, a name or '(' but found {text!r}")

    def number(self, text: str) -> Expr:
        if len(text) > MAX_DIGITS:
            self.fail(f"a number has {counted(len(text), 'digit')}, more than {MAX_DIGITS}")
        return int(text) if text.isdigit() else float(text)

    def call(self, function: str) -> Expr:
        function = _ALIASES.get(function, function)
        if function not in ARITY:
            why = f"it calls {function!r}, which is no function of symbol expressions"
            raise RefusedError(f"refused the expression {self.text[:80]!r}", why)
        args: list[Expr] = []
        if not self.take(")"):
            while True:
                args.extend(self.pair() if function == "Piecewise" else (self.expression(0),))
                if not self.take(","):
                    break
            self.expect(")")
        least, most = ARITY[function]
        if not least <= len(args) <= most:
            wanted = counted(least, "argument") if least == most else f"{least} or more arguments"
            self.fail(f"{function} takes {wanted}, not {len(args)}")
        return self.apply(function, args)

    def pair(self) -> tuple[Expr, Expr]:
        self.expect("(")
        value = self.expression(0)
        self.expect(",")
        condition = self.expression(0)
        self.expect(")")
        return value, condition


def symbols(expr: Expr | str) -> set[str]:
    """The names of the symbols in an expression."""
    expr = parse(expr) if isinstance(expr, str) else expr
    if isinstance(expr, Name):
        return set() if expr.name in CONSTANTS else {expr.name}
    if isinstance(expr, Apply):
        return {name for arg in expr.args for name in symbols(arg)}
    return set()


def unparse(expr: Expr) -> str:
    """Text that parses to the same expression; functions are written by name."""
    if isinstance(expr, Name):
        return expr.name
    if isinstance(expr, Apply):
        args = [unparse(arg) for arg in expr.args]
        if expr.function == "Piecewise":
            args = [f"({value}, {condition})" for value, condition in zip(args[::2], args[1::2], strict=True)]
        return f"{expr.function}({', '.join(args)})"
    return repr(expr)
