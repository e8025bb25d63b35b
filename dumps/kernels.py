"""Splits generated code into one file per kernel where kernels can be separated.

Inductor's wrapper assigns each kernel as `name = async_compile.<language>(..., "source", ...)`; that is read with
`ast`, nothing is run.

>>> sorted(split("k = async_compile.cpp_pybinding(['float*'], 'void f() {}')"))
['k.cpp', 'output_code.py']
"""

from __future__ import annotations

import ast
import re

from . import syntax

WHOLE = "output_code.py"
_SUFFIX = {
    "triton": ".py",
    "cpp": ".cpp",
    "cpp_pybinding": ".cpp",
    "metal": ".metal",
    "pallas": ".py",
    "cutedsl": ".py",
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def split(source: str) -> dict[str, str]:
    """File name -> text: the whole wrapper as output_code.py, and each kernel found in it. Never raises on odd
    source."""
    files = {WHOLE: source}
    try:
        tree = syntax.parsed(source)
    except (SyntaxError, ValueError, RecursionError):
        return files
    for statement in tree.body:
        match statement:
            case ast.Assign(
                [ast.Name(name)], ast.Call(ast.Attribute(ast.Name("async_compile"), language), args, keywords)
            ) if _PLAIN.fullmatch(name):
                given = [*args, *(keyword.value for keyword in keywords)]
                texts = [node.value for node in given if isinstance(node, ast.Constant) and isinstance(node.value, str)]
                kernel = max(texts, key=len, default="")
                if kernel.strip():
                    files.setdefault(name + _SUFFIX.get(language, ".txt"), kernel.lstrip("\n"))
            case _:
                pass
    return files
