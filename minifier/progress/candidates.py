"""A candidate by its text ("0-19,23 edits [...]") as lines of nodes: what it keeps, and what it drops and changes
beside another.

Needs the names of the atoms: OUT/atoms.jsonl has them. For an older OUT they are told from the table of the original
graph, and only believed where the result has the very same nodes. No torch.

>>> atoms = Atoms.of_table(saved.table)
>>> [line.text for line in difference(parsed("0-1"), parsed("0"), atoms) if line.sign == "-"]
['addmm = aten.addmm.default(primals_2, primals_3, permute)  float32 [2, 16]']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dumps.errors import GraphdbgError
from ...dumps.sidecar import Table, dims_text
from ...dumps.tables import plain
from ..passes import edit_words
from ..results import read_atoms
from ..search.problem import Candidate

CONTEXT = 3
"""Nodes that are shown around a change."""
_TEXT = re.compile(
    r"(?P<keep>[\d,-]*)(?: bypass (?P<bypass>[\d,-]+))?(?: return (?P<returned>nothing|[\d,-]+))?(?: edits "
    r"(?P<edits>.*))?"
)
_RETURN = "return "
"""Before the name of an input, where the atom is that it is returned."""


@dataclass(frozen=True)
class Line:
    """One line of a difference. `sign`: "+" it has more, "-" it has not, "~" bypassed, "@" something else, " " both
    have it."""

    sign: str
    text: str


@dataclass
class Atoms:
    """The nodes of each atom by name, and a line of text per node. `sure`: the search itself named them."""

    nodes: list[tuple[str, ...]]
    lines: dict[str, str]
    sure: bool = False

    @classmethod
    def of_table(cls, table: Table) -> Atoms:
        """As a search would number them: a computing node each, items with what they are taken from; returned inputs
        last."""
        lines = {name: node_line(table, index) for index, name in enumerate(table.name)}
        groups: dict[int, list[str]] = {}
        leader: dict[int, int] = {}
        item = {number for number, text in enumerate(table.strings) if text.endswith("getitem")}
        call = {number for number, text in enumerate(table.strings) if text.startswith("call_")}
        for index, name in enumerate(table.name):
            if table.op[index] not in call:
                continue
            first = next(iter(table.inputs[index]), None)
            own = leader.get(first, index) if first is not None and table.target[index] in item else index
            leader[index] = own
            groups.setdefault(own, []).append(name)
        nodes = [tuple(names) for names in groups.values()]
        if len(table):
            last = len(table) - 1
            nodes += [
                (_RETURN + table.name[index],) for index in dict.fromkeys(table.inputs[last]) if index not in leader
            ]
        return cls(nodes, lines)

    def named(self, out: Path) -> Atoms:
        """The same with the names that the search has written, where it has."""
        try:
            nodes = [tuple(map(str, line["nodes"])) or (str(line["name"]),) for line in read_atoms(out)]
        except (GraphdbgError, ValueError, KeyError, TypeError):
            return self
        return Atoms(nodes, self.lines, sure=True)

    def agrees(self, best: Candidate, names: set[str]) -> bool:
        """Whether a finished case with nodes of these names is what the numbers say."""
        if any(atom >= len(self.nodes) for atom in best.keep):
            return False
        first = [self.nodes[atom][0] for atom in best.keep - best.bypass]
        return all(name in names for name in first if not name.startswith(_RETURN))

    def text(self, atom: int) -> list[str]:
        """The lines of an atom; its number where nothing more is known."""
        if atom >= len(self.nodes):
            return [f"part {atom}"]
        return [self.lines.get(name, name) for name in self.nodes[atom]]


NUMBERS_ONLY = Atoms([], {})
"""Where the graph cannot be read: parts are numbers."""


def node_line(table: Table, index: int) -> str:
    """`mm = aten.mm.default(x, w)  float32 [4, 8]`."""
    text = table.strings
    inputs = ", ".join(table.name[source] for source in table.inputs[index])
    kind = f"  {text[table.dtype[index]]} {dims_text(text[table.shape[index]])}".rstrip()
    return plain(f"{table.name[index]} = {text[table.target[index]]}({inputs}){kind}")


def parsed(text: str) -> Candidate | None:
    """The candidate that `Candidate.text` wrote; None for "original" and what is no candidate."""
    match = _TEXT.fullmatch(text.removeprefix("verify "))
    if match is None:
        return None
    try:
        returned = match["returned"]
        edits: Any = json.loads(match["edits"]) if match["edits"] else []
        return Candidate(
            frozenset(_numbers(match["keep"])),
            frozenset(_numbers(match["bypass"] or "")),
            None if returned is None else frozenset(() if returned == "nothing" else _numbers(returned)),
            tuple(str(edit) for edit in edits),
        )
    except (ValueError, TypeError):
        return None


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)


def whole(atoms: Atoms) -> Candidate:
    """The case that keeps everything."""
    return Candidate.of(range(len(atoms.nodes)))


def state(candidate: Candidate, atoms: Atoms) -> list[Line]:
    """All nodes that a case keeps, then what is changed in it."""
    lines = [
        Line("~" if atom in candidate.bypass else " ", text)
        for atom in sorted(candidate.keep)
        for text in atoms.text(atom)
    ]
    return [*lines, *(Line("@", edit_words(edit)) for edit in candidate.edits)]


def difference(best: Candidate, other: Candidate, atoms: Atoms) -> list[Line]:
    """What `other` keeps, drops (-), has more (+), bypasses (~) against `best`; what both have far from a change is
    counted.

    A node is told as it was in the original: what both change, like a smaller size, comes last."""
    lines: list[Line] = [Line("-", edit_words(edit)) for edit in best.edits if edit not in other.edits]
    lines += [Line("+", edit_words(edit)) for edit in other.edits if edit not in best.edits]
    if other.returned != best.returned:
        lines.append(Line("@", "it returns other values"))
    every = sorted(best.keep | other.keep)
    signs = [_sign(atom, best, other) for atom in every]
    near = {place + step for place, sign in enumerate(signs) if sign != " " for step in range(-CONTEXT, CONTEXT + 1)}
    skipped = 0
    for place, (atom, sign) in enumerate(zip(every, signs, strict=True)):
        if place not in near and len(every) > 2 * CONTEXT:
            skipped += 1
            continue
        if skipped:
            lines.append(Line("@", f"{skipped} more that both keep"))
            skipped = 0
        lines += [Line(sign, text) for text in atoms.text(atom)]
    if skipped:
        lines.append(Line("@", f"{skipped} more that both keep"))
    shared = [edit_words(edit) for edit in other.edits if edit in best.edits]
    return [*lines, Line("@", f"both: {'; '.join(shared)}")] if shared else lines


def _sign(atom: int, best: Candidate, other: Candidate) -> str:
    if atom not in other.keep:
        return "-"
    if atom not in best.keep:
        return "+"
    return "~" if atom in other.bypass and atom not in best.bypass else " "


def atoms_of(graph: str, out: Path, best: Candidate | None) -> tuple[Atoms, str]:
    """The atoms of the graph that OUT is about, and a sentence where they are not sure."""
    from ...dumps.store import resolve_graph

    try:
        table = resolve_graph(graph).table
    except GraphdbgError as error:
        named = NUMBERS_ONLY.named(out)
        return named, f"nodes are shown {'by name only' if named.sure else 'by number'}: {error}"
    atoms = Atoms.of_table(table).named(out)
    if atoms.sure:
        return atoms, ""
    try:
        names = set(resolve_graph(str(out / "case")).table.name)
    except GraphdbgError:
        return atoms, "the names are those that a search would give; nothing here confirms them"
    if best is not None and atoms.agrees(best, names):
        return atoms, ""
    return NUMBERS_ONLY, "nodes are shown by number: the search numbered them in another way than is known now"
