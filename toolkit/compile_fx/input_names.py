"""What the inputs of a compiled graph are called: by the graph (primals_3) and in the user's program (model.fc.weight).

Only reads metadata, of Dynamo's sources and AOTAutograd's descriptors; an input that nothing more is known about has
its placeholder's name alone. Names are kept on the nodes, which are no part of a cache key.

>>> [str(name) for name in names_of(gm)]
['primals_1', 'primals_2', 'primals_3', 'primals_4', 'primals_5']
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_KEPT = "_graphdbg_user_name"
_INDEXED = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")
_LOCAL = re.compile(r"^[LG]\['([^']*)'\]")


class InputName(NamedTuple):
    """`placeholder` of the graph; `user`: what the program calls it, empty when unknown."""

    placeholder: str
    user: str = ""

    def __str__(self) -> str:
        known = self.user and self.user != self.placeholder
        return f"{self.placeholder} ({self.user})" if known else self.placeholder


def readable(source: str) -> str:
    """Dynamo's source expression as a user writes it: L['self']._modules['fc']._parameters['weight'] is
    self.fc.weight."""
    return _LOCAL.sub(r"\1", _INDEXED.sub(r".\1", source))


def keep_names(gm: Any, original: Any) -> None:
    """Keeps, on the placeholders of a graph of AOTAutograd's, the names from the graph that it was traced from."""
    if not hasattr(original, "graph"):
        return
    arguments = [_from_dynamo(node) for node in original.graph.find_nodes(op="placeholder")]
    for node in gm.graph.find_nodes(op="placeholder"):
        described = node.meta.get("desc")
        index = getattr(described, "idx", None)
        if type(described).__name__ == "PlainAOTInput" and isinstance(index, int) and index < len(arguments):
            setattr(node, _KEPT, arguments[index])


def names_of(gm: Any) -> list[InputName]:
    """The name of each input, in order; empty for something that is no graph."""
    if not hasattr(gm, "graph"):
        return []
    return [InputName(node.name, _user_name(node)) for node in gm.graph.find_nodes(op="placeholder")]


def name_of(node: Any) -> InputName:
    """The name of one placeholder, of Dynamo's graph or one of AOTAutograd's."""
    return InputName(node.name, _user_name(node) or _from_dynamo(node))


def names_for(work: Any) -> list[InputName]:
    """The names of a part's inputs; of a graph from AOTAutograd's cache torch keeps those of the placeholders for CUDA
    graphs."""
    kept = getattr(getattr(work.compiled, "cudagraph_info", None), "placeholders", None) or ()
    return names_of(work.gm) or [InputName(placeholder.name) for placeholder in kept]


def name_at(names: Sequence[Any], index: int) -> str:
    """The name of one input, by its number where the graph gave none."""
    return str(names[index]) if index < len(names) else f"input {index}"


def listed(names: Iterable[Any], most: int = 8) -> str:
    """The names as a list in words, cut after the first few."""
    known = [str(name) for name in names]
    more = len(known) - most
    return ", ".join(known[:most]) + (f" and {more} more" if more > 0 else "")


def _user_name(node: Any) -> str:
    if kept := getattr(node, _KEPT, ""):
        return kept
    described = node.meta.get("desc")
    for asked in ("is_param", "is_buffer"):
        if hasattr(described, asked) and getattr(described, asked)():
            return str(getattr(described, "target", ""))
    return ""


def _from_dynamo(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    return readable(str(name() if callable(name) else name)) or node.name
