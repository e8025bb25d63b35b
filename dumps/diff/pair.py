"""Pairs the graphs of two runs or parts of runs: by process and id, by lines of code where ids have shifted; and
compares two saved graphs, with the journals' entries on them.

Finding pairs reads tables only where ids differ, and opens no graph.

>>> [(pair.a.id, pair.b.id) for pair in pairs(saved, run.graph("0_1/forward"))]
[('0_0/forward', '0_1/forward')]
>>> diff(saved, run.graph("0_1/forward")).same
False
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import CommandLineError, GraphdbgError, NoPartnerError, NoSuchGraphError
from ..index import ListedGraph, is_run
from ..store import Run, SavedGraph, open_run, resolve
from .compare import GraphDiff, compare
from .view import GraphPairView, graph_view


class GraphGroup(msgspec.Struct):
    """A run, or a part of one: its graphs in order of capture."""

    text: str
    run: Run
    rows: list[ListedGraph]
    kind: Literal["run", "process", "compile"]

    def processes(self) -> dict[str, list[ListedGraph]]:
        """The rows of each process, by the name of its folder, in the order of ranks."""
        by_process: dict[str, list[ListedGraph]] = {}
        for row in self.rows:
            by_process.setdefault(row.process, []).append(row)
        return by_process

    def graph(self, row: ListedGraph) -> SavedGraph:
        """Opens the graph of a row."""
        return SavedGraph(row.path, self.run, row)


def side(text: str) -> SavedGraph | GraphGroup:
    """The graph or part of a run that a text names; raises UsageError saying what was looked for and where."""
    path = Path(os.path.normpath(text))
    if text and "\0" not in text:
        for folder in (path, *path.parents):
            if is_run(folder):
                target = _part(open_run(folder), path.relative_to(folder).as_posix(), text)
                if target is not None:
                    return target
                break
    target = resolve(text)
    return target if isinstance(target, SavedGraph) else GraphGroup(text, target, target.rows, "run")


def _part(run: Run, rest: str, text: str) -> GraphGroup | None:
    """A run, or one of its processes or compiles; None where the text names one graph, or nothing."""
    if rest == ".":
        return GraphGroup(text, run, run.rows, "run")
    process, colon, local = rest.rpartition(":")
    rows = [
        row
        for row in run.rows
        if not colon or row.process == process or (row.rank is not None and process == str(row.rank))
    ]
    if colon and not rows:
        there = ", ".join(known.name if known.rank is None else f"{known.rank}:" for known in run.processes)
        raise NoSuchGraphError(f"{text} names no process that has graphs", f"{run.name} has {there or 'no processes'}")
    if colon and not local:
        return GraphGroup(text, run, _one_process(rows, text), "process")
    if not colon:
        named = [row for row in rows if row.process == rest]
        if named:
            return GraphGroup(text, run, named, "process")
    compiled = [row for row in rows if row.local.partition("/")[0] == local]
    return GraphGroup(text, run, _one_process(compiled, text), "compile") if len(compiled) > 1 else None


def _one_process(rows: list[ListedGraph], text: str) -> list[ListedGraph]:
    names = list(dict.fromkeys(row.process for row in rows))
    if len(names) > 1:
        why, fix = f"processes {', '.join(names)} have it", f"put a process before the id, such as {names[0]}:"
        raise NoSuchGraphError(f"{text} is ambiguous", why, fix)
    return rows


_ALIKE, _ALIKE_AND_NAMESAKE = 0.5, 0.25
"""Two compiles with at least this share of common user lines are of the same function; a smaller share is enough for
two with the same id."""


class Pair(msgspec.Struct):
    """Two graphs to compare; None where one side has no such graph."""

    a: SavedGraph | None
    b: SavedGraph | None


def pairs(a: SavedGraph | GraphGroup, b: SavedGraph | GraphGroup) -> list[Pair]:
    """The graphs of two sides that belong together, in the order of A, then those that only B has. Raises UsageError
    for sides that cannot be compared (a graph, and a part without a graph of its id)."""
    if isinstance(a, SavedGraph):
        return [Pair(a, b if isinstance(b, SavedGraph) else _counterpart(a, b))]
    if isinstance(b, SavedGraph):
        return [Pair(_counterpart(b, a), b)]
    if (a.kind == "compile") != (b.kind == "compile"):
        kinds = f"{a.text} is a {a.kind}, {b.text} a {b.kind}"
        raise NoPartnerError(f"{a.text} and {b.text} cannot be compared", kinds)
    return [pair for rows_a, rows_b in _processes(a, b) for pair in _graphs(a, rows_a, b, rows_b)]


def ranks(part: GraphGroup) -> list[tuple[GraphGroup, GraphGroup]]:
    """Pairs the first process of a run with each other process; raises UsageError for a run of one process."""
    parts = [
        GraphGroup(f"{part.text}/{_label(rows[0])}", part.run, rows, "process") for rows in part.processes().values()
    ]
    if part.kind != "run" or len(parts) < 2:
        why = f"only {part.text} is named, and it is {'one process' if part.kind == 'run' else 'a ' + part.kind}"
        raise CommandLineError("diff needs a second graph, run or process", why, "name it: graphdbg diff A B")
    return [(parts[0], other) for other in parts[1:]]


def _label(row: ListedGraph) -> str:
    return row.id.rpartition(":")[0] + ":" if ":" in row.id else row.process


def _counterpart(graph: SavedGraph, part: GraphGroup) -> SavedGraph:
    wanted = _inside(part, graph.local_id)
    rows = [row for row in part.rows if row.saved and _inside(part, row.local) == wanted]
    if len(rows) > 1:
        rows = [row for row in rows if row.rank == graph.rank] or rows
    if len(rows) != 1:
        listed = ", ".join(row.id for row in (rows or part.rows)[:12])
        what = f"{part.text} has {'several graphs' if rows else 'no graph'} {wanted}"
        raise NoPartnerError(what, f"it holds {listed}", "name one")
    return part.graph(rows[0])


def _inside(part: GraphGroup, local: str) -> str:
    """The name of a graph inside a part; in a compile, its stage alone."""
    return local.partition("/")[2] if part.kind == "compile" else local


def _processes(a: GraphGroup, b: GraphGroup) -> list[tuple[list[ListedGraph], list[ListedGraph]]]:
    """Pairs processes of the same rank, those without a rank in order of start, and two single processes in any case;
    the others stay alone."""
    processes_a, two = list(a.processes().values()), list(b.processes().values())
    if len(processes_a) == len(two) == 1:
        return [(processes_a[0], two[0])]
    paired: list[tuple[list[ListedGraph], list[ListedGraph]]] = []
    for rows in processes_a:
        partner = next((other for other in two if other[0].rank == rows[0].rank), None)
        if partner is not None:
            two.remove(partner)
        paired.append((rows, partner or []))
    return paired + [([], rows) for rows in two]


def _graphs(a: GraphGroup, rows_a: list[ListedGraph], b: GraphGroup, rows_b: list[ListedGraph]) -> list[Pair]:
    names = {} if a.kind == "compile" else _compiles(a, rows_a, b, rows_b)
    wanted = {_inside(b, row.local): row for row in rows_b if row.saved}
    graph_pairs: list[Pair] = []
    for row in (row for row in rows_a if row.saved):
        compiled, _, stage = row.local.partition("/")
        partner = wanted.pop(stage if a.kind == "compile" else f"{names.get(compiled, '')}/{stage}", None)
        graph_pairs.append(Pair(a.graph(row), b.graph(partner) if partner else None))
    return graph_pairs + [Pair(None, b.graph(row)) for row in wanted.values()]


def _compiles(a: GraphGroup, rows_a: list[ListedGraph], b: GraphGroup, rows_b: list[ListedGraph]) -> dict[str, str]:
    """The compiles of A -> those of B. Ids are trusted where both sides have the same ones."""
    compiles_a, two = _by_compile(rows_a), _by_compile(rows_b)
    if compiles_a.keys() == two.keys():
        return {name: name for name in compiles_a}
    lines = [{name: _lines(of, rows) for name, rows in known.items()} for of, known in ((a, compiles_a), (b, two))]
    namesakes = [name for name in compiles_a if name in two]
    alike = [name for name in namesakes if _likeness(lines[0][name], lines[1][name]) >= _ALIKE_AND_NAMESAKE]
    names_in_b = dict(zip(alike, alike, strict=True))
    left = [name for name in two if name not in names_in_b]
    for name in compiles_a:
        likely = max(left, key=lambda other: _likeness(lines[0][name], lines[1][other]), default=None)
        if name not in names_in_b and likely is not None and _likeness(lines[0][name], lines[1][likely]) >= _ALIKE:
            names_in_b[name] = likely
            left.remove(likely)
    for name in compiles_a:
        if name not in names_in_b and name in left:
            names_in_b[name] = name
            left.remove(name)
    return names_in_b


def _by_compile(rows: list[ListedGraph]) -> dict[str, list[ListedGraph]]:
    by_compile: dict[str, list[ListedGraph]] = {}
    for row in rows:
        if row.saved:
            by_compile.setdefault(row.local.partition("/")[0], []).append(row)
    return by_compile


def _lines(part: GraphGroup, rows: list[ListedGraph]) -> frozenset[str]:
    """The user's lines in the first graph of a compile; empty when its table cannot be read."""
    try:
        table = part.graph(rows[0]).table
    except GraphdbgError:
        return frozenset()
    return frozenset(table.strings[place] for place in set(table.code)) - {""}


