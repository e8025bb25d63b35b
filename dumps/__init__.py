"""The saved form of graphs, and everything that reads it without torch.

Also: `late`, with which a package loads names on first use (PEP 562), so that importing the package imports no torch.

>>> late("graphdbg.dumps", {"Run": "store"})("Run").__name__
'Run'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package. `homes`: name -> the module below the package that defines the name."""

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f".{homes[name]}", package), name)

    return __getattr__
