"""Where in the model a node comes from: from the recorded module stack to dotted paths. Pure text.

Must not guess: what does not look like a module path stays as it is.

>>> levels("L['self'].blocks.0: model.Block\\nL['self'].blocks.0.up: torch.nn.modules.linear.Linear")
('blocks.0', 'blocks.0.up')
"""

from __future__ import annotations

from ..tables import plain
from .levels import module_path


def levels(text: str) -> tuple[str, ...]:
    """The paths of the modules around a node, the outermost first; empty for a node of no module."""
    found: list[str] = []
    for line in text.split("\n"):
        path = path_of(line.partition(": ")[0])
        if path and (not found or found[-1] != path):
            found.append(path)
    return tuple(found)


def types(text: str) -> tuple[str, ...]:
    """The classes of those modules: ("model.Block", "torch.nn.modules.linear.Linear")."""
    return tuple(plain(line.partition(": ")[2]) for line in text.split("\n") if line)


def path_of(text: str) -> str:
    """One module as people write it."""
    return plain(module_path(text))
