"""Inputs: one input stands in for others of the same shape, dtype, strides and device.

A cut leaves an input for each edge that was cut; most failures need no two of these to differ.

For example: `propose(case)` gives `[['inputs mul_3 primals_1', 'inputs tanh_2 primals_1']]`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ...dumps.torchside.values import fake_of
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from . import Pass
from .symbolic import fewer


def propose(case: Live) -> list[list[str]]:
    """Each input that is like an earlier one, to be replaced by it. Inputs that share memory with another stay as they
    are."""
    first: dict[Hashable, str] = {}
    memory = [_memory(value) for value in case.inputs]
    edits: list[str] = []
    for node, value, place in zip(case.gm.graph.find_nodes(op="placeholder"), case.inputs, memory, strict=True):
        kind = _kind(node, value) if place is not None and memory.count(place) == 1 else None
        if kind is None:
            continue
        if kind in first:
            edits.append(f"inputs {node.name} {first[kind]}")
        else:
            first[kind] = node.name
    return [edits] if edits else []


def apply(case: Live, edit: str) -> Live:
    """The case with one input fewer: its users take the other one."""
    _, gone, into = edit.split(" ")
    gm = copy_graph(case.gm)
    nodes = gm.graph.find_nodes(op="placeholder")
    names = [node.name for node in nodes]
    at, to = names.index(gone), names.index(into)
    if to > at:
        raise ValueError(f"{into} comes after {gone}")
    nodes[at].replace_all_uses_with(nodes[to])
    gm.graph.erase_node(nodes[at])
    return fewer(case, gm)


def _kind(node: fx.Node, value: torch.Tensor) -> Hashable:
    """What two inputs must have in common; symbolic sizes count as the symbols that they are."""
    known = fake_of(node)
    symbols = str(tuple(known.shape)) if isinstance(known, torch.Tensor) else ""
    return (
        tuple(value.shape),
        value.stride(),
        value.storage_offset(),
        value.dtype,
        value.device,
        value.requires_grad,
        type(value),
        symbols,
        "tangents" in node.name,
    )


def _memory(value: Any) -> int | None:
    """The id of a plain tensor's storage; None for what is no plain tensor, or has no storage."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return None
    try:
        return cast(Any, StorageWeakRef(value.untyped_storage())).cdata
    except (RuntimeError, NotImplementedError):
        return None


PASS = Pass(
    order=100,
    words="one input in place of several",
    edits={"inputs * *": "{2} in place of {1}"},
    unneeded={"inputs": "inputs that differ"},
)
