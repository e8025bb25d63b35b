"""Objects that stand one in a file and are found there: passes of the minifier, rungs, screens.

Such a file ends in `NAME = Kind(order=10, words="...", apply=apply)`. What is written out there is read from the
source, so that lists, help and tables of such objects need no import of the files, which may bring in torch or textual.

>>> [*described(Path(graphdbg.__file__).parent / "minifier/passes/names.py", "PASS")]
['order', 'words', 'edits', 'is_neutral']
>>> made(dict, {"order": 10}, Path("minifier/passes/names.py"), "PASS")
{'order': 10}
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from . import syntax

T = TypeVar("T")
Kinds = Mapping[str, Callable[..., Any]]


def all_described(folder: Path, name: str, kind: Callable[..., T]) -> dict[str, T]:
    """What `kind` makes of each module of a folder that has such an object, in the order of their `order`.

    Raises ValueError, with the file, for one that has no `order`, or words that `kind` does not take.
    """
    rows = [(path, row) for path in sorted(folder.glob("[a-z]*.py")) if (row := described(path, name))]
    for path, row in rows:
        if "order" not in row:
            raise ValueError(f"{path}: {name} needs an order=..., written out: its place among the others")
    rows.sort(key=lambda item: item[1]["order"])
    return {path.stem: made(kind, row, path, name) for path, row in rows}


def made(kind: Callable[..., T], row: Mapping[str, Any], path: Path, name: str) -> T:
    """What `kind` makes of what is written out in a file; ValueError, with the file, where it does not take that."""
    try:
        return kind(**row)
    except TypeError as error:
        raise ValueError(f"{path}: {name}: {error}") from error


def described(path: Path, name: str, kinds: Kinds | None = None) -> dict[str, Any]:
    """The keyword arguments of `name = Kind(...)` in a file; empty where there is none.

    `kinds`: what may be called in them, by name. Names of the file, such as its functions, are left out; ValueError,
    with the file, for anything else that is not written out, SyntaxError where it is no Python.
    """
    _, begin, rest = f"\n{path.read_text('utf-8')}".rpartition(f"\n{name} = ")
    call = syntax.parsed(rest).body[0] if begin else None
    if not isinstance(call, ast.Expr) or not isinstance(call.value, ast.Call):
        return {}
    words = (word for word in call.value.keywords if word.arg and not isinstance(word.value, ast.Name))
    row: dict[str, Any] = {}
    for word in words:
        try:
            row[str(word.arg)] = _value(word.value, kinds or {})
        except (ValueError, TypeError) as error:
            why = f"{word.arg}=... of {name} has to be written out, as it is read without running the file"
            raise ValueError(f"{path}: {why}: {error}") from error
    return row


def _value(node: ast.expr, kinds: Kinds) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_value(item, kinds) for item in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
        named = {str(word.arg): _value(word.value, kinds) for word in node.keywords}
        return kinds[node.func.id](*(_value(item, kinds) for item in node.args), **named)
    return ast.literal_eval(node)
