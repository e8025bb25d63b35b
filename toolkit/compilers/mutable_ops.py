"""Operators that change their arguments, inside a scripted graph: AOTAutograd hides each in a higher-order operator
(`auto_functionalized_v2`), which TorchScript does not know.

It is translated into what it stands for: clones of the tensors that are changed, views of them as arguments, the operator itself.
Lists of tensors, and tensors whose strides a clone would not keep, are left to be refused.

>>> if can_translate(node): translate(graph, node)
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .. import torch_private as t
from .operators import arguments_of

aten = torch.ops.aten


def can_translate(node: fx.Node) -> bool:
    """Whether a node is such an operator, and its changed arguments are plain tensors whose clones keep their strides."""
    if node.target is None or node.target is not t.optional("auto_functionalized") or not isinstance(node.args[0], t.OpOverload):
        return False
    bases: Any = node.kwargs.get("_all_bases", [])
    if any(f"_{name}_length" in node.kwargs for name in _changed(node)) or not all(map(_is_dense, bases)):
        return False
    only = node.kwargs.get("_only_clone_these_bases")
    return only is None and all(isinstance(user.args[1], int) and user.target is operator.getitem for user in node.users)


def _is_dense(base: Any) -> bool:
    value = base.meta.get("val") if isinstance(base, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return False
    return value.clone().stride() == value.stride()  # fake, hence cheap


def _changed(node: fx.Node) -> list[str]:
    """The names of the arguments that the operator writes to."""
    return [name for name, is_write in arguments_of(node.args[0]) if is_write]


def translate(graph: fx.Graph, node: fx.Node) -> None:
    """Puts clones, views and the operator in the place of a node; the graph must be ours to change."""
    op: Any = node.args[0]
    given = dict(node.kwargs)
    bases: Any = given.get("_all_bases", [])
    with graph.inserting_before(node):
        clones = [_clone(graph, base) for base in bases]
        changed = {name: _view(graph, clones, given, f"_{name}") for name in _changed(node)}
        plain = {name: given[name] for name, is_write in arguments_of(op) if not is_write and name in given}
        result = graph.call_function(op.overloadpacket, (), {**plain, **changed})
        count = len(op._schema.returns)
        results = [result] if count <= 1 else [graph.call_function(operator.getitem, (result, i)) for i in range(count)]
    outputs = [*results, *clones]
    for user in list(node.users):
        user.replace_all_uses_with(outputs[int(user.args[1])])  # type: ignore[arg-type]
        graph.erase_node(user)
    graph.erase_node(node)


def _clone(graph: fx.Graph, base: fx.Node) -> fx.Node:
    made = graph.call_function(aten.clone, (base,))
    made.meta = dict(base.meta)  # the next such operator asks for its strides
    return made


def _view(graph: fx.Graph, clones: list[fx.Node], given: dict[str, Any], prefix: str) -> fx.Node | None:
    """The argument as a view of its base's clone, by what AOTAutograd noted of it."""
    index = given[f"{prefix}_base_index"]
    if index is None:
        return None
    base = clones[index]
    if f"{prefix}_storage_offset" in given:
        layout = (given[f"{prefix}_{name}"] for name in ("size", "stride", "storage_offset"))
        return graph.call_function(aten.as_strided, (base, *layout))
    if f"{prefix}_slice_dim" in given:
        bounds = (given[f"{prefix}_slice_{name}"] for name in ("dim", "start", "end"))
        return graph.call_function(aten.slice, (base, *bounds))
    return graph.call_function(aten.alias, (base,)) if f"{prefix}_alias" in given else base
