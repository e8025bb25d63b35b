"""Objects that stand one in each file of a folder, and are found there: passes of the minifier, rungs.

A file ends in `NAME = Kind(order=10, words="...", apply=apply)`. What is literal there is read from the source, so that
lists, help and tables of such objects need no import of the files, which may bring in torch.

>>> [*literals(Path(minifier.passes.__file__).parent, "PASS")["names"]]
['order', 'words', 'edits', 'is_neutral']
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def literals(folder: Path, name: str) -> dict[str, Mapping[str, Any]]:
    """For each module of a folder that ends in `name = Kind(...)`: the literal keyword arguments, by their `order`.

    Raises SyntaxError for a module whose last statement has no form of Python's.
    """
    rows = {path.stem: _keywords(path.read_text("utf-8"), name) for path in sorted(folder.glob("[a-z]*.py"))}
    return dict(sorted(((stem, row) for stem, row in rows.items() if row), key=lambda item: item[1].get("order", 0)))


def _keywords(text: str, name: str) -> Mapping[str, Any]:
    _, begin, rest = f"\n{text}".rpartition(f"\n{name} = ")
    call = ast.parse(rest).body[0] if begin else None
    if not isinstance(call, ast.Expr) or not isinstance(call.value, ast.Call):
        return {}
    return {word.arg: ast.literal_eval(word.value) for word in call.value.keywords if word.arg and _is_literal(word)}


def _is_literal(word: ast.keyword) -> bool:
    """Whether it is written out: a function of the file is not."""
    return not any(isinstance(node, (ast.Name, ast.Call, ast.Attribute, ast.Lambda)) for node in ast.walk(word.value))
