"""The table of kernels: what each is made of, moves and computes. View models in, text out.

For example:

    print(kernel_table(part))
    # kernel               kind  nodes     read  written    FLOPs  FLOP/byte  fused (first user line)
    # extern_kernels.addmm extern    1  2.0 MiB 512.0 KiB  134M        51.5  addmm  model.py:41
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....dumps.tables import Column, render
from ....dumps.wording import count_text, counted, size_text
from ...kernels.records import BufferRow, CompiledRow, CompileRecord, KernelRow, PartRow

MOST_ROWS = 40
"""On a terminal."""
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
        Column("read", right=True, expendable=1),
        Column("written", right=True, expendable=1),
        Column("FLOPs", right=True, expendable=1),
        Column("FLOP/byte", right=True, expendable=2),
        Column("line", style="green"),
        Column("fused", expendable=3),
    ]
    shown = part.kernels[:MOST_ROWS] if terminal else part.kernels
    table = render(columns, [_row(row, terminal) for row in shown], terminal=terminal).rstrip("\n")
    lines = [table]
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
    counts = Counter(
        words.get(why, ("part of another's result", "parts of another's result")) for why in without.values()
    )
    return (
        f"{text}, {len(without)} in none ({', '.join(counted(count, *word) for word, count in counts.most_common())})"
    )


def buffer_table(buffers: list[BufferRow]) -> str:
    """The table of buffers that lowering made."""
    columns = [Column("buffer"), Column("kind"), Column("dtype"), Column("size"), Column("nodes")]
    return render(
        columns, [(row.name, row.kind, row.dtype, f"[{', '.join(row.size)}]", ", ".join(row.nodes)) for row in buffers]
    )


def _row(row: KernelRow, terminal: bool) -> list[str]:
    rate = "-" if row.intensity == 0 else "?" if row.intensity is None else _about(f"{row.intensity:.3g}", row)
    names = ", ".join(row.nodes[:_NAMES]) + (f", ... (+{len(row.nodes) - _NAMES})" if len(row.nodes) > _NAMES else "")
    label = _cut(row.label) if terminal else row.label
    flops = "-" if row.flops == 0 else _about(count_text(row.flops), row)
    return [
        label,
        row.kind,
        str(len(row.nodes)),
        _about(size_text(row.bytes_read), row),
        _about(size_text(row.bytes_written), row),
        flops,
        rate,
        row.lines[0] if row.lines else "",
        names,
    ]


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
        Column("regs", right=True),
        Column("spills", right=True),
        Column("shared", right=True),
    ]
    if compared:
        columns.append(Column("recorded", expendable=2))
    columns.append(Column("line", style="green", expendable=3))
    return render(columns, [_compiled(row, part.kernels, compared) for row in part.compiled], terminal=terminal).rstrip(
        "\n"
    )


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
    """Kernels whose names have this in them."""
    names = [row.name for part in record.parts for row in (*part.compiled, *part.kernels)]
    return [name for name in dict.fromkeys(names) if kernel in name]
