"""Objects that are defined one per file and found by reading the files of a folder: passes of the minifier, rungs,
screens.

Such a file ends in `NAME = Kind(order=10, words="...", apply=apply)`. Literal arguments are read from the source, so
that lists, help and tables of such objects need no import of the files, which may import torch or textual.

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
    """Calls `kind` with the arguments of each such object in a folder's modules; module name -> result, by their
    `order`.

    Raises ValueError, with the file, for an object without `order`, or with arguments that `kind` does not take.
    """
    rows = [(path, row) for path in sorted(folder.glob("[a-z]*.py")) if (row := described(path, name))]
    for path, row in rows:
        if "order" not in row:
            raise ValueError(f"{path}: {name} needs an order=..., written out: its place among the others")
    rows.sort(key=lambda item: item[1]["order"])
    return {path.stem: made(kind, row, path, name) for path, row in rows}


def made(kind: Callable[..., T], row: Mapping[str, Any], path: Path, name: str) -> T:
    """Calls `kind` with the arguments read from a file; ValueError, with the file, where `kind` does not take them."""
    try:
        return kind(**row)
    except TypeError as error:
        raise ValueError(f"{path}: {name}: {error}") from error


def described(path: Path, name: str, kinds: Kinds | None = None) -> dict[str, Any]:
    """The keyword arguments of `name = Kind(...)` in a file; empty where there is none.

    `kinds`: name -> what may be called inside the arguments. Arguments that are names of the file, such as its
    functions, are left out. ValueError, with the file, for any other argument that is no literal, SyntaxError where it
    is no Python.
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
