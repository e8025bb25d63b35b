"""Cuts a graph's record down to the nodes that a candidate needs, before torch sees it.

A query about three nodes of a large graph then loads three nodes. What a kept node reads and is not kept becomes a placeholder
record with the same name and value; `subgraph.build` gives it its recorded value. Knows nothing of torch.

>>> len(prune(record, {"mm_3"}).graph.nodes)
4
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ..dumps.schema import GraphRecord, NodeRecord
from ..dumps.walk import contents, given, references


def prune(record: GraphRecord, keep: Collection[str], returned: Collection[str] = ()) -> GraphRecord:
    """The record with the kept compute nodes, what they read, the placeholders in use and what is returned."""
    body = record.graph
    needed: set[str] = {*keep, *returned}
    for node in body.nodes:
        if node.name in keep:
            needed |= set(references(given(node)))
    nodes: list[NodeRecord] = []
    for node in body.nodes:
        if node.op == "output":
            nodes.append(_output(node, {*keep, *returned}))
        elif node.op == "placeholder":
            # Symbols are bound by placeholders, so all of them stay where there are any.
            if node.name in needed or record.symbols:
                nodes.append(node)
        elif node.name in needed:
            as_is = node.name in keep or node.op == "get_attr"
            nodes.append(node if as_is else _placeholder(node))
    attrs = {node.target for node in nodes if node.op == "get_attr"}
    inner = set(contents([given(node) for node in nodes], "tensor"))
    modules = {node.target for node in nodes if node.op == "call_module"}
    smaller = msgspec.structs.replace(
        body, nodes=nodes,
        attrs={name: value for name, value in body.attrs.items() if name in attrs or name in inner},
        modules={name: value for name, value in body.modules.items() if name in modules},
        subgraphs={name: value for name, value in body.subgraphs.items() if name in attrs},
    )  # fmt: skip
    present = {node.name for node in nodes}
    return msgspec.structs.replace(
        record, graph=smaller, inputs=[item for item in record.inputs if item.name in present]
    )


def _placeholder(node: NodeRecord) -> NodeRecord:
    return NodeRecord(name=node.name, op="placeholder", target=node.name, value=node.value, stack=node.stack, module=node.module)


def _output(node: NodeRecord, there: Collection[str]) -> NodeRecord:
    left = [{"node": name} for name in dict.fromkeys(references(node.args)) if name in there]
    return msgspec.structs.replace(node, args=[{"tuple": left}], value=None)
