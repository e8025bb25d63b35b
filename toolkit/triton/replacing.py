# pyright: basic
"""Attributes replaced for a while.

>>> with replaced(torch.cuda, "current_device", lambda: 0):
...     ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute replaced, and put back or taken away."""
    missing = object()
    before = vars(place).get(name, missing) if isinstance(place, type) else getattr(place, name, missing)
    setattr(place, name, value)
    try:
        yield
    finally:
        if before is missing:
            delattr(place, name)
        else:
            setattr(place, name, before)
