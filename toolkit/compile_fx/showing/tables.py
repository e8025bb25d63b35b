"""Stages as rows of text, one as each ends, and the table of kernels: what each is made of, moves and computes. View
models in, text out; prints nothing.

Where a line is too narrow for what changed, that goes on lines of its own below. Colours are rich's, and NO_COLOR turns
them off.

>>> print(StageRows(width=100).row(StageRow("forward", "lower", produced=Amount(64, "buffers"), seconds=0.21)))
forward   lower                     64 buffers      0.21 s

For example:

    print(kernel_table(part))
    # kernel               kind  nodes     read  written    FLOPs  FLOP/byte  fused (first user line)
    # extern_kernels.addmm extern    1  2.0 MiB 512.0 KiB  134M        51.5  addmm  model.py:41
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....dumps import sidecar
from ....dumps.diff.beside import Sideways, aligned, beside_text
from ....dumps.diff.compare import compare
from ....dumps.diff.view import GraphPairView, details, graph_view, verdict_text
from ....dumps.schema import GraphRecord
from ....dumps.tables import Column, painted, plain, render
from ....dumps.wording import count_text, counted, listed, size_text
from ...kernels.records import Amount, BufferRow, CompiledRow, CompileRecord, KernelRow, PartRow, PassRow, StageRow
from ..stage import REWRITING

_WIDTHS = (10, 12, 13, 13, 10)
_MOST_OPERATORS = 6
_MOST_PASSES = 4
_COLOURS = {"failed": "bold red", "skipped": "yellow", "not_run": "dim", "before": "dim"}


class StageRows:
    """Makes lines. `width` 0: no line is too long, as for a pipe."""

    def __init__(self, width: int = 0, *, terminal: bool = False) -> None:
        self.width, self.terminal = width, terminal

    def head(self) -> str:
        """The line of column titles."""
        return styled(_cells("part", "stage", "in", "out", "time") + "changed", "bold", self.terminal)

    def row(self, row: StageRow) -> str:
        """The line of one stage, with lines below it where it is too long."""
        if row.status in ("before", "not_run"):
            cells = f"{plain(row.part):<{_WIDTHS[0]}}{plain(row.stage):<{sum(_WIDTHS[1:])}}"
            text = row.why if row.status == "before" else f"not run: {row.why}" if row.why else "not run"
        else:
            seconds = "-" if row.seconds is None else f"{row.seconds:.2f} s"
            cells = _cells(row.part, row.stage, _amount(row.took), _amount(row.produced), seconds)
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
    parts += [f"{row.rewired} with other arguments"] * bool(row.rewired) + ["reordered"] * row.reordered
    parts += [f"{row.relaid} with other sizes or strides"] * bool(row.relaid)
    if active := [pass_row for pass_row in row.passes if pass_row.changes and pass_row.status == "ok"]:
        parts.append(f"by {listed(map(_pass, sorted(active, key=lambda pass_row: -pass_row.changes)), _MOST_PASSES)}")
    if row.replaced:
        parts.append("replaced by another function")
    if not parts and row.status == "ok" and row.stage in REWRITING:
        ran = len(row.passes)
        parts.append(f"nothing ({counted(ran, 'pass')} ran)" if ran else "nothing")
    return "; ".join([*parts, *_fused(row), *(note.partition("\n")[0] for note in row.notes)])


def _pass(row: PassRow) -> str:
    inside = f" in {row.graph}" if row.graph else ""
    patterns = ", ".join(f"{name} {count}" for name, count in list(row.matched.items())[:2]) or str(row.changes)
    lines = f", {row.lines[0].partition(' ')[0]}" if row.lines else ""
    return f"{row.name}{inside} ({patterns}{lines})"


def _fused(row: StageRow) -> list[str]:
    if row.stage != "schedule" or row.took is None or row.produced is None or row.produced.count >= row.took.count:
        return []
    return [f"{row.took.count - row.produced.count} fused away"]


def _operators(row: StageRow) -> list[str]:
    if not row.removed and not row.added:
        return []
    minus, plus = sum(row.removed.values()), sum(row.added.values())
    changes = [(count, f"-{count} {_short(name)}") for name, count in row.removed.items()]
    changes += [(count, f"+{count} {_short(name)}") for name, count in row.added.items()]
    changes.sort(key=lambda change: -change[0])
    total = " ".join([f"-{minus}"] * bool(minus) + [f"+{plus}"] * bool(plus))
    return [f"{total}: {listed((text for _, text in changes), _MOST_OPERATORS)}"]


def _short(name: str) -> str:
    return name.removesuffix(".default")


def _amount(amount: Amount | None) -> str:
    return "" if amount is None else amount.text()


def _cells(*texts: str) -> str:
    return "".join(f"{plain(text):<{width}}" for text, width in zip(texts, _WIDTHS, strict=True))


def styled(text: str, style: str, terminal: bool) -> str:
    """The text in a style, for a terminal; NO_COLOR turns styles off."""
    if not terminal or not style:
        return text
    from rich.text import Text

    return painted(Text(text, style))


_HEAD_LINES = 4
"""How many first lines of a side-by-side text are left out (both graphs, the verdict, an empty line): they were printed
above."""


class StageDifference(msgspec.Struct):
    """One part: the stage's row, the view of the differences, and both graphs side by side."""

    row: StageRow
    view: GraphPairView
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


