"""A number with its noun, as people say it: the one place that knows when a noun stands in the plural.

Machine-readable output has numbers, not these words.

>>> counted(1, "graph"), counted(2, "process"), counted(3, "query"), counted(1200, "node", form=",")
('1 graph', '2 processes', '3 queries', '1,200 nodes')
>>> counted(1, "graph was", "graphs were") + " left out"
'1 graph was left out'
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path


def counted(count: float, singular: str, many: str = "", *, form: str = "") -> str:
    """`count` in the format `form`, with its noun; `many` is a plural that the usual rule does not give."""
    return f"{count:{form}} {singular if count == 1 else many or plural(singular)}"


def plural(noun: str) -> str:
    """The plural of a noun, or of a phrase that ends in one, by the usual rule."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


def shown_path(path: Path) -> str:
    """The path as a person would type it here."""
    with contextlib.suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))
