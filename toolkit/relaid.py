"""A backward graph whose saved tensors came in another layout than it was traced with: its metadata follows them.

Inductor may lay out convolutions channels-last. AOTAutograd then gives the backward graph's inputs the strides that the compiled
forward graph makes, and traces nothing anew; Inductor does that itself, once every view is a reshape. Eager and the checks
need the same, or a `view` fails and strides look wrong in a healthy graph.

>>> follow_saved(gm, mode, saved.record)
['saved tensors are laid out otherwise than traced (nodes with other strides: 9, views made reshapes: 1)']

Only strides are taken over, from fake values; a node that is recorded with another size or dtype than it has stays as recorded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from ..dumps.schema import GraphRecord
from .rungs.entries import python_decompositions

_VIEW, _RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default


def follow_saved(gm: fx.GraphModule, mode: Any, record: GraphRecord) -> list[str]:
    """Changes `gm` in place where that is needed; returns what was done, as notes."""
    if record.stage != "backward" or not _any_relaid(gm, record):
        return []
    traced = _Traced(gm)
    given = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    try:
        with python_decompositions(mode), mode, torch.no_grad():
            traced.run(*given, enable_io_processing=False)
    except Exception:  # noqa: BLE001  what cannot be traced here stays as recorded, and is judged so
        return []
    moved = [node for node, value in traced.made.items() if _other_strides(node.meta.get("val"), value)]
    if not moved and not traced.views:
        return []
    for node in traced.views:
        node.target = _RESHAPE
    for node, value in traced.made.items():
        if _same_but_strides(node.meta.get("val"), value):
            node.meta["val"] = value
    gm.recompile()
    views = f", views made reshapes: {len(traced.views)}" if traced.views else ""
    return [f"saved tensors are laid out otherwise than traced (nodes with other strides: {len(moved)}{views})"]


def reshapes(gm: fx.GraphModule) -> list[str]:
    """The names of the nodes that are reshapes, those that were views on record among them."""
    return [node.name for node in gm.graph.nodes if node.target is _RESHAPE]


def as_reshapes(gm: fx.GraphModule, names: Collection[str]) -> None:
    """Makes the named nodes reshapes where they are views: in a part of a graph, what `follow_saved` did to the whole."""
    for node in gm.graph.nodes:
        if node.target is _VIEW and node.name in names:
            node.target = _RESHAPE


class _Traced(fx.Interpreter):
    """Runs a graph on fake values and keeps what each node makes; a view that cannot be one is run as a reshape."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.made: dict[fx.Node, Any] = {}
        self.views: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "get_attr" and "val" in n.meta:
            return n.meta["val"]
        try:
            value = super().run_node(n)
        except (RuntimeError, ValueError):
            if n.target is not _VIEW:
                raise
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            value = _RESHAPE(*args, **kwargs)
            self.views.append(n)
        if n.op != "output":
            self.made[n] = value
        return value


def _any_relaid(gm: fx.GraphModule, record: GraphRecord) -> bool:
    """Whether a saved tensor is not contiguous, which is all that the record of the graph tells."""
    saved = {one.name for one in record.inputs if one.role == "saved"}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in saved and isinstance(value, torch.Tensor):
            with contextlib.suppress(Exception):  # an unbacked size
                if value.ndim > 1 and value.layout is torch.strided and not value.is_contiguous():
                    return True
    return False


def _same_but_strides(recorded: Any, made: Any) -> bool:
    if isinstance(recorded, torch.Tensor) and isinstance(made, torch.Tensor):
        return _shape(recorded) == _shape(made) and recorded.dtype == made.dtype and recorded.device == made.device
    if isinstance(recorded, (tuple, list)) and isinstance(made, (tuple, list)) and len(recorded) == len(made):
        pairs = zip(recorded, made, strict=True)
        return all((one is None and other is None) or _same_but_strides(one, other) for one, other in pairs)
    return False


def _other_strides(recorded: Any, made: Any) -> bool:
    if isinstance(recorded, torch.Tensor) and isinstance(made, torch.Tensor):
        return _shape(recorded) == _shape(made) and [*map(str, recorded.stride())] != [*map(str, made.stride())]
    if isinstance(recorded, (tuple, list)) and isinstance(made, (tuple, list)):
        return any(_other_strides(one, other) for one, other in zip(recorded, made, strict=False))
    return False


def _shape(value: torch.Tensor) -> list[str]:
    """As text, so that comparing symbols adds no guard."""
    return [str(one) for one in value.shape]
