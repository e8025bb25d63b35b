# pyright: basic
"""AOTAutograd's descriptors of inputs and outputs ("GradAOTOutput(grad_of=PlainAOTInput(idx=0))") <-> their text.

Inductor and the partitioner look at their classes. The text is parsed, never evaluated: only descriptor classes exist.

>>> read("PlainAOTInput(idx=0)")
PlainAOTInput(idx=0)
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from typing import Any

from . import torch_private as t

_MAX_LENGTH = 4_000


def write(descriptor: Any) -> str | None:
    """The text of a descriptor; None for none."""
    return None if descriptor is None else repr(descriptor)


def read(text: str) -> Any:
    """The descriptor of a text; None when this torch has no such descriptor, or the text is none."""
    if len(text) > _MAX_LENGTH:
        return None
    try:
        return _build(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _build(tree: ast.AST) -> Any:
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, str, type(None))):
        return tree.value
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
        made = _classes().get(tree.func.id)
        if made is not None and all(keyword.arg is not None for keyword in tree.keywords):
            return made(**{str(keyword.arg): _build(keyword.value) for keyword in tree.keywords})
    raise ValueError("no descriptor")


@functools.cache
def _classes() -> dict[str, Any]:
    """Name -> class of all descriptors that are plain dataclasses."""
    home = t.optional("descriptors", object)
    bases = tuple(base for name in ("AOTInput", "AOTOutput") if (base := getattr(home, name, None)) is not None)
    return {
        name: kind
        for name, kind in vars(home).items()
        if isinstance(kind, type) and issubclass(kind, bases) and dataclasses.is_dataclass(kind)
    }  # fmt: skip
