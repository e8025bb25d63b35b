"""Stages as rows of text, one as each ends: amounts with units, times, what changed. Prints nothing.

Where a line is too narrow for what changed, that goes on lines of its own below. Colours are rich's, and NO_COLOR turns
them off.

>>> print(StageRows(width=100).row(StageRow("forward", "lower", made=Amount(64, "buffers"), seconds=0.21)))
forward   lower                     64 buffers      0.21 s
"""

from __future__ import annotations

import textwrap
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from ....dumps import sidecar
from ....dumps.diff.beside import Sideways, aligned, beside_text
from ....dumps.diff.compare import compare
from ....dumps.diff.view import GraphView, details, graph_view, verdict_text
from ....dumps.schema import GraphRecord
from ....dumps.tables import plain
from ....dumps.wording import counted
from ...kernels.records import Amount, CompileRecord, PassRow, StageRow

_WIDTHS = (10, 12, 13, 13, 10)
_MOST_OPERATORS = 6
_MOST_PASSES = 4
_COLOURS = {"failed": "bold red", "skipped": "yellow", "not_run": "dim", "before": "dim"}


class StageRows:
    """Makes lines. `width` 0: no line is too long, as for a pipe."""

    def __init__(self, width: int = 0, *, terminal: bool = False) -> None:
        self.width, self.terminal = width, terminal

    def head(self) -> str:
        """The titles."""
        return styled(_cells("part", "stage", "in", "out", "time") + "changed", "bold", self.terminal)

    def row(self, row: StageRow) -> str:
        """One stage."""
        if row.status in ("before", "not_run"):
            cells = f"{plain(row.part):<{_WIDTHS[0]}}{plain(row.stage):<{sum(_WIDTHS[1:])}}"
            text = row.why if row.status == "before" else f"not run: {row.why}" if row.why else "not run"
        else:
            seconds = "-" if row.seconds is None else f"{row.seconds:.2f} s"
            cells = _cells(row.part, row.stage, _amount(row.took), _amount(row.made), seconds)
            text = change_text(row)
        return styled(self._fitted(cells, plain(text)), _COLOURS.get(row.status, ""), self.terminal)

    def _fitted(self, cells: str, text: str) -> str:
        if not self.width or len(cells) + len(text) <= self.width:
            return (cells + text).rstrip()
        below = textwrap.wrap(text, max(self.width - 6, 20), initial_indent="      ", subsequent_indent="      ")
        return "\n".join([cells.rstrip(), *below])


def change_text(row: StageRow) -> str:
    """What a stage did, in words; "nothing" where a rewriting stage left the graph as it was."""
    if row.status == "failed":
        return f"FAILED {row.why.partition(chr(10))[0]}"[:200]
    parts: list[str] = []
    if row.status == "skipped":
        parts.append(row.why if row.why.startswith("skipped") else f"skipped ({row.why})")
    without = [pass_row for pass_row in row.passes if pass_row.status == "skipped"]
    if without:
        parts.append("without " + ", ".join(dict.fromkeys(pass_row.name for pass_row in without)) + ", as asked")
    parts += _operators(row)
    also = [f"{row.rewired} with other arguments"] * bool(row.rewired) + ["reordered"] * row.reordered
    also += [f"{row.relaid} with other sizes or strides"] * bool(row.relaid)
    parts += also
    active = [pass_row for pass_row in row.passes if pass_row.changes and pass_row.status == "ok"]
    if active:
        named = [_pass(pass_row) for pass_row in sorted(active, key=lambda pass_row: -pass_row.changes)]
        more = f" and {len(named) - _MOST_PASSES} more" if len(named) > _MOST_PASSES else ""
        parts.append(f"by {', '.join(named[:_MOST_PASSES])}{more}")
    if row.replaced:
        parts.append("replaced by another function")
    if not parts and row.status == "ok" and row.stage in ("pre_grad", "joint", "post_grad"):
        ran = len(row.passes)
        parts.append(f"nothing ({counted(ran, 'pass')} ran)" if ran else "nothing")
    fused = _fused(row)
    return "; ".join([*parts, *fused, *(note.partition("\n")[0] for note in row.notes)])


def _pass(row: PassRow) -> str:
    inside = f" in {row.graph}" if row.graph else ""
    patterns = ", ".join(f"{name} {count}" for name, count in list(row.matched.items())[:2]) or str(row.changes)
    lines = f", {row.lines[0].partition(' ')[0]}" if row.lines else ""
    return f"{row.name}{inside} ({patterns}{lines})"


