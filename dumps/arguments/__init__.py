"""The kinds of encoded arguments that are objects with one key, the tag, in the saved form.

JSON has no tuples, dtypes or nodes: a node is {"node": "add_1"}, a tuple {"tuple": [...]}, a slice {"slice": [0, null,
2]}. Each kind is one object (`kind.Kind`) with all its operations: check, print, compare, draw, encode a live value and
decode to one. To add a kind: a file here with `KINDS`. Imports no torch.

>>> KINDS["size"].shown([2, 3], str)
'(2, 3)'
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .kind import Kind


def _kinds() -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for item in pkgutil.iter_modules(__path__):
        for kind in getattr(import_module(f".{item.name}", __name__), "KINDS", ()):
            if kind.tag in kinds:
                raise ValueError(f"two kinds of arguments have the tag {kind.tag!r}")
            kinds[kind.tag] = kind
    return kinds


KINDS = _kinds()
"""The kinds by tag."""
NESTED = frozenset(tag for tag, kind in KINDS.items() if kind.holds)
"""Tags whose content is a list of arguments (of pairs for "dict")."""
