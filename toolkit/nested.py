"""What a graph returns, as a flat list and back: lists, tuples (named ones too) and dictionaries are containers.

>>> leaves([x, (y, None)])
[x, y, None]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves(value: Any) -> list[Any]:
    """The parts of what a graph returns that are no containers, in order."""
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def rebuilt(value: Any, make: Callable[[], Any]) -> Any:
    """The same containers with `make()` in the place of each leaf, in the order of `leaves`."""
    if isinstance(value, dict):
        return {key: rebuilt(part, make) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [rebuilt(part, make) for part in value]
        if isinstance(value, list):
            return parts
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return make()
