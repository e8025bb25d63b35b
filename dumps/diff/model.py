"""A comparison as plain data for people and programs: what `--json` prints and what the text is made of. Pure.

>>> found = graph_view(diff(saved, run.graph("0_1/forward")), "a", "b")
>>> found.departures[0].kind, found.departures[0].changes[0].a
('changed', '[2, 8]')
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import msgspec

from .arguments import Change, Departure, shown, text
from .compare import GraphDiff
from .facts import NodeColumns

MORE = 10
"""Departures shown after the first, unless all are wanted."""

_MAX_NAMES = 40


class NodeView(msgspec.Struct):
    """One node of one of the graphs; `line` and `code` are the user's. `call` is the node as Python would write it."""

    name: str
    index: int
    op: str
    target: str
    call: str
    dtype: str
    shape: Any
    stride: Any
    device: str
    line: str
    code: str
    module: str
    users: int


class DepartureView(msgspec.Struct):
    """One departure. `a` and `b` are its first nodes; of a graph that has none of it, `near_a` or `near_b` goes on
    without.

    `follows` is the name of the node that the origin departs with; `followers` counts the nodes that follow from this
    one; `times` is how many departures are like this one (same targets, same change), of which this is the first.
    """

    kind: str
    a: NodeView | None
    b: NodeView | None
    near_a: NodeView | None
    near_b: NodeView | None
    names_a: list[str]
    names_b: list[str]
    count_a: int
    count_b: int
    changes: list[Change]
    follows: str | None
    followers: int
    times: int = 1


class GraphView(msgspec.Struct):
    """One pair of graphs. `own` departures follow from nothing; `departures` holds the first of each sort of them
    (`sorts`), up to a dozen, or every departure when that was asked for. `id` is what both are called in their runs,
    where that is the same.
    """

    a: str | None
    b: str | None
    verdict: str
    id: str = ""
    nodes_a: int | None = None
    nodes_b: int | None = None
    stage_a: str | None = None
    stage_b: str | None = None
    changed: int = 0
    only_a: int = 0
    only_b: int = 0
    follows: int = 0
    moved: int = 0
    renamed: int = 0
    own: int = 0
    sorts: int = 0
    first: DepartureView | None = None
    departures: list[DepartureView] = []
    also: list[str] = []
    notes: list[str] = []
    error_a: str | None = None
    error_b: str | None = None


def graph_view(comparison: GraphDiff, a: str, b: str, *, everything: bool = False) -> GraphView:
    """The comparison as data; with `everything`, each departure and not just the first that follow from nothing."""
    own = [departure for departure in comparison.departures if departure.follows is None]
    sorts: dict[Hashable, list[Departure]] = {}
    for departure in sorted(own, key=comparison.keeps_numbers):
        sorts.setdefault(_sort(comparison, departure), []).append(departure)
    times = {id(alike[0]): len(alike) for alike in sorts.values()}
    listed = comparison.departures if everything else [alike[0] for alike in sorts.values()][: MORE + 1]
    followers = Counter[int]()
    for departure in comparison.departures:
        if departure.follows is not None:
            followers[id(comparison.departures[departure.follows])] += max(len(departure.a), len(departure.b))
    views = [
        _departure(comparison, departure, followers[id(departure)], times.get(id(departure), 1)) for departure in listed
    ]
    first = next((k for k, departure in enumerate(listed) if departure is comparison.first), None)
    counts, records = comparison.counts, (comparison.a.record, comparison.b.record)
    return GraphView(
        a,
        b,
        comparison.verdict,
        nodes_a=len(comparison.a),
        nodes_b=len(comparison.b),
        stage_a=records[0].stage,
        stage_b=records[1].stage,
        changed=counts["changed"],
        only_a=counts["only_a"],
        only_b=counts["only_b"],
        follows=counts["follows"],
        moved=counts["moved"],
        renamed=counts["renamed"],
        own=len(own),
        sorts=len(sorts),
        first=None if first is None else views[first],
        departures=views,
        also=comparison.also,
        notes=comparison.notes,
    )


def _sort(comparison: GraphDiff, departure: Departure) -> Hashable:
    """The sort of a departure: the same targets and the same changes are one sort."""
    targets = [
        tuple(facts.targets[k] for k in places)
        for facts, places in ((comparison.a, departure.a), (comparison.b, departure.b))
    ]
    changed = tuple((change.aspect, change.place, change.a, change.b) for change in departure.changes)
    return departure.kind, *targets, changed


def _departure(comparison: GraphDiff, departure: Departure, followers: int, times: int) -> DepartureView:
    first_a, two = departure.a[:1], departure.b[:1]
    origin = None if departure.follows is None else comparison.departures[departure.follows]
    return DepartureView(
        departure.kind,
        a=_node(comparison.a, first_a[0]) if first_a else None,
        b=_node(comparison.b, two[0]) if two else None,
        near_a=None if first_a else _near(comparison.b, comparison.a, comparison.alignment.to_a, departure.b),
        near_b=None if two else _near(comparison.a, comparison.b, comparison.alignment.to_b, departure.a),
        names_a=[comparison.a.nodes[i].name for i in departure.a[:_MAX_NAMES]],
        names_b=[comparison.b.nodes[j].name for j in departure.b[:_MAX_NAMES]],
        count_a=len(departure.a),
        count_b=len(departure.b),
        changes=departure.changes,
        follows=None if origin is None else _name(comparison, origin),
        followers=followers,
        times=times,
    )


def _name(comparison: GraphDiff, departure: Departure) -> str:
    return comparison.a.nodes[departure.a[0]].name if departure.a else comparison.b.nodes[departure.b[0]].name


def _near(facts: NodeColumns, other: NodeColumns, partners: list[int], places: list[int]) -> NodeView | None:
    """The node of the other graph that shows a lonely one's absence: the partner of a user of it, else of an input."""
    for place in reversed(places):
        for user, _ in facts.users[place]:
            if partners[user] >= 0 and facts.nodes[user].op != "output":
                return _node(other, partners[user])
    for place in places:
        for producer in facts.inputs[place]:
            if partners[producer] >= 0:
                return _node(other, partners[producer])
    return None


def _node(facts: NodeColumns, index: int) -> NodeView:
    node, key = facts.nodes[index], facts.values[index]
    line, code = facts.line(index)
    tensor = bool(key) and key[0] == "tensor"
    dtype = str(key[1]) if tensor else str(key[0]) if key else ""
    shape: Any = list(key[2]) if tensor else shown(key[-1]) if key and key[0] == "sym" else None
    module = facts.module(index).rpartition("\n")[2]
    return NodeView(
        node.name,
        index,
        node.op,
        node.target,
        _call(facts, index),
        dtype,
        shape,
        list(key[3]) if tensor else None,
        str(key[4]) if tensor else "",
        line,
        code,
        module,
        len({user for user, _ in facts.users[index]}),
    )


def _call(facts: NodeColumns, index: int) -> str:
    node, strings = facts.nodes[index], facts.record.strings
    if node.op == "placeholder":
        source = facts.identities[index]
        return f"{node.name}: input" + (f" {source}" if source else "")
    if node.op == "get_attr":
        return f"{node.name} = {node.target}"
    arguments = [text(arg, strings) for arg in node.args]
    arguments += [f"{key}={text(arg, strings)}" for key, arg in node.kwargs.items()]
    if node.op == "output":
        return f"return {', '.join(arguments)}"
    return f"{node.name} = {node.target}({', '.join(arguments)})"
