"""Fields of journal events as values of the kind that is wanted, whatever stands there: a journal is data from outside.

>>> whole("7"), words({"file": "a.py"}, "file")
(0, 'a.py')
"""

from __future__ import annotations

import re
from typing import Any, cast

from . import wording
from .model import Place, Symbol

RESUME = re.compile(r"(?:torch_dynamo_resume_in_)+(?P<name>.+?)(?:_at_(?P<line>\d+))+$")
"""The name that Dynamo gives to what follows a graph break."""


def items(value: Any) -> list[Any]:
    """A list; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def words(fields: dict[str, Any], key: str) -> str:
    """A text; an empty one for anything else."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def whole(value: Any) -> int:
    """A whole number; 0 for anything else."""
    return value if isinstance(value, int) else 0


def places(value: Any) -> list[Place]:
    """The frames of a stack, with the names that functions have in the program."""
    found: list[Place] = []
    for item in items(value):
        frame = items(item)
        if len(frame) == 4:
            file, line, function, code = frame
            resumed = RESUME.fullmatch(str(function))
            found.append(Place(str(file), whole(line), resumed["name"] if resumed else str(function), str(code)))
    return found


def symbol(value: Any) -> Symbol | None:
    """A symbol written as [name, source, hint, lower, upper]; None for anything else."""
    fields = items(value)
    if len(fields) != 5 or not all(isinstance(field, (str, int, float, type(None))) for field in fields):
        return None
    name, source, *numbers = fields
    hint, lower, upper = (n if isinstance(n, (int, float)) else None for n in numbers)
    return Symbol(str(name), wording.short(str(source)), hint, lower, upper)
