# pyright: basic
"""The process groups that a graph's collectives name: who is in them, recorded beside the graph so that a replay can make them.

Groups are found by the names in the arguments of functional collectives. Must not communicate.

>>> of_graph(gm)
{"dict": [["0", {"dict": [["backend", "gloo"], ["ranks", [0, 1]], ["rank", 0], ["world_size", 2]]}]]}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule

from ..schema import Arg
from . import torch_private as t

KEY = "process_groups"
"""Key in GraphBody.meta."""


def of_graph(gm: GraphModule) -> Arg:
    """The groups by name; None for a graph without collectives, or where none of its names is known to this process."""
    found: dict[str, Arg] = {}
    for name in sorted(set(_names(gm))):
        group = _known(name)
        if group is not None:
            found[name] = _told(group)
    return {"dict": [[name, told] for name, told in found.items()]} if found else None


def _names(gm: GraphModule) -> Iterator[str]:
    for part in gm.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                if node.op == "call_function" and "c10d" in str(node.target):
                    yield from (value for value in (*node.args, *node.kwargs.values()) if isinstance(value, str))


def _known(name: str) -> Any:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        return t.resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None


def _told(group: Any) -> Arg:
    distributed = sys.modules["torch.distributed"]
    ranks = [int(rank) for rank in distributed.get_process_group_ranks(group)]
    facts = [
        ["backend", str(distributed.get_backend(group))], ["ranks", ranks], ["rank", int(distributed.get_rank())],
        ["world_size", int(distributed.get_world_size())],
    ]  # fmt: skip
    return {"dict": facts}
