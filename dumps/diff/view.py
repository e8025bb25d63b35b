"""A comparison as text: the first node that departs with both user lines, then a short table of the others. Prints
nothing.

Also: the comparison as plain data, which `--json` prints and the text is written from.

>>> from graphdbg.dumps.diff.view import graph_view
>>> print(details(graph_view(diff(saved, run.graph("0_1/forward")), "0_0/forward", "0_1/forward")))
A  0_0/forward  forward, 15 nodes
B  0_1/forward  forward, 16 nodes
nodes: 9 changed, 1 only in B; ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from ..tables import Column, one_line, painted, plain, render
from ..wording import counted
from .arguments import Change, Departure, same_values, shown, text
from .compare import GraphDiff
from .facts import NodeColumns

MORE = 10
"""Departures shown after the first, unless all are wanted."""

_MAX_NAMES = 40


class NodeView(msgspec.Struct):
    """One node of one of the graphs; `line` and `code` are the user's. `call` is the node in Python's notation."""

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
    """One departure. `a` and `b` are its first nodes; where a graph has none, `near_a` or `near_b` is the nearest node
    that it does have.

    `follows`: the first node of the departure that caused this one; `followers`: the number of nodes that follow from
    this one; `times`: the number of departures with the same targets and change, of which this is the first.
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


