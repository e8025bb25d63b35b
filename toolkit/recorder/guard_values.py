"""The present values of what a failed guard names: `n == 3` failed, and n is 4. Dynamo's own text has it for tensors
only.

Reads dictionaries, lists and sizes without calling any code of the program: no property, no __getattr__, no __eq__.

For example:

    failing_values(frame, ["0/0: n == 3      # x + n  # train.py:9 in step"])  # -> {'n': 4}
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_NAME = re.compile(
    r"""(?<![\w.'"])[A-Za-z_]\w*(?:\.(?:size|stride)\(\)\[\d+\]|\.[A-Za-z_]\w*(?!\w|\()|\[(?:'[^']*'|"[^"]*"|\d+)\])*""",
    re.ASCII,
)
_STEP = re.compile(
    r"""\.(?P<of>size|stride)\(\)\[(?P<dim>\d+)\]|\.(?P<attribute>\w+)|\[(?P<key>'[^']*'|"[^"]*"|\d+)\]"""
)
_LITERAL = re.compile(r"""(?<!\[)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
_ABOUT_TYPES = (" is None", " is not None", "___check_type_id")
_MOST = 4
_LONGEST = 60
_ABSENT = object()


def failing_values(frame: Any, reasons: Iterable[str]) -> dict[str, int | float | bool | str | None]:
    """Name in the first guard that failed -> its present value, if a plain number, text or None; a type as
    "<Tensor>"."""
    text = next(iter(reasons), "").partition("\n")[0].partition("  # ")[0].partition(": ")[2]
    if frame is None or not text or text.startswith("tensor "):
        return {}
    values: dict[str, Any] = {}
    scope, outer = frame.f_locals, frame.f_globals
    for match in _NAME.finditer(_LITERAL.sub("''", text)):
        name = match[0]
        value = _resolve(name, scope, outer)
        if isinstance(value, (list, tuple, dict, str)) and f"len({name})" in text:
            name, value = f"len({name})", len(value)
        if type(value) in (int, float, bool, type(None)) or (type(value) is str and len(value) <= _LONGEST):
            values[name] = value
        elif value is not _ABSENT and any(words in text for words in _ABOUT_TYPES):
            values[name] = f"<{type(value).__name__}>"
        if len(values) == _MOST:
            break
    return values


def _resolve(name: str, scope: Any, outer: Any) -> Any:
    root = re.match(r"\w+", name)
    if root is None:
        return _ABSENT
    value: Any = outer if root[0] == "G" and "G" not in scope else scope.get(root[0], _ABSENT)
    for step in _STEP.finditer(name, root.end()):
        value = _inside(value, step)
    return value


def _inside(value: Any, step: re.Match[str]) -> Any:
    if step["of"]:
        return _extent(value, step["of"], int(step["dim"]))
    if step["attribute"]:
        return _attribute(value, step["attribute"])
    key: Any = step["key"][1:-1] if step["key"][0] in "'\"" else int(step["key"])
    if type(value) is dict:
        return value.get(key, _ABSENT)
    if type(value) in (list, tuple) and isinstance(key, int) and key < len(value):
        return value[key]
    return _ABSENT


def _attribute(value: Any, name: str) -> Any:
    """An attribute in the object's own dictionary; modules keep their parts in three more."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _ABSENT
    if name == "__dict__":
        return own
    for holder in (own, *(own.get(part) for part in ("_modules", "_buffers", "_parameters"))):
        if isinstance(holder, dict) and name in holder:
            return holder[name]
    return _ABSENT


def _extent(value: Any, of: str, dim: int) -> Any:
    import torch

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or dim >= value.dim():
        return _ABSENT
    return value.shape[dim] if of == "size" else value.stride()[dim]
