"""What each input of a graph is for, from what its stage says about itself: Dynamo's sources, AOTAutograd's descriptors, names.

Only reads metadata. An input that nothing is known about has the role "unknown".

>>> [role.role for role in of_aot(joint_gm, dynamo_roles, "joint")]
['parameter', 'user', 'tangent']
"""

from __future__ import annotations

from typing import Any, Literal

from ...dumps.schema import InputRecord

Role = Literal["parameter", "buffer", "tangent", "saved", "token", "user", "constant", "unknown"]


def of_dynamo(gm: Any) -> list[InputRecord]:
    """Roles of the placeholders of a Dynamo graph, with the source expression that names them in the user's program."""
    return [_dynamo_input(node) for node in gm.graph.nodes if node.op == "placeholder"]


def _dynamo_input(node: Any) -> InputRecord:
    import torch

    source = _source(node)
    value = node.meta.get("example_value")
    if not isinstance(value, torch.nn.Parameter) and "_buffers[" in source:
        return InputRecord(node.name, "buffer", source)
    is_parameter = isinstance(value, torch.nn.Parameter) or "_parameters[" in source
    return InputRecord(node.name, "parameter" if is_parameter else "user", source)


def _source(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def of_aot(gm: Any, dynamo: list[InputRecord], stage: str) -> list[InputRecord]:
    """Roles of the placeholders of a joint, forward, backward or inference graph (or of the same after passes).

    `dynamo` are the roles of the graph that it came from, in the order of AOTAutograd's flat arguments; empty when unknown.
    """
    return [_aot_input(node, dynamo, stage) for node in gm.graph.nodes if node.op == "placeholder"]


def _aot_input(node: Any, dynamo: list[InputRecord], stage: str) -> InputRecord:
    described = node.meta.get("desc")
    text = str(described.expr()) if hasattr(described, "expr") else ""
    kind = type(described).__name__
    index = getattr(described, "idx", None)
    if kind == "PlainAOTInput" and isinstance(index, int) and index < len(dynamo):
        return InputRecord(node.name, dynamo[index].role, dynamo[index].source or text)
    if hasattr(described, "is_param") and described.is_param():
        return InputRecord(node.name, "parameter", text)
    if hasattr(described, "is_buffer") and described.is_buffer():
        return InputRecord(node.name, "buffer", text)
    return InputRecord(node.name, _otherwise(node.name, kind if described is not None else "", stage), text)


def _otherwise(name: str, kind: str, stage: str) -> Role:
    if kind.endswith("TokenAOTInput"):
        return "token"
    if kind.startswith("Tangent") or name.startswith("tangents"):
        return "tangent"
    if kind:
        return "user"
    return "saved" if stage.endswith("backward") and not name.startswith("primals") else "unknown"
