"""Generated code, one file per kernel where they can be told apart.

Inductor's wrapper assigns each kernel as `name = async_compile.<language>(..., "source", ...)`; that is read with `ast`, nothing
is run.

>>> sorted(split("k = async_compile.cpp_pybinding(['float*'], 'void f() {}')"))
['k.cpp', 'output_code.py']
"""

from __future__ import annotations

import ast
import re

WHOLE = "output_code.py"
_SUFFIX = {"triton": ".py", "cpp": ".cpp", "cpp_pybinding": ".cpp", "metal": ".metal", "pallas": ".py", "cutedsl": ".py"}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def split(source: str) -> dict[str, str]:
    """File name -> text: the whole wrapper as output_code.py, and each kernel found in it. Never raises on odd source."""
    files = {WHOLE: source}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return files
    for statement in tree.body:
        kernel = _kernel(statement)
        if kernel is not None:
            files.setdefault(*kernel)
    return files


def _kernel(statement: ast.stmt) -> tuple[str, str] | None:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or len(statement.targets) != 1:
        return None
    target, call = statement.targets[0], statement.value
    if not isinstance(target, ast.Name) or not isinstance(call.func, ast.Attribute) or not _PLAIN.fullmatch(target.id):
        return None
    if not isinstance(call.func.value, ast.Name) or call.func.value.id != "async_compile":
        return None
    texts = [
        node.value for node in [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]  # fmt: skip
    source = max(texts, key=len, default="")
    if not source.strip():
        return None
    return target.id + _SUFFIX.get(call.func.attr, ".txt"), source.lstrip("\n")
