"""Objects that a notebook shows: what is shown is made by a room that may know all of them, so that they need to know
nothing of it.

>>> class Note(Displayed): pass
>>> makers["Note"] = lambda note: "<b>a note</b>"
>>> Note()._repr_html_()
'<b>a note</b>'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

makers: dict[str, Callable[[Any], str]] = {}
"""Class -> what makes its HTML; the package's `__init__` fills it."""


class Displayed:
    """A class that has an entry in `makers`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return makers[type(self).__name__](self)
