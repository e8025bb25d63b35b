"""Objects that stand one in a file and are found there: passes of the minifier, rungs, screens.

Such a file ends in `NAME = Kind(order=10, words="...", apply=apply)`. What is written out there is read from the
source, so that lists, help and tables of such objects need no import of the files, which may bring in torch or textual.

>>> [*described(Path(graphdbg.__file__).parent / "minifier/passes/names.py", "PASS")]
['order', 'words', 'edits', 'is_neutral']
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Kinds = Mapping[str, Callable[..., Any]]


def all_described(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """`described` of each module of a folder that has such an object, in the order of their `order`."""
    rows = {path.stem: described(path, name) for path in sorted(folder.glob("[a-z]*.py"))}
    return dict(sorted(((stem, row) for stem, row in rows.items() if row), key=lambda item: item[1]["order"]))


def described(path: Path, name: str, kinds: Kinds | None = None) -> dict[str, Any]:
    """The keyword arguments of `name = Kind(...)` in a file; empty where there is none.

    `kinds`: what may be called in them, by name. Names of the file, such as its functions, are left out; ValueError or
    SyntaxError for anything else that is not written out.
    """
    _, begin, rest = f"\n{path.read_text('utf-8')}".rpartition(f"\n{name} = ")
    call = ast.parse(rest).body[0] if begin else None
    if not isinstance(call, ast.Expr) or not isinstance(call.value, ast.Call):
        return {}
    words = (word for word in call.value.keywords if word.arg and not isinstance(word.value, ast.Name))
    return {str(word.arg): _value(word.value, kinds or {}) for word in words}


def _value(node: ast.expr, kinds: Kinds) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_value(item, kinds) for item in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
        named = {str(word.arg): _value(word.value, kinds) for word in node.keywords}
        return kinds[node.func.id](*(_value(item, kinds) for item in node.args), **named)
    return ast.literal_eval(node)
