"""A comparison as text: the first node that departs with both user lines, then a short table of the others. Prints
nothing.

>>> from graphdbg.dumps.diff.model import graph_view
>>> print(details(graph_view(diff(saved, run.graph("0_1/forward")), "0_0/forward", "0_1/forward")))
A  0_0/forward  forward, 15 nodes
B  0_1/forward  forward, 16 nodes
nodes: 9 changed, 1 only in B; ...
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..tables import Column, one_line, plain, render
from ..wording import counted
from .arguments import same_values, shown
from .model import DepartureView, GraphView, NodeView

_MAX_CALL = 150
_MAX_CHANGES = 6
_MAX_NAME = 44
_WORDS = {"placeholder": "an input", "get_attr": "a constant", "output": "the output"}
_MAX_ALSO = 12


def details(view: GraphView, *, terminal: bool = False, everything: bool = False) -> str:
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


def verdict_text(view: GraphView) -> str:
    """The comparison in one sentence."""
    remarks = [f"{view.moved} moved"] * bool(view.moved) + [f"{view.renamed} with another name"] * bool(view.renamed)
    remark = f" ({' and '.join(remarks)}: no difference)" if remarks else ""
    if view.verdict == "same":
        return f"same: every node has an equal one{remark}"
    if view.verdict == "settings":
        return f"the nodes are the same{remark}, the surroundings differ"
    counts = ((view.changed, "changed"), (view.only_a, "only in A"), (view.only_b, "only in B"))
    text = ", ".join(f"{count} {what}" for count, what in counts if count)
    own = (
        f"; {view.follows} of these {'follows' if view.follows == 1 else 'follow'} from others" if view.follows else ""
    )
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
    """The lines with colours for a terminal, which are switched off as everywhere (NO_COLOR)."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    stream = StringIO()
    console = Console(file=stream, force_terminal=True)
    style = ""
    for line in lines:
        known = [style for start, style in _STYLES.items() if line.startswith(start)]
        style = known[0] if known else style if line.startswith("     ") else ""
        console.print(Text(line, style), soft_wrap=True)
    return stream.getvalue().splitlines()


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
    text_a, two = (
        _targets(node, count) for node, count in ((departure.a, departure.count_a), (departure.b, departure.count_b))
    )
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


def overview(views: Sequence[GraphView], *, terminal: bool = False, everything: bool = False) -> str:
    """The pairs of two runs or processes: those that differ, or with `everything` all of them."""
    named = all(view.id for view in views)
    columns = [
        *(
            [Column("graph", style="bold")]
            if named
            else [Column("A", style="bold"), Column("B", style="bold", expendable=1)]
        ),
        Column("nodes", expendable=2),
        Column("verdict", style="cyan"),
        Column("changed", right=True, expendable=3),
        Column("only A", right=True, expendable=3),
        Column("only B", right=True, expendable=3),
        Column("first departure", fold=True),
    ]
    rows = [_row(view, named) for view in views if everything or view.verdict != "same" or view.error_a != view.error_b]
    table = [render(columns, rows, terminal=terminal).rstrip("\n")] if rows else []
    return "\n".join([*table, summary(views)])


def _row(view: GraphView, named: bool) -> list[str]:
    both = view.nodes_a is not None and view.nodes_b is not None
    counts = [str(count) if both else "" for count in (view.changed, view.only_a, view.only_b)]
    nodes = f"{'-' if view.nodes_a is None else view.nodes_a} / {'-' if view.nodes_b is None else view.nodes_b}"
    names = [view.id] if named else [view.a or "-", view.b or "-"]
    return [*names, nodes, view.verdict.replace("_", " "), *counts, _headline(view)]


def _headline(view: GraphView) -> str:
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


def summary(views: Sequence[GraphView]) -> str:
    """How many pairs have each verdict."""
    words = {
        "same": "the same",
        "differs": "differ",
        "settings": "differ in the surroundings only",
        "only_a": "only in A",
        "only_b": "only in B",
        "unreadable": "cannot be read",
    }
    counts = [(sum(view.verdict == verdict for view in views), text) for verdict, text in words.items()]
    parts = [counted(count, text.replace("differ", "differs"), text) for count, text in counts if count]
    return f"{counted(len(views), 'pair')} of graphs: {', '.join(parts)}" if views else "no graphs to compare"