def _fused(row: StageRow) -> list[str]:
    if row.stage != "schedule" or row.took is None or row.made is None or row.made.count >= row.took.count:
        return []
    return [f"{row.took.count - row.made.count} fused away"]


def _operators(row: StageRow) -> list[str]:
    if not row.removed and not row.added:
        return []
    minus, plus = sum(row.removed.values()), sum(row.added.values())
    changes = [(count, f"-{count} {_short(name)}") for name, count in row.removed.items()]
    changes += [(count, f"+{count} {_short(name)}") for name, count in row.added.items()]
    changes.sort(key=lambda change: -change[0])
    text = ", ".join(text for _, text in changes[:_MOST_OPERATORS])
    more = len(changes) - _MOST_OPERATORS
    total = " ".join([f"-{minus}"] * bool(minus) + [f"+{plus}"] * bool(plus))
    return [f"{total}: {text}" + (f" and {more} more" if more > 0 else "")]


def _short(name: str) -> str:
    return name.removesuffix(".default")


def _amount(amount: Amount | None) -> str:
    return "" if amount is None else amount.text()


def _cells(*texts: str) -> str:
    return "".join(f"{plain(text):<{width}}" for text, width in zip(texts, _WIDTHS, strict=True))


def styled(text: str, style: str, terminal: bool) -> str:
    """The text in a colour for a terminal; without NO_COLOR."""
    if not terminal or not style:
        return text
    from rich.console import Console
    from rich.text import Text

    stream = StringIO()
    Console(file=stream, force_terminal=True).print(Text(text, style), soft_wrap=True, end="")
    return stream.getvalue()


_HEAD_LINES = 4
"""Of a side-by-side text: both graphs, the verdict, an empty line; they stand above it already."""


class StageDifference(msgspec.Struct):
    """One part: the stage's row, the view of the differences, and both graphs side by side."""

    row: StageRow
    view: GraphView
    beside: Sideways


def differences(folder: Path, record: CompileRecord, stage: str) -> list[StageDifference]:
    """One difference for each part in which the stage ran to its end."""
    diffs: list[StageDifference] = []
    for part in record.parts:
        for row in part.stages:
            files = [folder / part.part / f"{when}_{stage}.json" for when in ("before", "after")]
            if row.stage == stage and all(file.is_file() for file in files):
                before, after = (msgspec.json.decode(file.read_bytes(), type=GraphRecord) for file in files)
                diffs.append(_difference(row, before, after, record.graph))
    return diffs


def _difference(row: StageRow, before: GraphRecord, after: GraphRecord, graph: str) -> StageDifference:
    names = (f"{graph}, {row.part} before {row.stage}", f"{graph}, {row.part} after {row.stage}")
    comparison = compare(before, after)
    view = graph_view(comparison, *names)
    tables = (sidecar.build(before), sidecar.build(after))
    return StageDifference(row, view, aligned(comparison, *tables, graphs=names, summary=verdict_text(view)))


def difference_text(diffs: list[StageDifference], *, terminal: bool) -> str:
    """All parts, each under a line that says what changed and by which passes."""
    blocks: list[str] = []
    for diff in diffs:
        counts = f"{diff.view.nodes_a} -> {counted(diff.view.nodes_b or 0, 'node')}"
        head = f"{diff.row.stage} of {diff.row.part}: {counts}"
        if diff.view.verdict == "same" and diff.beside.same:
            passes = f" ({counted(len(diff.row.passes), 'pass')} ran)" if diff.row.passes else ""
            moved = f"; {counted(diff.view.moved, 'node')} moved" if diff.view.moved else ""
            renamed = f"; {diff.view.renamed} have another name" if diff.view.renamed else ""
            blocks.append(f"{styled(head, 'bold', terminal)}; nothing changed{passes}{moved}{renamed}")
            continue
        lines = [styled(f"{head}; {change_text(diff.row)}", "bold", terminal), "", _details(diff.view, terminal), ""]
        side_by_side = beside_text(diff.beside, everything=False, terminal=terminal)
        lines += side_by_side.split("\n")[_HEAD_LINES:]
        same = sum(diff.beside.row(index).mark in ("", "moved") for index in range(len(diff.beside)))
        lines.append(f"= {counted(same, 'node')} the same")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _details(view: GraphView, terminal: bool) -> str:
    """The view of `graphdbg diff`, without the hint at its option: what differs stands line by line below."""
    return "\n".join(
        line for line in details(view, terminal=terminal).split("\n") if not line.startswith("--all")
    ).rstrip()


def difference_data(diffs: list[StageDifference]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [{"part": diff.row.part, **msgspec.to_builtins(diff.view)} for diff in diffs]
