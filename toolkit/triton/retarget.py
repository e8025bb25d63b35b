# pyright: basic
"""Puts a graph onto a pretended GPU: fake values and device arguments say `cuda:0`, tensors of its own become inputs.

Sizes, strides, symbols and shared memory stay. A CPU scalar (no dimension, on the CPU in a graph of a GPU) stays where
it is.

For example:

    gm, fakes, added = retargeted(gm, fakes)
    compiled([*inputs, *added])
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.node import map_aggregate

from .. import torch_private as t
from ..live.eager import attribute
from ..live.entries import mode_of

DEVICE = torch.device("cuda", 0)


class Retargeted(NamedTuple):
    """A graph moved to a pretended GPU. `added`: the graph's own tensors, now its last inputs."""

    gm: fx.GraphModule
    fakes: list[Any]
    added: list[torch.Tensor]


def retargeted(gm: fx.GraphModule, fakes: Sequence[Any], mode: Any, *, whole: bool = False) -> Retargeted:
    """Moves `gm` and the fake values to the GPU, in place. `whole`: everything; otherwise CPU values stay if others are
    on a GPU already."""
    # in a mixed graph CPU values are on the CPU on purpose
    mixed = not whole and any(fake.device.type == "cuda" for value in fakes for fake in _fakes(value))
    added, more = _lifted(gm, mode)
    seen: set[int] = set()
    for value in [*fakes, *more]:
        _move(value, mixed, seen)
    _there(gm, mixed, seen)
    return Retargeted(gm, [*fakes, *more], added)


def _there(gm: fx.GraphModule, mixed: bool, seen: set[int]) -> None:
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


def put(gm: fx.GraphModule, fakes: list[Any] | None) -> tuple[list[Any], list[torch.Tensor]]:
    """Moves a CPU graph that Inductor is about to compile to the GPU; returns its fake values, and the tensors that
    become its last inputs. Without fake values the graph's own tensors stay where they are."""
    if fakes is None:
        _there(gm, False, set())
        return [], []
    moved = retargeted(gm, fakes, mode_of(gm, fakes), whole=True)
    return moved.fakes, moved.added


_moved: list[tuple[Any, torch.device]] = []
"""Fake tensors that were moved, each with its original device."""


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """Moves fake values back after the block: copies of a graph share them."""
    before = len(_moved)
    try:
        yield
    finally:
        for fake, device in reversed(_moved[before:]):
            fake.fake_device = device  # in place, to keep symbols and shared memory
        del _moved[before:]


def _move(value: Any, mixed: bool, seen: set[int]) -> None:
    for fake in _fakes(value):
        if id(fake) in seen or (mixed and fake.device.type == "cpu"):
            continue
        seen.add(id(fake))
        if fake.device.type in ("cpu", "cuda"):
            _moved.append((fake, fake.device))
            fake.fake_device = DEVICE


def _fakes(value: Any) -> list[Any]:
    return [fake for fake in t.pytree.tree_leaves(value) if isinstance(fake, t.FakeTensor)]


def _device(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in ("cpu", "cuda"):
        return DEVICE
    return value


def _lifted(gm: fx.GraphModule, mode: Any) -> tuple[list[torch.Tensor], list[Any]]:
    """Turns tensors of the graph into inputs after the others: real ones would stay on this machine's CPU."""
    added: list[torch.Tensor] = []
    fakes: list[Any] = []
    by_name: dict[str, fx.Node] = {}
    last = next((node for node in reversed(gm.graph.nodes) if node.op == "placeholder"), None)
    for node in list(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        value = attribute(gm, str(node.target))
        if not isinstance(value, torch.Tensor):
            continue
        known = by_name.get(str(node.target))
        if known is None:
            with gm.graph.inserting_after(last) if last is not None else gm.graph.inserting_before():
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
