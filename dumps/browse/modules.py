"""Where in the model a node comes from: from the recorded module stack to dotted paths. Pure text.

Must not guess: what does not look like a module path stays as it is.

>>> levels("L['self'].blocks.0: model.Block\\nL['self'].blocks.0.up: torch.nn.modules.linear.Linear")
('blocks.0', 'blocks.0.up')
"""

from __future__ import annotations

import re

from ..tables import plain

_ROOT = re.compile(r"""^L\[(['"])(\w+)\1\]\.?""")
_ITEM = re.compile(r"""\[(?:'([^'\]]*)'|"([^"\]]*)"|(-?\d+))\]""")


def levels(text: str) -> tuple[str, ...]:
    """The paths of the modules around a node, the outermost first; empty for a node of no module."""
    found: list[str] = []
    for line in text.split("\n"):
        path = path_of(line.partition(": ")[0])
        if path and (not found or found[-1] != path):
            found.append(path)
    return tuple(found)


def path_of(text: str) -> str:
    """One module as people write it: "blocks.0.up" for "L['self'].blocks[0].up"; empty for the model itself."""
    root = _ROOT.match(text)
    if root is not None:
        rest = text[root.end() :]
        text = rest if root[2] == "self" else root[2] + ("" if rest.startswith("[") or not rest else ".") + rest
    text = _ITEM.sub(lambda found: f".{found[1] or found[2] or found[3] or ''}", text)
    return plain(text.replace("._modules.", ".").replace("..", ".").strip("."))


def types(text: str) -> tuple[str, ...]:
    """The classes of those modules: ("model.Block", "torch.nn.modules.linear.Linear")."""
    return tuple(plain(line.partition(": ")[2]) for line in text.split("\n") if line)
