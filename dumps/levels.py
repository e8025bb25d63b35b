"""The surroundings of a node: the modules around it, or the user's lines that called it, from the outermost to the
innermost level.

>>> module_path("L['self']._modules['blocks']._modules['0']._parameters['weight']")
'blocks.0.weight'
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .tables import plain
from .walk import TORCH_FILE, calls

IN_MODULE = re.compile(
    r"\.(?:_(?:modules|parameters|buffers)|__dict__\['_(?:modules|parameters|buffers)'\])\['([^']*)'\]"
)
"""One step of a Dynamo source from a module to its child, parameter or buffer, whose name is group 1."""

_ROOT = re.compile(r"^[LG]\['[^']*'\]\.?")
_KEYED = re.compile(r"\['?([\w.@-]+)'?\]")
_WRAPPED = re.compile(r"(?:^|(?<=\.))_orig_mod(?:\.|$)")


class Level(NamedTuple):
    """One frame around a node: a module by its path and class, or a line of the user's code that called it."""

    path: str
    kind: str = ""


Path = tuple[Level, ...]
"""The levels around a node, the outermost first."""


def module_path(text: str) -> str:
    """The path of a module or parameter as people write it: "blocks.0.up.weight"; "" for the root module itself."""
    path = _ROOT.sub("", IN_MODULE.sub(r".\1", text))
    return _WRAPPED.sub("", _KEYED.sub(r".\1", path).strip(".")).strip(".")


def input_source(text: str, role: str) -> str:
    """The source of an input: "blocks.0.up.weight" for a part of the model, "tokens" or "args[0]" for an argument."""
    if role in ("parameter", "buffer") and (path := module_path(text)):
        return path
    return re.sub(r"^[LG]\['([^']*)'\]", r"\1", IN_MODULE.sub(r".\1", text))


def levels(text: str) -> Path:
    """The modules around a node, from recorded text with one "path: class" a line. The root module is left out; text
    that does not look like a module path stays as it is."""
    around: list[Level] = []
    for line in text.splitlines():
        path, _, kind = line.partition(": ")
        path = plain(module_path(path))
        if path and (not around or around[-1].path != path):
            around.append(Level(path, plain(kind.rpartition(".")[2])))
    return tuple(around)


def frames_of(stack: str) -> Path:
    """The user's lines around a node, from its stack."""
    user_frames = (frame for frame in calls(stack) if not TORCH_FILE.search(frame.file))
    return tuple(Level(plain(frame.where), plain(frame.function and f"in {frame.function}")) for frame in user_frames)


def common(paths: list[Path]) -> Path:
    """The levels that all paths begin with."""
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]
