"""Two saved graphs side by side, for the command and for the screen: reads both and joins their nodes into lines.

>>> print(beside_text(beside(saved, run.graph("0_1/forward")), everything=False))
A  myrun/0_0/forward
B  myrun/0_1/forward
...
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec

from ..errors import NoPartnerError
from ..short import value_of
from ..sidecar import Intern, Table
from ..store import SavedGraph
from ..tables import Column, one_line, plain, render
from ..wording import counted
from .compare import GraphDiff
from .pair import diff
from .view import graph_view, verdict_text

MARKS = ("", "changed", "only A", "only B", "replaced", "moved", "follows", "seq_nr", "saved")
"""The marks of a line. changed, only A, only B and replaced depart by themselves; follows: departs only because others
do; moved is no difference; seq_nr and saved join a forward with its backward."""

OWN = frozenset(("changed", "only A", "only B", "replaced"))
CONTEXT = 2
"""Lines without difference that are shown around a line with one."""
_MAX_TEXT = 160


class SideColumns(msgspec.Struct):
    """One graph as columns: the names of nodes, and the indices in `Sideways.strings` of their targets, values and user
    lines."""

    graph: str
    stage: str
    names: list[str] = []
    targets: list[int] = []
    values: list[int] = []
    lines: list[int] = []


class DiffLine(msgspec.Struct):
    """One line: positions in both graphs (-1: none), its mark, and the difference in words."""

    a: int
    b: int
    mark: str
    text: str


class Sideways(msgspec.Struct):
    """All lines as columns: `a` and `b` are positions, `marks` indices in MARKS, `texts` indices in `strings`;
    `departures` numbers the lines of each departure (-1: none). `same`: neither nodes nor settings differ."""

    summary: str
    sides: list[SideColumns]
    same: bool = False
    strings: list[str] = []
    a: list[int] = []
    b: list[int] = []
    marks: list[int] = []
    texts: list[int] = []
    departures: list[int] = []

    def __len__(self) -> int:
        return len(self.a)

    def row(self, index: int) -> DiffLine:
        """The line at index `index`."""
        return DiffLine(self.a[index], self.b[index], MARKS[self.marks[index]], self.strings[self.texts[index]])

    def starts(self) -> list[int]:
        """The first lines of departures that follow from no other; empty for graphs joined by seq_nr."""
        first_lines: list[int] = []
        last = -1
        for index, (mark, departure) in enumerate(zip(self.marks, self.departures, strict=True)):
            if MARKS[mark] in OWN:
                if departure != last or departure < 0:
                    first_lines.append(index)
                last = departure
        return first_lines

    def near(self) -> list[int]:
        """The lines that differ, and CONTEXT lines around them."""
        own = (index for index, mark in enumerate(self.marks) if MARKS[mark] not in ("", "moved"))
        near = {line for index in own for line in range(index - CONTEXT, index + CONTEXT + 1)}
        return sorted(near & set(range(len(self))))


class _SidewaysBuilder:
    def __init__(self, summary: str, a: tuple[str, str, Table], b: tuple[str, str, Table]) -> None:
        self.sideways = Sideways(summary, [])
        self._intern = Intern({"": 0})
        self.sideways.sides = [self._side(*a), self._side(*b)]

    def _side(self, graph: str, stage: str, table: Table) -> SideColumns:
        strings = table.strings
        known = {place: self._intern(strings[place]) for place in {*table.target, *table.where}}
        pairs = set(zip(table.dtype, table.shape, strict=True))
        values = {pair: self._intern(value_of(strings[pair[0]], strings[pair[1]])) for pair in pairs}
        return SideColumns(
            graph,
            stage,
            table.name,
            [known[place] for place in table.target],
            [values[pair] for pair in zip(table.dtype, table.shape, strict=True)],
            [known[place] for place in table.where],
        )

    def add(self, a: int, b: int, mark: str, text: str = "", departure: int = -1) -> None:
        sideways = self.sideways
        sideways.a.append(a)
        sideways.b.append(b)
        sideways.marks.append(MARKS.index(mark))
        sideways.texts.append(self._intern(one_line(text, _MAX_TEXT) if text else ""))
        sideways.departures.append(departure)

    def whole(self) -> Sideways:
        self.sideways.strings = list(self._intern)
        return self.sideways


def aligned(comparison: GraphDiff, a: Table, b: Table, *, graphs: tuple[str, str], summary: str) -> Sideways:
    """The lines of two graphs that were compared."""
    builder = _SidewaysBuilder(
        summary, (graphs[0], comparison.a.record.stage, a), (graphs[1], comparison.b.record.stage, b)
    )
    builder.sideways.same = comparison.same
    of_a = {i: place for place, departure in enumerate(comparison.departures) for i in departure.a}
    of_b = {j: place for place, departure in enumerate(comparison.departures) for j in departure.b}
    chained = set(comparison.alignment.chain())
    for i, j in _places(comparison):
        place = of_a.get(i, of_b.get(j, -1))
        partners = i >= 0 and comparison.alignment.to_b[i] == j and j >= 0
        alone = "only A" if j < 0 else "only B"
        if place < 0:
            builder.add(i, j, "" if (i, j) in chained else "moved" if partners else alone)
            continue
        departure = comparison.departures[place]
        if departure.follows is not None:
            origin = comparison.departures[departure.follows]
            builder.add(i, j, "follows", f"follows from {comparison.name(origin)}", place)
            continue
        mark = "changed" if partners else "replaced" if i >= 0 and j >= 0 else alone
        more = f" and {len(departure.changes) - 1} more" if len(departure.changes) > 1 else ""
        builder.add(i, j, mark, departure.changes[0].text() + more if departure.changes and partners else "", place)
    return builder.whole()


def _places(comparison: GraphDiff) -> Iterator[tuple[int, int]]:
    """Yields every node of both graphs once, partners together, in the order of A; nodes that only B has stand where B
    has them."""
    alignment = comparison.alignment
    before = (-1, -1)
    for i, j in [*alignment.chain(), (len(comparison.a), len(comparison.b))]:
        only_b = [y for y in range(before[1] + 1, j) if alignment.to_a[y] < 0]
        only_a: list[int] = []
        for x in range(before[0] + 1, i):
            if alignment.to_b[x] >= 0:
                yield x, alignment.to_b[x]  # moved
            else:
                only_a.append(x)
        yield from ((-1 if x is None else x, -1 if y is None else y) for x, y in zip_longest(only_a, only_b))
        if i < len(comparison.a):
            yield i, j
        before = (i, j)


def joined(a: Table, b: Table, *, graphs: tuple[str, str], stages: tuple[str, str]) -> Sideways:
    """A forward beside its backward: every node of A in order, beside it the nodes of B with the same seq_nr or
    name."""
    builder = _SidewaysBuilder("", (graphs[0], stages[0], a), (graphs[1], stages[1], b))
    waiting: defaultdict[int, deque[int]] = defaultdict(deque)
    for j, number in enumerate(b.seq_nr):
        if number >= 0 and b.strings[b.op[j]].startswith("call_"):
            waiting[number].append(j)
    saved = {name: j for j, name in enumerate(b.name) if b.strings[b.op[j]] == "placeholder"}
    last = {number: i for i, number in enumerate(a.seq_nr) if number >= 0}
    taken: set[int] = set()

    def take(i: int, j: int, mark: str) -> None:
        taken.add(j)
        builder.add(i, j, mark)

    for i, name in enumerate(a.name):
        number, free = a.seq_nr[i], True
        if name in saved:
            take(i, saved[name], "saved")
            free = False
        group = waiting[number] if number >= 0 and a.strings[a.op[i]].startswith("call_") else deque[int]()
        while group and (free or last[number] == i):
            take(i if free else -1, group.popleft(), "seq_nr")
            free = False
        if free:
            builder.add(i, -1, "")
    for j in range(len(b.name)):
        if j not in taken:
            builder.add(-1, j, "")
    pairs, kept = (builder.sideways.marks.count(MARKS.index(mark)) for mark in ("seq_nr", "saved"))
    joined, saved = counted(pairs, "node", form=","), counted(kept, "value", form=",")
    builder.sideways.summary = f"{joined} of B joined by seq_nr, {saved} of A saved for B"
    return builder.whole()


SIGNS: dict[str, str] = dict(zip(MARKS, " ~-+±↕·=s", strict=True))
"""One character for each mark."""
_COLOURS = {"-": "red", "+": "green", "~": "yellow", "±": "yellow", "·": "dim"}


def beside(a: SavedGraph, b: SavedGraph, *, by_seq_nr: bool = False) -> Sideways:
    """The lines of two graphs. Raises UnreadableError for a damaged graph, UsageError for graphs without any common
    seq_nr."""
    graphs = (a.name, b.name)
    if by_seq_nr:
        by_number = joined(a.table, b.table, graphs=graphs, stages=(a.stage, b.stage))
        if not any(by_number.marks):
            what, why = " and ".join(graphs), "their nodes have no seq_nr in common, and no name of an input"
            raise NoPartnerError(f"{what} cannot be joined", why, "name a forward and its backward")
        return by_number
    comparison = diff(a, b)
    return aligned(comparison, a.table, b.table, graphs=graphs, summary=verdict_text(graph_view(comparison, *graphs)))


def beside_text(sideways: Sideways, *, everything: bool, terminal: bool = False) -> str:
    """The lines as a table; without `everything` those that differ, and some around them."""
    a, b = sideways.sides
    columns = [Column("")]
    for letter in "AB":
        columns += [Column("#", right=True, expendable=3), Column(letter, style="bold")]
        columns += [Column("target", expendable=2), Column("value", expendable=1)]
    columns.append(Column("what", fold=True))
    cells: list[Sequence[str]] = []
    last = -1
    for index in [*(range(len(sideways)) if everything else sideways.near()), len(sideways)]:
        if index > last + 1:
            cells.append([""] * 2 + [f"... {index - last - 1} alike"] + [""] * 7)
        last = index
        if index < len(sideways):
            row, strings = sideways.row(index), sideways.strings
            sides = [
                [str(at), side.names[at], strings[side.targets[at]], strings[side.values[at]]] if at >= 0 else [""] * 4
                for side, at in ((a, row.a), (b, row.b))
            ]
            cells.append([SIGNS[row.mark], *sides[0], *sides[1], row.text or row.mark])
    head = [f"A  {plain(a.graph)}", f"B  {plain(b.graph)}", sideways.summary, ""]
    styles = [_COLOURS.get(row[0], "") for row in cells]
    return "\n".join([*head, render(columns, cells, terminal=terminal, styles=styles).rstrip("\n")])
