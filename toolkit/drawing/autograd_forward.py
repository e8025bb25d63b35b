"""The forward of a backward that compiled autograd recorded, as its autograd nodes tell it: no graph of the forward exists.

One node for each operation that autograd saw and each parameter, in the forward's order. The backward's nodes belong to it by the
number of their autograd node ("MulBackward0 (NodeCall 3)"). Reads the record alone.

>>> forward, links = of(saved.record, backward)
"""

from __future__ import annotations

import re

from ...dumps.browse.captured_backward import facts
from ...dumps.schema import GraphRecord
from ...dumps.tables import plain
from .families import family
from .source import DrawnGraph, DrawnNode

_NUMBER = re.compile(r"\(NodeCall (\d+)\)")


def of(record: GraphRecord, backward: DrawnGraph) -> tuple[DrawnGraph, list[tuple[int, int]]]:
    """The forward, and which of its nodes each saved input of the backward graph is; empty where the record does not tell it."""
    places: dict[int, int] = {}
    nodes: list[DrawnNode] = []
    for row in facts(record).get("forward", []):
        name, number, made_from, sizes = row
        index = places[number] = len(nodes)
        parameter = not made_from and not _is_operator(name)
        base = name if parameter else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        op, target = ("placeholder", name) if parameter else ("call_function", f"aten.{base}.default")
        inputs = [places[other] for other in made_from if other in places]
        kind = family(op, target, "parameter" if parameter else "")
        node = DrawnNode(
            index, plain(f"{base}_{number}"), op, plain(target), plain(base), kind, f"[{', '.join(map(str, sizes))}]", inputs,
            source=plain(name) if parameter else "",
        )  # fmt: skip
        nodes.append(node)
        for used in inputs:
            nodes[used].users.append(index)
    _lend(record, backward, nodes, places)
    linked = [
        (places[number], node.index)
        for node in backward.nodes
        if node.op == "placeholder" and (number := _number(node.source)) in places
    ]
    return DrawnGraph(f"the forward of {record.id}", "forward", nodes), linked


def _lend(record: GraphRecord, backward: DrawnGraph, nodes: list[DrawnNode], places: dict[int, int]) -> None:
    """The user's lines, noted on the backward's nodes, and a common number, by which a box says whose gradient it is."""
    for node, recorded in zip(backward.nodes, record.graph.nodes, strict=True):
        index = places.get(_number(str(recorded.meta.get("autograd_node", ""))))
        if index is not None:
            nodes[index].where, nodes[index].code, nodes[index].frames = node.where, node.code, node.frames
            nodes[index].seq_nr = node.seq_nr = 1 + index


def _is_operator(name: str) -> bool:
    return name[:1].isupper() and "." not in name and name.isidentifier()


def _number(text: str) -> int:
    found = _NUMBER.search(text)
    return int(found[1]) if found else -1
