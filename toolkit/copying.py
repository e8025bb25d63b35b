"""Copies that do not lose what matters: of inputs (aliasing, strides, offsets, requires_grad) and of graphs (metadata,
subgraphs).

>>> x = torch.zeros(4)
>>> a, b = clone_inputs([x, x[1:]])
>>> a[1] = 7.0; b[0].item()
7.0
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def clone_inputs(inputs: Sequence[Any], change: Callable[[torch.Tensor], torch.Tensor] | None = None) -> list[Any]:
    """Clones the tensors among `inputs`, each storage once, so that views of one storage stay views of one storage.

    `change` maps a whole flat storage (a 1-d tensor of one dtype) to its copy, for instance to another dtype or device.
    A tensor that requires grad becomes a leaf that requires grad; parameters stay parameters. Anything that is not a plain
    strided tensor is cloned alone.
    """
    storages: dict[tuple[Any, torch.dtype], torch.Tensor] = {}
    return [
        _clone(value, storages, change or torch.Tensor.clone) if isinstance(value, torch.Tensor) else value
        for value in inputs
    ]


def _clone(
    tensor: torch.Tensor,
    storages: dict[tuple[Any, torch.dtype], torch.Tensor],
    change: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    if tensor.layout != torch.strided or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    plain = tensor.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    storage = plain.untyped_storage()
    key = (storage.data_ptr() or id(storage), plain.dtype)
    if key not in storages:
        count = storage.nbytes() // plain.element_size()
        storages[key] = change(torch.empty(0, dtype=plain.dtype, device=plain.device).set_(storage, 0, (count,), (1,)))
    out = storages[key].as_strided(plain.shape, plain.stride(), plain.storage_offset())
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(out, requires_grad=tensor.requires_grad)
    return out.requires_grad_(tensor.requires_grad)


def copy_graph(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy whose graph (and subgraphs) can be changed freely; parameters, buffers and constants are shared with the
    original.
    """
    graph = copy.deepcopy(gm.graph)
    out = fx.GraphModule(gm, graph, class_name=type(gm).__name__)
    out.meta = dict(gm.meta)
    for node in graph.nodes:
        if node.op == "get_attr" and isinstance(inner := attribute(gm, str(node.target)), fx.GraphModule):
            set_attribute(out, str(node.target), copy_graph(inner))
    if (shape_env := getattr(gm, "shape_env", None)) is not None:
        out.shape_env = shape_env  # type: ignore[assignment]
    return out


def graphs_in(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """The graph, and those inside it."""
    return [part for part in gm.modules() if isinstance(part, fx.GraphModule)]


def nodes_in(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes of a graph, and of those inside it."""
    return [node for part in graphs_in(gm) for node in part.graph.nodes]


def attribute(owner: Any, path: str) -> Any:
    """What a dotted path of a `get_attr` node names, or None."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def set_attribute(owner: Any, path: str, value: Any) -> None:
    """Puts a value where a dotted path leads."""
    *parents, last = path.split(".")
    for part in parents:
        owner = getattr(owner, part)
    setattr(owner, last, value)
