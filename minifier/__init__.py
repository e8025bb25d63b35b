"""Minifier: candidates, search engine, oracle, journal and reports. Imports torch only when something is minified.

>>> from graphdbg.minifier import minifier          # drop-in for functorch.compile.minifier
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dropin import minifier

__all__ = ["minifier"]


def __getattr__(name: str) -> Any:
    if name == "minifier":
        from .dropin import minifier

        return minifier
    raise AttributeError(f"module 'graphdbg.minifier' has no attribute {name!r}")