def _details(view: GraphPairView, terminal: bool) -> str:
    """The view of `graphdbg diff`, without the hint at its option: what differs stands line by line below."""
    lines = details(view, terminal=terminal).split("\n")
    return "\n".join(line for line in lines if not line.startswith("--all")).rstrip()


def difference_data(diffs: list[StageDifference]) -> list[dict[str, Any]]:
    """The differences as plain data, for JSON."""
    return [{"part": diff.row.part, **msgspec.to_builtins(diff.view)} for diff in diffs]


MOST_ROWS = 40
"""The most rows of a kernel table on a terminal."""
_NAMES = 4
_WIDE = 110

VIEW = "a view: no code of its own"
DEAD = "nothing uses it"
SIZE = "a size: computed in the wrapper"
REWRITTEN = "removed or replaced by post_grad"
FOLDED = "folded into others by lowering: no kernel names it"


def kernel_table(part: PartRow, *, terminal: bool = False) -> str:
    """The kernels of a part in the order of their calls, and the map between nodes and kernels in a line."""
    columns = [
        Column("kernel", style="bold"),
        Column("kind", style="cyan"),
        Column("nodes", right=True, expendable=4),
        *(Column(name, right=True, expendable=1) for name in ("read", "written", "FLOPs")),
        Column("FLOP/byte", right=True, expendable=2),
        Column("line", style="green"),
        Column("fused", expendable=3),
    ]
    shown = part.kernels[:MOST_ROWS] if terminal else part.kernels
    lines = [render(columns, [_row(row, terminal) for row in shown], terminal=terminal).rstrip("\n")]
    if len(shown) < len(part.kernels):
        lines.append(f"... {len(part.kernels) - len(shown)} more: --json, or into a file")
    if any(row.estimated for row in part.kernels):
        lines.append("~ from the hints of symbolic sizes")
    lines.append(f"map: {summary(part.node_to_kernel, part.without_kernel)}. The whole map: --json, or -o DIR")
    return "\n".join(lines)


def summary(node_to_kernel: Mapping[str, Sequence[str]], without: Mapping[str, str]) -> str:
    """The map in a line: how many nodes are in kernels, how many in none and why."""
    kernels = {name for names in node_to_kernel.values() for name in names}
    text = f"{counted(len(node_to_kernel), 'node')} in {counted(len(kernels), 'kernel')}"
    if not without:
        return text
    words = {
        VIEW: ("view", "views"),
        DEAD: ("unused", "unused"),
        SIZE: ("size", "sizes"),
        REWRITTEN: ("rewritten by post_grad", "rewritten by post_grad"),
        FOLDED: ("folded", "folded"),
    }
    part = ("part of another's result", "parts of another's result")
    counts = Counter(words.get(why, part) for why in without.values())
    reasons = ", ".join(counted(count, *word) for word, count in counts.most_common())
    return f"{text}, {len(without)} in none ({reasons})"


def buffer_table(buffers: list[BufferRow]) -> str:
    """The table of buffers that lowering made."""
    columns = [Column("buffer"), Column("kind"), Column("dtype"), Column("size"), Column("nodes")]
    rows = [(row.name, row.kind, row.dtype, f"[{', '.join(row.size)}]", ", ".join(row.nodes)) for row in buffers]
    return render(columns, rows)


def _row(row: KernelRow, terminal: bool) -> list[str]:
    rate = "-" if row.intensity == 0 else "?" if row.intensity is None else _about(f"{row.intensity:.3g}", row)
    names = ", ".join(row.nodes[:_NAMES]) + (f", ... (+{len(row.nodes) - _NAMES})" if len(row.nodes) > _NAMES else "")
    label = _cut(row.label) if terminal else row.label
    flops = "-" if row.flops == 0 else _about(count_text(row.flops), row)
    read, written = (_about(size_text(size), row) for size in (row.bytes_read, row.bytes_written))
    line = row.lines[0] if row.lines else ""
    return [label, row.kind, str(len(row.nodes)), read, written, flops, rate, line, names]


