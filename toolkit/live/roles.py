"""Determines the role of each input of a graph from metadata of its stage: Dynamo's sources, AOTAutograd's descriptors,
names.

Only reads metadata. An input that nothing is known about has the role "unknown".

For example:

    [role.role for role in of_aot(joint_gm, dynamo_roles, "joint")]  # -> ['parameter', 'user', 'tangent']
"""

from __future__ import annotations

import math
from typing import Any, Literal

from ...dumps.names import at
from ...dumps.schema import InputRecord
from ...dumps.walk import user_frame

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
    if isinstance(value, torch.nn.Parameter) or "_parameters[" in source:
        return InputRecord(node.name, "parameter", source)
    return InputRecord(node.name, "user", source, statistics=_of_number(node))


def _of_number(node: Any) -> dict[str, float | int | None] | None:
    """Statistics of a float of the program (a layer's eps), which Dynamo passes in as a tensor and unpacks with
    `item()`; the value is known before the run. None for other inputs."""
    for user in node.users:
        taken = user.meta.get("example_value") if (user.op, user.target) == ("call_method", "item") else None
        number = getattr(getattr(taken, "node", None), "hint", taken)
        if isinstance(number, float) and math.isfinite(number):
            return {"min": number, "max": number, "mean": number, "std": 0.0}
    return None


def _source(node: Any) -> str:
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return str(name() if callable(name) else name)


def dynamo_outputs(output_graph: Any, gm: Any) -> list[tuple[str, str]]:
    """(node, user's name) of each output of a Dynamo graph: a key or attribute of the returned value ("logits"), else a
    local variable, else the node's name (with the user's line where Dynamo named it after a function)."""
    tracer = getattr(output_graph, "root_tx", None)
    named: dict[str, str] = {}
    attributes = getattr(getattr(output_graph, "side_effects", None), "store_attr_mutations", None) or {}
    for value in reversed(getattr(tracer, "stack", None) or []):
        _named(value, "", attributes, named, 0)
    for name, value in (getattr(tracer, "symbolic_locals", None) or {}).items():
        _named(value, str(name), attributes, named, 0)
    outputs: list[tuple[str, str]] = []
    for node in gm.graph.find_nodes(op="output")[0].args[0]:
        source = (node.meta.get("source_fn_stack") or [("", "")])[-1][0]
        own = "" if node.op == "placeholder" else node.name
        if own and node.name == source:
            own = at(own, user_frame(node.meta.get("stack_trace") or "")[0])
        outputs.append((node.name, named.get(node.name, "") or own))
    return outputs


_DEEP = 6


def _field(value: Any, name: str) -> Any:
    """An attribute from the `__dict__` of a Dynamo object: some of its properties compute, and raise."""
    return getattr(value, "__dict__", {}).get(name)


def _named(value: Any, path: str, attributes: Any, names: dict[str, str], depth: int) -> None:
    """Adds names for the tensors inside one of Dynamo's variables: key or attribute paths. A mere place in a tuple
    gives no name."""
    node = getattr(_field(value, "proxy"), "node", None)
    if node is not None:
        if path:
            names.setdefault(node.name, path)
        return
    if depth > _DEEP or type(value).__name__ == "LazyVariableTracker":
        return
    held = _field(value, "items")
    if isinstance(held, dict):
        pairs = [(_field(_field(key, "vt") or key, "value"), item) for key, item in held.items()]
        rows = [(f"{path}[{key!r}]" if path else str(key), item) for key, item in pairs]
    elif isinstance(held, list):
        fields = getattr(_field(value, "tuple_cls"), "_fields", ())
        rows = [(_at(path, place, fields), item) for place, item in enumerate(held)]
    else:
        base = _field(value, "_base_vt")
        kept = attributes.get(value) if isinstance(attributes, dict) else None
        rows = [(f"{path}.{name}" if path else str(name), item) for name, item in (kept or {}).items()]
        rows += [] if base is None else [(path, base)]
    for name, item in rows:
        _named(item, name, attributes, names, depth + 1)


def _at(path: str, place: int, fields: Any) -> str:
    name = str(fields[place]) if place < len(fields) else ""
    return f"{path}.{name}" if path and name else name or (f"{path}[{place}]" if path else "")


def of_aot(gm: Any, dynamo: list[InputRecord], stage: str) -> list[InputRecord]:
    """Roles of the placeholders of a joint, forward, backward or inference graph (or of the same after passes).

    `dynamo` are the roles of the graph that it came from, in the order of AOTAutograd's flat arguments; empty when
    unknown.
    """
    return [_aot_input(node, dynamo, stage) for node in gm.graph.nodes if node.op == "placeholder"]


def _aot_input(node: Any, dynamo: list[InputRecord], stage: str) -> InputRecord:
    described = node.meta.get("desc")
    text = str(described.expr()) if hasattr(described, "expr") else ""
    kind = type(described).__name__
    index = getattr(described, "idx", None)
    if kind == "PlainAOTInput" and isinstance(index, int) and index < len(dynamo):
        given = dynamo[index]
        return InputRecord(node.name, given.role, given.source or text, statistics=given.statistics)
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