def _likeness(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0


def diff(a: SavedGraph, b: SavedGraph) -> GraphDiff:
    """Compares two saved graphs; raises UnreadableError when one of them is damaged."""
    return compare(a.record, b.record)


def pair_view(pair: Pair, *, everything: bool = False, strict: bool = False, rank: bool = False) -> GraphPairView:
    """The comparison of a pair as data. A damaged graph raises when `strict`, else gives the verdict "unreadable". With
    `rank`, the pair is named by the id of B, with its rank."""
    a, b = (None if graph is None else graph.name for graph in (pair.a, pair.b))
    view = GraphPairView(a, b, "only_a" if pair.b is None else "only_b")
    if pair.a is not None and pair.b is not None:
        try:
            view = graph_view(diff(pair.a, pair.b), a or "", b or "", everything=everything)
        except GraphdbgError as error:
            if strict:
                raise
            view = GraphPairView(a, b, "unreadable", notes=[str(error)])
    graphs = [graph for graph in (pair.a, pair.b) if graph is not None]
    view.stage_a, view.stage_b = (graph.stage if graph else None for graph in (pair.a, pair.b))
    view.error_a, view.error_b = (graph.error if graph else None for graph in (pair.a, pair.b))
    view.id = graphs[-1].id if rank else _common([graph.local_id for graph in graphs if graph.run is not None])
    return view


def _common(ids: list[str]) -> str:
    """A common name for the graphs of both sides: their id; for two compiles both names and the stage; empty if they
    have nothing in common."""
    compiles, stages = [[local.partition("/")[part] for local in dict.fromkeys(ids)] for part in (0, 2)]
    if len(compiles) < 2:
        return "/".join([*compiles, *stages])
    return f"{' | '.join(compiles)} {stages[0]}" if len(set(stages)) == 1 else ""
