"""`--diff STAGE`: the graph before a stage beside the graph after it, aligned and shown as `graphdbg diff` shows two graphs.

>>> print(difference_text(differences(folder, told, "joint"), terminal=False))
joint: 120 -> 118 nodes; -3 +1: ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ....dumps import sidecar
from ....dumps.diff.beside import beside_text
from ....dumps.diff.compare import compare
from ....dumps.diff.model import GraphView, graph_view
from ....dumps.diff.sideways import Sideways, aligned
from ....dumps.diff.view import details, verdict_text
from ....dumps.schema import GraphRecord
from ....dumps.wording import counted
from .records import StageRow, Told
from .stage_rows import change_text, styled

_HEAD_LINES = 4
"""Of a side-by-side text: both graphs, the verdict, an empty line; they stand above it already."""


class Difference(msgspec.Struct):
    """One part: the stage's row, the departures, and both graphs line by line."""

    row: StageRow
    view: GraphView
    beside: Sideways


def differences(folder: Path, told: Told, stage: str) -> list[Difference]:
    """One for each part in which the stage ran to its end."""
    found: list[Difference] = []
    for part in told.parts:
        for row in part.stages:
            files = [folder / part.part / f"{when}_{stage}.json" for when in ("before", "after")]
            if row.stage == stage and all(file.is_file() for file in files):
                before, after = (msgspec.json.decode(file.read_bytes(), type=GraphRecord) for file in files)
                found.append(_difference(row, before, after, told.graph))
    return found


def _difference(row: StageRow, before: GraphRecord, after: GraphRecord, graph: str) -> Difference:
    names = (f"{graph}, {row.part} before {row.stage}", f"{graph}, {row.part} after {row.stage}")
    found = compare(before, after)
    view = graph_view(found, *names)
    tables = (sidecar.build(before), sidecar.build(after))
    return Difference(row, view, aligned(found, *tables, graphs=names, summary=verdict_text(view)))


def difference_text(found: list[Difference], *, terminal: bool) -> str:
    """All parts, each under a line that says what changed and by which passes."""
    blocks: list[str] = []
    for one in found:
        counts = f"{one.view.nodes_a} -> {counted(one.view.nodes_b or 0, 'node')}"
        head = f"{one.row.stage} of {one.row.part}: {counts}"
        if one.view.verdict == "same" and one.beside.same:
            passes = f" ({counted(len(one.row.passes), 'pass')} ran)" if one.row.passes else ""
            moved = f"; {counted(one.view.moved, 'node')} moved" if one.view.moved else ""
            renamed = f"; {one.view.renamed} have another name" if one.view.renamed else ""
            blocks.append(f"{styled(head, 'bold', terminal)}; nothing changed{passes}{moved}{renamed}")
            continue
        lines = [
            styled(f"{head}; {change_text(one.row)}", "bold", terminal),
            "",
            _details(one.view, terminal),
            "",
        ]
        side_by_side = beside_text(one.beside, everything=False, terminal=terminal)
        lines += side_by_side.split("\n")[_HEAD_LINES:]
        same = sum(one.beside.row(index).mark in ("", "moved") for index in range(len(one.beside)))
        lines.append(f"= {counted(same, 'node')} the same")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _details(view: GraphView, terminal: bool) -> str:
    """The view of `graphdbg diff`, without the hint at its option: what differs stands line by line below."""
    return "\n".join(
        line for line in details(view, terminal=terminal).split("\n") if not line.startswith("--all")
    ).rstrip()


def difference_data(found: list[Difference]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [{"part": one.row.part, **msgspec.to_builtins(one.view)} for one in found]
