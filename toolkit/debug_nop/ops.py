"""What a node's op says of itself: its value as traced, whether its result may be its argument's memory, what it writes to.

Reads `node.meta` and schemas. Must not run anything.

>>> schema_of(node)
(True, frozenset())
"""

from __future__ import annotations

from typing import Any

from torch import fx

from .. import torch_private as t


def value_of(node: fx.Node) -> Any:
    """The traced value of a node: `val` behind AOTAutograd, `example_value` in Dynamo's graphs."""
    return node.meta.get("val", node.meta.get("example_value"))


def is_getitem(node: fx.Node) -> bool:
    """Whether a node takes one value out of a tuple."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem" and len(node.args) == 2


def may_alias(node: fx.Node) -> bool:
    """Whether an op's result may be its argument's memory by its schema, or has no schema that says."""
    if not isinstance(node.target, t.OpOverload):
        return node.op != "get_attr"
    return any(returned.alias_info is not None for returned in node.target._schema.returns)


def is_view(node: fx.Node) -> bool:
    """Whether an op of torch's own always returns its argument's memory and writes nothing."""
    if not isinstance(node.target, t.OpOverload) or not node.target.is_view:
        return False
    return node.target.namespace == "aten" and str(node.target).split(".")[1] not in ("reshape", "contiguous", "to")


_TORCHS = frozenset({
    "aten", "prims", "prim", "inductor", "quantized", "mkldnn", "mkl", "onednn", "_c10d_functional", "higher_order",
})  # fmt: skip
_FUNCTIONAL_HOPS = frozenset({
    "auto_functionalized", "auto_functionalized_v2", "with_effects", "triton_kernel_wrapper_functional",
})  # fmt: skip


def schema_of(node: fx.Node) -> tuple[bool, frozenset[fx.Node] | None]:
    """Whether an op is torch's own, and the argument nodes that its schema writes to."""
    target = node.target
    if isinstance(target, t.HigherOrderOperator):
        return target.name() not in _FUNCTIONAL_HOPS, (frozenset() if target.name() in _FUNCTIONAL_HOPS else None)
    if isinstance(target, t.OpOverloadPacket):
        target = getattr(target, target.overloads()[0]) if len(target.overloads()) == 1 else target
    if not isinstance(target, t.OpOverload):
        return True, None
    written: set[fx.Node] = set()
    for place, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            written.update(one for one in t.tree_leaves(given) if isinstance(one, fx.Node))
    return target.namespace in _TORCHS, frozenset(written)


_RESHAPES = frozenset({
    "unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "set_", "as_strided_",
})  # fmt: skip


def reshaped_in_place(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose traced value was changed in shape by a later node, so that it does not say what it was."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "").partition(".")[0]
        if name in _RESHAPES and node.args and isinstance(node.args[0], fx.Node):
            found.add(node.args[0])
    return found
