"""Shows a candidate, given by its text ("0-19,23 edits [...]"), as lines of nodes: what it keeps, and what it drops and
changes against another one.

Needs the names of the atoms: OUT/atoms.jsonl has them. No torch.

>>> atoms = AtomNames([("permute",), ("addmm",)], node_lines(saved.table))
>>> [line.text for line in difference(parsed("0-1"), parsed("0"), atoms) if line.sign == "-"]
['addmm = aten.addmm.default(primals_2, primals_3, permute)  float32 [2, 16]']
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
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


@dataclass(frozen=True)
class Line:
    """One line of a difference. `sign`: "+" only the other candidate has it, "-" only the best case, "~" bypassed, "@"
    something else, " " both have it."""

    sign: str
    text: str


@dataclass
class AtomNames:
    """The nodes of each atom by name, and a line of text per node."""

    nodes: list[tuple[str, ...]]
    lines: dict[str, str]

    def text(self, atom: int) -> list[str]:
        """The lines of an atom; its number where nothing more is known."""
        if atom >= len(self.nodes):
            return [f"part {atom}"]
        return [self.lines.get(name, name) for name in self.nodes[atom]]


NUMBERS_ONLY = AtomNames([], {})
"""For where the names cannot be read: parts are shown by number."""


def node_lines(table: Table) -> dict[str, str]:
    """Node -> `mm = aten.mm.default(x, w)  float32 [4, 8]`."""
    text, lines = table.strings, dict[str, str]()
    for index, name in enumerate(table.name):
        inputs = ", ".join(table.name[source] for source in table.inputs[index])
        kind = f"  {text[table.dtype[index]]} {dims_text(text[table.shape[index]])}".rstrip()
        lines[name] = plain(f"{name} = {text[table.target[index]]}({inputs}){kind}")
    return lines


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


def whole(atoms: AtomNames) -> Candidate:
    """The case that keeps everything."""
    return Candidate.of(range(len(atoms.nodes)))


def state(candidate: Candidate, atoms: AtomNames) -> list[Line]:
    """All nodes that a case keeps, then what is changed in it."""
    texts = [(atom, text) for atom in sorted(candidate.keep) for text in atoms.text(atom)]
    lines = [Line("~" if atom in candidate.bypass else " ", text) for atom, text in texts]
    return [*lines, *(Line("@", edit_words(edit)) for edit in candidate.edits)]


def difference(best: Candidate, other: Candidate, atoms: AtomNames) -> list[Line]:
    """The nodes that `other` keeps, drops (-), has in addition (+) or bypasses (~) against `best`; nodes of both far
    from a change are counted.

    A node is shown as it was in the original: what both change, like a smaller size, comes last."""
    lines: list[Line] = [Line("-", edit_words(edit)) for edit in best.edits if edit not in other.edits]
    lines += [Line("+", edit_words(edit)) for edit in other.edits if edit not in best.edits]
    if other.returned != best.returned:
        lines.append(Line("@", "it returns other values"))
    every = sorted(best.keep | other.keep)
    signs = [_sign(atom, best, other) for atom in every]
    near = {place + step for place, sign in enumerate(signs) if sign != " " for step in range(-CONTEXT, CONTEXT + 1)}
    rows = zip(every, signs, strict=True)
    far = [place not in near and len(every) > 2 * CONTEXT for place in range(len(every))]
    for is_far, group in groupby(zip(far, rows, strict=True), key=lambda item: item[0]):
        if is_far:
            lines.append(Line("@", f"{len([*group])} more that both keep"))
        else:
            lines += [Line(sign, text) for _, (atom, sign) in group for text in atoms.text(atom)]
    shared = [edit_words(edit) for edit in other.edits if edit in best.edits]
    return [*lines, Line("@", f"both: {'; '.join(shared)}")] if shared else lines


def _sign(atom: int, best: Candidate, other: Candidate) -> str:
    if atom not in other.keep:
        return "-"
    if atom not in best.keep:
        return "+"
    return "~" if atom in other.bypass and atom not in best.bypass else " "


def atoms_of(graph: str, out: Path) -> tuple[AtomNames, str]:
    """The atoms of the graph that OUT is about, and a sentence where their lines or their names are not known."""
    from ...dumps.store import resolve_graph

    lines, doubt = dict[str, str](), ""
    try:
        lines = node_lines(resolve_graph(graph).table)
    except GraphdbgError as error:
        doubt = f"nodes are shown by name only: {error}"
    try:
        nodes = [tuple(map(str, line["nodes"])) or (str(line["name"]),) for line in read_atoms(out)]
    except (GraphdbgError, ValueError, KeyError, TypeError) as error:
        return NUMBERS_ONLY, f"nodes are shown by number: {error}"
    return AtomNames(nodes, lines), doubt
