"""Python's syntax trees, in any thread.

Before Python 3.11.8, parsing a text while another thread parses may fail without reason ("AST constructor recursion
depth mismatch": both threads share one counter), so it is parsed again. There is no lock: a process forked while
another thread holds it would wait for ever. No torch.

>>> ast.unparse(parsed("x=1")), ast.unparse(expression("x+1")), literal("(1, 'a')")
('x = 1', 'x + 1', (1, 'a'))
"""

from __future__ import annotations

import ast
from typing import Any

_TIMES = 50
"""With three threads that only parse, one text in twenty is refused."""


def parsed(text: str | bytes) -> ast.Module:
    """The tree of a program. Raises as `ast.parse` does: SyntaxError, ValueError, RecursionError, MemoryError."""
    return _tree(text, "exec")


def expression(text: str) -> ast.expr:
    """The tree of an expression. Raises as `parsed` does."""
    return _tree(text, "eval").body


def literal(text: str) -> Any:
    """The value of an expression of constants, tuples, lists, sets and dicts. Raises as `parsed` does, and ValueError
    for any other."""
    return ast.literal_eval(expression(text.lstrip(" \t")))


def _tree(text: str | bytes, mode: str) -> Any:
    for _ in range(_TIMES):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            continue
    return ast.parse(text, mode=mode)
