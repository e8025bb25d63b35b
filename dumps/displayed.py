"""Base class of objects that a notebook shows. The HTML comes from functions that other packages put into `makers`, so
that its subclasses import none of them.

>>> class Note(Displayed): pass
>>> makers["Note"] = lambda note: "<b>a note</b>"
>>> Note()._repr_html_()
'<b>a note</b>'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

makers: dict[str, Callable[[Any], str]] = {}
"""Class name -> the function that returns its HTML; the package's `__init__` fills it."""


class Displayed:
    """Base of classes that a notebook shows; each has an entry in `makers`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return makers[type(self).__name__](self)
