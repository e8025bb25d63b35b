"""What is recorded beside the nodes of a backward that compiled autograd captured: origins of nodes, gradients, passes.

Reads the record alone; everything is empty for graphs of other stages and for records that do not tell it.

>>> origins(saved.record)["mul_3"]
'MulBackward0 (NodeCall 3), train.clip (train.py:31)'
"""

from __future__ import annotations

from typing import Any, cast

from ..schema import GraphRecord
from ..walk import plain
from ..wording import counted
from .roles import OutputRole


def facts(record: GraphRecord) -> dict[str, Any]:
    """What the recorder noted of the capture as a whole."""
    noted = plain(record.graph.meta.get("custom"))
    found = cast("dict[str, Any]", noted).get("compiled_autograd") if isinstance(noted, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def origins(record: GraphRecord) -> dict[str, str]:
    """Name of a node -> the autograd node it came from, and the hook that computed it."""
    told = {node.name: (node.meta.get("autograd_node"), node.meta.get("hook")) for node in record.graph.nodes}
    return {name: ", ".join(part for part in parts if isinstance(part, str)) for name, parts in told.items() if any(parts)}


def outputs(record: GraphRecord) -> list[OutputRole]:
    """Of what each output is the gradient."""
    last = record.graph.nodes[-1] if record.graph.nodes else None
    items = cast("list[Any]", plain(last.args[0])) if last is not None and last.args else []
    made = zip(items, cast("list[str]", facts(record).get("outputs", [])), strict=False)
    return [
        OutputRole(index, str(cast("dict[str, Any]", item).get("node", "")), "gradient", of.removesuffix(".grad"))
        for index, (item, of) in enumerate(made)
        if isinstance(item, dict)
    ]


def sentences(record: GraphRecord) -> list[str]:
    """What the passes over torch's capture did."""
    passes: list[dict[str, Any]] = facts(record).get("passes", [])
    did = [
        f"{one['name']} {' and '.join(f'{word} {one[word]}' for word in ('moved', 'removed') if one.get(word))}"
        for one in passes
        if one.get("moved") or one.get("removed")
    ]
    if not passes:
        return []
    size = counted(passes[0].get("nodes", "?"), "node")
    return [f"passes over torch's capture of {size}: {', '.join(did) or 'none changed it'}"]


def extend(nodes: list[dict[str, Any]], record: GraphRecord) -> None:
    """Adds origins to rows of `show --json`."""
    for row, node in zip(nodes, record.graph.nodes, strict=True):
        row |= {key: node.meta[key] for key in ("autograd_node", "hook") if key in node.meta}