def _about(amount: str, row: KernelRow) -> str:
    return f"~{amount}" if row.estimated and amount != "?" else amount


def _cut(label: str) -> str:
    """A name that leaves room for the numbers: its beginning, and its end, which tells kernels apart."""
    limit = 48 if shutil.get_terminal_size().columns >= _WIDE else 26
    return label if len(label) <= limit else f"{label[: limit - 7]}...{label[-4:]}"


_COMMENT = {"ptx": "//", "ttir": "//", "ttgir": "//", "llir": ";"}


def compiled_table(part: PartRow, *, terminal: bool = False) -> str:
    """One row for each candidate, in the order of the kernels."""
    compared = any(row.recorded for row in part.compiled)
    columns = [
        Column("kernel", style="bold"),
        Column("config", expendable=1),
        *(Column(name, right=True) for name in ("regs", "spills", "shared")),
    ]
    if compared:
        columns.append(Column("recorded", expendable=2))
    columns.append(Column("line", style="green", expendable=3))
    rows = [_compiled(row, part.kernels, compared) for row in part.compiled]
    return render(columns, rows, terminal=terminal).rstrip("\n")


def _compiled(row: CompiledRow, kernels: Sequence[KernelRow], compared: bool) -> list[str]:
    lines = next((kernel.lines for kernel in kernels if kernel.name == row.name and kernel.lines), [])
    name = row.name if row.count == 1 else f"{row.name} ({row.place + 1} of {row.count})"
    line = lines[0] if lines else ""
    recorded = [row.recorded] if compared else []
    if row.error:
        return [name, f"failed: {row.error}", "-", "-", "-", *recorded, line]
    registers = "?" if row.registers is None else str(row.registers)
    spills = None if row.spill_stores is None or row.spill_loads is None else row.spill_stores + row.spill_loads
    return [name, row.config, registers, _bytes(spills), _bytes(row.shared), *recorded, line]


def _bytes(count: int | None) -> str:
    return "-" if count == 0 else size_text(count)


def notes_of(record: CompileRecord) -> list[str]:
    """Notes for the reader of the table."""
    rows = [row for part in record.parts for row in part.compiled]
    notes: list[str] = []
    if not rows and record.target:
        notes.append("there is no Triton kernel in it: all is library calls")
    if several := sorted({row.name for row in rows if row.count > 1}):
        count = f"{counted(len(several), 'kernel has', 'kernels have')} several candidates"
        notes.append(f"{count}: on a GPU they are timed at the first run; what is printed is the first")
    if any(row.spill_stores or row.spill_loads for row in rows):
        notes.append("spills: bytes that each thread writes to and reads from memory because registers ran out")
    notes += [f"{row.name} is not compiled: {row.error}" for row in failed_kernels(record)]
    if differing := sorted({row.name for row in rows if row.recorded in ("differs", "not recorded")}):
        versions = f"recorded with torch {record.recorded_with}, here torch {record.torch}"
        why = versions if record.recorded_with != record.torch else "settings or chip differ"
        notes.append(f"{counted(len(differing), 'kernel is', 'kernels are')} not as recorded: {why}")
    return notes


def failed_kernels(record: CompileRecord) -> list[CompiledRow]:
    """Kernels of which no candidate compiled."""
    rows = [row for part in record.parts for row in part.compiled]
    good = {row.name for row in rows if not row.error}
    return [row for row in rows if row.error and row.name not in good]


def forms_of(work: Path, record: CompileRecord, kinds: Sequence[str], kernel: str) -> str:
    """The text forms of each kernel's first candidate, each below a comment that names it. `kernel`: only names with
    this."""
    texts: list[str] = []
    for part in record.parts:
        for row in part.compiled:
            if row.place or kernel not in row.name:
                continue
            for kind in kinds:
                if kind in _COMMENT and kind in row.files:
                    text = (work / part.part / "triton" / row.files[kind]).read_text(encoding="utf-8")
                    head = f"{_COMMENT[kind]} ---------- {row.name}  {row.config}  {kind}, {record.target}"
                    texts.append(f"{head}\n{text.strip()}\n")
    return "\n".join(texts)


def named(record: CompileRecord, kernel: str) -> list[str]:
    """Names of the kernels that contain `kernel`."""
    names = [row.name for part in record.parts for row in (*part.compiled, *part.kernels)]
    return [name for name in dict.fromkeys(names) if kernel in name]
