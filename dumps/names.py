"""Readable names for the inputs and outputs of a graph: "emb.weight", "logits", "grad of emb.weight", "saved for
backward: mul_2, model.py:10". Where the user's program has no name for a value, it is the node and the user's line,
never a number alone.

Reads records only: Dynamo's sources, AOTAutograd's descriptors, and the names that the recorder saved with Dynamo's
graph (NAMES). No torch.

>>> [name for _, name in outputs(saved.record)][:2]
['linear_1, train.py:11', 'saved for backward: x']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from .errors import DamagedError
from .levels import input_source
from .roles import kind_of, of_what
from .schema import GraphBody, GraphRecord, InputRecord, NodeRecord
from .walk import leaves, plain, string, tag_of, user_frame

NAMES = "user_names"
"""Key in GraphBody.meta: {"outputs": [[node of Dynamo's graph, name], ..], "inputs": [name, ..]}, in the order of
Dynamo's graph."""


def input_names(record: GraphRecord) -> dict[str, str]:
    """Placeholder -> its name in the program."""
    return _inputs(record, _sources(record))


def outputs(record: GraphRecord) -> list[tuple[str, str]]:
    """For each output: its node ("" for a number or None), and its name."""
    known = _sources(record)
    inputs, nodes = _inputs(record, known), {node.name: node for node in record.graph.nodes}
    of_dynamo = {node: name for node, name in _table(record.graph)[0] if name}
    last = next((node for node in reversed(record.graph.nodes) if node.op == "output"), None)
    returned = list(leaves(last.args)) if last is not None else []
    described: Any = last.meta.get("desc") if last is not None else None
    made_for = cast("list[Any]", described) if isinstance(described, list) else []
    if len(made_for) != len(returned):
        made_for = [""] * len(returned)
    named_outputs: list[tuple[str, str]] = []
    for text, (tag, content) in zip(made_for, map(tag_of, returned), strict=True):
        node = str(content) if tag == "node" else ""
        own = of_dynamo.get(node) or inputs.get(node)
        own = own or (at(node, line_of(nodes[node], record)) if node in nodes else f"the constant {content}")
        named_outputs.append((node, _result(*kind_of(str(text), known), own)))
    return named_outputs


class GraphNames(NamedTuple):
    """The names of a live graph: placeholder -> name, and the name of each output."""

    inputs: dict[str, str]
    outputs: list[str]


def of_module(gm: Any) -> GraphNames:
    """The names of a live graph: as recorded where a node is unchanged, else the node and the user's line."""
    inputs, known_outputs = getattr(gm, "meta", {}).get("graphdbg", {}).get("names", ({}, []))
    nodes = list(gm.graph.nodes)
    returned = _flat([node.args[0] for node in nodes if node.op == "output"])
    called: list[str] = []
    for place, node in enumerate(returned):
        name = getattr(node, "name", "")
        known = known_outputs[place][1] if place < len(known_outputs) and known_outputs[place][0] == name else ""
        line = user_frame(node.meta.get("stack_trace") or "")[0] if name else ""
        called.append(known or (inputs.get(name) or at(name, line) if name else f"the constant {node}"))
    return GraphNames(
        {node.name: inputs.get(node.name, node.name) for node in nodes if node.op == "placeholder"}, called
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(cast("dict[Any, Any]", value).values())
    if isinstance(value, (list, tuple)):
        return [leaf for part in cast("list[Any]", value) for leaf in _flat(part)]
    return [value]


def at(name: str, line: str) -> str:
    """The description of a value without a user's name: its node, and the line."""
    return f"{name}, {line}" if line else name


def line_of(node: NodeRecord, record: GraphRecord) -> str:
    """The user's line of a node ("model.py:12"); "" where none is known."""
    return user_frame(string(record.strings, node.stack))[0]


def _result(kind: str, of: str, own: str) -> str:
    of = "" if of.startswith(("output[", "args[")) else of
    said = {
        "gradient": f"grad of {of or own}",
        "saved": f"saved for backward: {own}",
        "mutation": f"{of or own}, written in place",
        "alias base": f"base of {of or own}",
    }
    return said.get(kind, of or own)


def _inputs(record: GraphRecord, known: Mapping[str, str]) -> dict[str, str]:
    nodes = {node.name: node for node in record.graph.nodes if node.op == "placeholder"}
    return {item.name: _input(item, nodes.get(item.name), record, known) for item in record.inputs}


def _input(item: InputRecord, node: NodeRecord | None, record: GraphRecord, known: Mapping[str, str]) -> str:
    described: Any = node.meta.get("desc") if node is not None else None
    of = of_what(described, known) if isinstance(described, str) else ""
    if item.role == "tangent":
        return f"grad of {of or item.name}"
    if item.source.startswith(("L[", "G[")):
        return input_source(item.source, item.role)
    if of and not of.startswith("args["):
        return of
    return at(item.name, line_of(node, record)) if node is not None else item.name


def _sources(record: GraphRecord) -> dict[str, str]:
    """Descriptor of an input or output of Dynamo's graph, as text -> its name in the program."""
    named_outputs, given = _table(record.graph)
    name_of = {f"PlainAOTOutput(idx={place})": name for place, (_, name) in enumerate(named_outputs) if name}
    name_of |= {f"PlainAOTInput(idx={place})": name for place, name in enumerate(given) if name}
    sources = {item.name: item for item in record.inputs if item.source.startswith(("L[", "G["))}
    for node in record.graph.nodes:
        described: Any = node.meta.get("desc")
        if node.name in sources and isinstance(described, str):
            name_of[described] = input_source(sources[node.name].source, sources[node.name].role)
    return name_of


def _table(body: GraphBody) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        held = msgspec.convert(plain(body.meta.get(NAMES)) or {}, _NameTable)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise DamagedError("cannot read the graph", f"{error} in its {NAMES}", "record the run again") from error
    return held.outputs, held.inputs


class _NameTable(msgspec.Struct):
    outputs: list[tuple[str, str]] = []
    inputs: list[str] = []