class GraphPairView(msgspec.Struct):
    """One pair of graphs. `own`: the number of departures that follow from no other; `departures`: the first of each
    sort of them (`sorts`), up to a dozen, or every departure if requested. `id`: the name of both graphs in their runs,
    if equal.
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


def graph_view(comparison: GraphDiff, a: str, b: str, *, everything: bool = False) -> GraphPairView:
    """The comparison as data; with `everything` all departures, not just the first ones that follow from no other."""
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
    counts: dict[str, Any] = comparison.counts
    return GraphPairView(
        a,
        b,
        comparison.verdict,
        nodes_a=len(comparison.a),
        nodes_b=len(comparison.b),
        stage_a=comparison.a.record.stage,
        stage_b=comparison.b.record.stage,
        **counts,
        own=len(own),
        sorts=len(sorts),
        first=None if first is None else views[first],
        departures=views,
        also=comparison.also,
        notes=comparison.notes,
    )


def _sort(comparison: GraphDiff, departure: Departure) -> Hashable:
    """A key that is equal for departures with the same targets and the same changes."""
    changed = tuple((change.aspect, change.place, change.a, change.b) for change in departure.changes)
    return departure.kind, comparison.targets(departure), changed


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
        follows=None if origin is None else comparison.name(origin),
        followers=followers,
        times=times,
    )


def _near(facts: NodeColumns, other: NodeColumns, partners: list[int], places: list[int]) -> NodeView | None:
    """The node of the other graph next to the missing one: the partner of a user, else of an input."""
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


_MAX_CALL = 150
_MAX_CHANGES = 6
_MAX_NAME = 44
_WORDS = {"placeholder": "an input", "get_attr": "a constant", "output": "the output"}
_MAX_ALSO = 12


def details(view: GraphPairView, *, terminal: bool = False, everything: bool = False) -> str:
    """The full text on one pair of graphs."""
    lines = [
        f"{side}  {name}  {stage}" + ("" if count is None else f", {counted(count, 'node')}")
        for side, name, stage, count in (
            ("A", view.a, view.stage_a, view.nodes_a),
            ("B", view.b, view.stage_b, view.nodes_b),
        )
    ]
    lines.append(verdict_text(view))
    if view.first is not None:
        lines += ["", *(_styled(_first(view.first)) if terminal else _first(view.first))]
    rest = [departure for departure in view.departures if departure is not view.first]
    if rest:
        lines += ["", "all others:" if everything else "and by themselves:", _table(rest, terminal, everything)]
    hidden = 0 if everything else view.sorts - len(view.departures)
    if hidden > 0:
        lines.append(f"and {counted(hidden, 'more sort')} of departures")
    if not everything and (view.follows or view.own > len(view.departures)):
        lines += ["", "--all lists every node"]
    for side, error in (("A", view.error_a), ("B", view.error_b)):
        if error:
            lines += ["", f"{side} failed: {one_line(error, _MAX_CALL)}"]
    if view.also:
        lines += ["", "also differs:", *(f"  {plain(text)}" for text in view.also[: None if everything else _MAX_ALSO])]
        if len(view.also) > _MAX_ALSO and not everything:
            lines.append(f"  and {len(view.also) - _MAX_ALSO} more; --all lists them")
    if view.notes:
        lines += ["", *(f"no difference, but worth knowing: {plain(text)}" for text in view.notes)]
    return "\n".join(lines)


def verdict_text(view: GraphPairView) -> str:
    """The comparison in one sentence."""
    remarks = [f"{view.moved} moved"] * bool(view.moved) + [f"{view.renamed} with another name"] * bool(view.renamed)
    remark = f" ({' and '.join(remarks)}: no difference)" if remarks else ""
    if view.verdict == "same":
        return f"same: every node has an equal one{remark}"
    if view.verdict == "settings":
        return f"the nodes are the same{remark}, but settings, inputs or guards differ"
    counts = ((view.changed, "changed"), (view.only_a, "only in A"), (view.only_b, "only in B"))
    text = ", ".join(f"{count} {what}" for count, what in counts if count)
    follow = "follows" if view.follows == 1 else "follow"
    own = f"; {view.follows} of these {follow} from others" if view.follows else ""
    return f"nodes: {text}{own}{remark}"


def _first(departure: DepartureView) -> list[str]:
    what = {
        "changed": "changed",
        "removed": f"{counted(departure.count_a, 'node')} only in A",
        "added": f"{counted(departure.count_b, 'node')} only in B",
        "replaced": f"{counted(departure.count_a, 'node')} of A replaced by {departure.count_b} of B",
    }[departure.kind]
    alike = f" (and {departure.times - 1} more like it)" if departure.times > 1 else ""
    lines = [f"first departure: {what}{alike}"]
    lines += _side("A", departure.a, departure.names_a, departure.count_a, departure.near_a)
    lines += _side("B", departure.b, departure.names_b, departure.count_b, departure.near_b)
    same = " (the same numbers)" if same_values(departure.changes) else ""
    lines += [f"  -> {plain(change.text())}{same}" for change in departure.changes[:_MAX_CHANGES]]
    if len(departure.changes) > _MAX_CHANGES:
        lines.append(f"  -> and {len(departure.changes) - _MAX_CHANGES} more")
    if departure.followers:
        lines.append(f"  {counted(departure.followers, 'node follows', 'nodes follow')} from it")
    return lines


_STYLES = {"first departure": "bold", "  A": "red", "  B": "green", "  -> ": "bold"}


def _styled(lines: list[str]) -> list[str]:
    """The lines with colours for a terminal, unless NO_COLOR is set."""
    from rich.text import Text

    style, shown = "", list[str]()
    for line in lines:
        known = [style for start, style in _STYLES.items() if line.startswith(start)]
        style = known[0] if known else style if line.startswith("     ") else ""
        shown.append(painted(Text(line, style)))
    return shown


def _side(side: str, node: NodeView | None, names: Sequence[str], count: int, near: NodeView | None) -> list[str]:
    chosen = node or near
    if chosen is None:
        return [f"  {side}  nothing there"]
    intro = "" if node else "goes on without: "
    lines = [f"  {side}  {intro}{one_line(chosen.call, _MAX_CALL)}", f"     {_value(chosen)}"]
    if count > 1:
        lines.append(f"     then {', '.join(names[1:9])}" + (f" and {count - 9} more" if count > 9 else ""))
    if chosen.line:
        lines.append(f"     {plain(chosen.line)}  {one_line(chosen.code, _MAX_CALL)}")
    elif chosen.module:
        lines.append(f"     in {one_line(chosen.module, _MAX_CALL)}")
    return lines


def _value(node: NodeView) -> str:
    if not node.dtype:
        return "no value"
    shape = shown(tuple(node.shape)) if isinstance(node.shape, list) else str(node.shape or "")  # type: ignore[arg-type]
    stride = f" stride {shown(tuple(node.stride))}" if node.stride else ""
    return f"{node.dtype} {shape}{stride} {node.device}".rstrip()


def _table(departures: Sequence[DepartureView], terminal: bool, everything: bool) -> str:
    columns = [
        Column("A", style="bold"),
        Column("B", style="bold"),
        Column("what", fold=True),
        Column("line of A", style="green"),
        Column("line of B", style="green", expendable=1),
        Column("follows", style="dim", expendable=2) if everything else Column("times", right=True),
    ]
    rows = [
        [
            _named(departure.names_a, departure.count_a),
            _named(departure.names_b, departure.count_b),
            _what(departure),
            _line(departure.a, departure.near_a),
            _line(departure.b, departure.near_b),
            departure.follows or "" if everything else str(departure.times),
        ]
        for departure in departures
    ]
    return render(columns, rows, terminal=terminal).rstrip("\n")


def _named(names: Sequence[str], count: int) -> str:
    return "-" if not count else one_line(names[0], _MAX_NAME) + (f" +{count - 1}" if count > 1 else "")


def _line(node: NodeView | None, near: NodeView | None) -> str:
    chosen = node or near
    return "" if chosen is None else chosen.line


def _what(departure: DepartureView) -> str:
    text_a, two = _targets(departure.a, departure.count_a), _targets(departure.b, departure.count_b)
    if departure.kind != "changed":
        only = {"removed": f"only in A: {text_a}", "added": f"only in B: {two}"}
        return only.get(departure.kind, f"{text_a} -> {two}")
    more = f" and {counted(len(departure.changes) - 1, 'more change')}" if len(departure.changes) > 1 else ""
    more += " (the same numbers)" if same_values(departure.changes) else ""
    return one_line(departure.changes[0].text(), 70) + more if departure.changes else ""


def _targets(node: NodeView | None, count: int) -> str:
    if node is None:
        return ""
    target = one_line(node.target, _MAX_NAME) if node.op.startswith("call") else _WORDS.get(node.op, node.op)
    return target + (f" and {count - 1} more" if count > 1 else "")


def overview(views: Sequence[GraphPairView], *, terminal: bool = False, everything: bool = False) -> str:
    """The pairs of two runs or processes: those that differ, or with `everything` all of them."""
    named = all(view.id for view in views)
    both = [Column("A", style="bold"), Column("B", style="bold", expendable=1)]
    columns = [
        *([Column("graph", style="bold")] if named else both),
        Column("nodes", expendable=2),
        Column("verdict", style="cyan"),
        *(Column(title, right=True, expendable=3) for title in ("changed", "only A", "only B")),
        Column("first departure", fold=True),
    ]
    rows = [_row(view, named) for view in views if everything or view.verdict != "same" or view.error_a != view.error_b]
    table = [render(columns, rows, terminal=terminal).rstrip("\n")] if rows else []
    return "\n".join([*table, summary(views)])


def _row(view: GraphPairView, named: bool) -> list[str]:
    both = view.nodes_a is not None and view.nodes_b is not None
    counts = [str(count) if both else "" for count in (view.changed, view.only_a, view.only_b)]
    nodes = f"{'-' if view.nodes_a is None else view.nodes_a} / {'-' if view.nodes_b is None else view.nodes_b}"
    names = [view.id] if named else [view.a or "-", view.b or "-"]
    return [*names, nodes, view.verdict.replace("_", " "), *counts, _headline(view)]


def _headline(view: GraphPairView) -> str:
    if view.error_a != view.error_b:
        sides = (("A", view.error_a), ("B", view.error_b))
        failures = [f"{side} failed: {one_line(error, 70)}" for side, error in sides if error]
        if view.first is not None:
            failures.append(_headline(msgspec.structs.replace(view, error_a=None, error_b=None)))
        return "; ".join(failures)
    if view.first is None:
        return one_line((view.also or view.notes or [""])[0], 70)
    first = view.first
    name = _named(first.names_a, first.count_a) if first.count_a else _named(first.names_b, first.count_b)
    line = _line(first.a, first.near_a) if first.count_a else _line(first.b, first.near_b)
    return f"{name}: {_what(first)}" + (f" ({line})" if line else "")


def summary(views: Sequence[GraphPairView]) -> str:
    """A sentence with the number of pairs for each verdict."""
    words = {
        "same": "the same",
        "differs": "differ",
        "settings": "differ only in settings, inputs or guards",
        "only_a": "only in A",
        "only_b": "only in B",
        "unreadable": "cannot be read",
    }
    counts = [(sum(view.verdict == verdict for view in views), text) for verdict, text in words.items()]
    parts = [counted(count, text.replace("differ", "differs"), text) for count, text in counts if count]
    return f"{counted(len(views), 'pair')} of graphs: {', '.join(parts)}" if views else "no graphs to compare"
