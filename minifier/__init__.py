"""Minifier: candidates, search engine, oracle, journal and reports. Imports torch only when something is minified.

>>> from graphdbg.minifier import minifier          # drop-in for functorch.compile.minifier
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dumps import late

if TYPE_CHECKING:
    from .dropin import minifier

__all__ = ["minifier"]

__getattr__ = late(__name__, {"minifier": "dropin"})
