"""Makes the packages that WITHOUT names absent from this Python and from every one that it starts: not found, not
installed.

It is on PYTHONPATH of the tests that take a part away (see five_nodes.py), and does nothing where WITHOUT is empty.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution
from typing import Any

ABSENT = frozenset(os.environ.get("WITHOUT", "").split(","))


class Present(PathFinder):
    """Python's finder of installed modules, without those."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """None for what is absent."""
        return None if fullname.partition(".")[0] in ABSENT else super().find_spec(fullname, path, target)

    @staticmethod
    def find_distributions(*args: Any, **named: Any) -> Iterable[Distribution]:
        """Without those that are absent."""
        return (
            distribution
            for distribution in PathFinder.find_distributions(*args, **named)
            if distribution.metadata["Name"] not in ABSENT
        )


if ABSENT - {""}:
    sys.meta_path[:] = [Present if finder is PathFinder else finder for finder in sys.meta_path]
