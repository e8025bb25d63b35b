# pyright: basic
"""Puts a graph onto a pretended GPU: fake values and device arguments say `cuda:0`, tensors of its own become inputs.

Sizes, strides, symbols and shared memory stay. A CPU scalar (no dimension, on the CPU in a graph of a GPU) stays where it is.

>>> gm, fakes, added = retargeted(gm, fakes)
>>> compiled([*inputs, *added])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_aggregate

from . import _torch as t

DEVICE = torch.device("cuda", 0)


class Retargeted(NamedTuple):
    """`added`: the graph's own tensors, which it now takes as its last inputs."""

    gm: fx.GraphModule
    fakes: list[Any]
    added: list[torch.Tensor]


def retargeted(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any) -> Retargeted:
    """Changes `gm` and the fake values in place."""
    mixed = _mixed(fakes)
    added, more = _lifted(gm, mode)
    seen: set[int] = set()
    for value in [*fakes, *more]:
        _move(value, mixed, seen)
    for part in gm.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for node in part.graph.nodes:
            for key in ("val", "example_value"):
                if key in node.meta:
                    _move(node.meta[key], mixed, seen)
            if not mixed and node.op != "placeholder":
                node.args = map_aggregate(node.args, _device)
                node.kwargs = map_aggregate(node.kwargs, _device)
        part.recompile()
    return Retargeted(gm, [*fakes, *more], added)


def _mixed(fakes: Sequence[Any]) -> bool:
    """Whether some are on a GPU already: then those on the CPU are there on purpose."""
    return any(one.device.type == "cuda" for value in fakes for one in t.tensor_fakes(value))


def _move(value: Any, mixed: bool, seen: set[int]) -> None:
    for one in t.tensor_fakes(value):
        if id(one) in seen or (mixed and one.device.type == "cpu"):
            continue
        seen.add(id(one))
        if one.device.type in ("cpu", "cuda"):
            t.set_device(one, DEVICE)


def _device(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in ("cpu", "cuda"):
        return DEVICE
    return value


def _lifted(gm: fx.GraphModule, mode: Any) -> tuple[list[torch.Tensor], list[Any]]:
    """Tensors that the graph holds become inputs behind the others: real ones would stay on this machine's CPU."""
    added: list[torch.Tensor] = []
    fakes: list[Any] = []
    by_name: dict[str, fx.Node] = {}
    last = next((node for node in reversed(gm.graph.nodes) if node.op == "placeholder"), None)
    for node in list(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        value: Any = gm
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        if not isinstance(value, torch.Tensor):
            continue
        known = by_name.get(str(node.target))
        if known is None:
            with gm.graph.inserting_after(last) if last is not None else gm.graph.inserting_before(next(iter(gm.graph.nodes))):
                known = gm.graph.placeholder(f"lifted_{len(added)}")
            last = by_name[str(node.target)] = known
            fake = mode.from_tensor(value)
            known.meta = {**node.meta, "val": fake}
            added.append(value)
            fakes.append(fake)
        node.replace_all_uses_with(known)
        gm.graph.erase_node(node)
    if added:
        gm.recompile()
    return added, fakes
