"""Generated source in an account: lines around the one that failed, and the kernel that a source belongs to. Pure text.

>>> print(excerpt("a\\nb\\nc", 2, 1, around=1))
    1 | a
>   2 | b
      | ^
    3 | c
"""

from __future__ import annotations

import re

_KERNEL = re.compile(
    r"^(\w+) = async_compile\.(\w+)\((?:.*?), r?(?:'''|\"\"\")(.*?)(?:'''|\"\"\")", re.MULTILINE | re.DOTALL
)
_FUNCTION = re.compile(
    r"^\s*(?:extern \"C\"\s+)?(?:__\w+\s+)?(?:static\s+)?(?:inline\s+)?void\s+(\w+)\s*\(", re.MULTILINE
)


def excerpt(source: str, line: int, column: int | None = None, around: int = 3, tail: int | None = None) -> str:
    """Numbered lines around a line, which is marked; `column` counts from 1 and gets a caret. "" when there is no such line."""
    lines = source.split("\n")
    if not 1 <= line <= len(lines):
        return ""
    first, last = max(1, line - around), min(len(lines), line + (around if tail is None else tail))
    width = len(str(last))
    out: list[str] = []
    for number in range(first, last + 1):
        out.append(f"{'>' if number == line else ' '} {number:{width + 2}} | {lines[number - 1]}".rstrip())
        if number == line and column is not None:
            blank = re.sub(r"\S", " ", lines[number - 1][: max(0, column - 1)])
            out.append(f"  {'':{width + 2}} | {blank.ljust(max(0, column - 1))}^")
    return "\n".join(out)


def kernels(generated: str) -> dict[str, str]:
    """Name -> source of each kernel that a generated wrapper in Python defines."""
    return {found[1]: found[3] for found in _KERNEL.finditer(generated)}


def kernel_of(generated: str, source: str) -> str:
    """The kernel of a wrapper whose source this is, or contains; "" where it is none."""
    wanted = _body(source)
    if wanted:
        for name, text in kernels(generated).items():
            body = _body(text)
            if body and (body in wanted or wanted in body):
                return name
    return ""


def enclosing_function(source: str, line: int) -> str:
    """The C++ function that a line stands in, by the last definition above it; "" when there is none."""
    name = ""
    for found in _FUNCTION.finditer(source):
        if source.count("\n", 0, found.start(1)) + 1 > line:
            break
        name = found[1]
    return name


def _body(source: str) -> str:
    """A source without what is put around it when it is written: includes, blank lines, indentation."""
    kept = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in kept if line and not line.startswith(("#include", "#pragma once", "//")))
