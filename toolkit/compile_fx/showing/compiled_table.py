"""Triton kernels compiled for a named GPU: the table of what the assembler says, and the text of a form on stdout.

>>> print(compiled_table(part, terminal=False))
kernel                     config                      regs  spills  shared  recorded
triton_poi_fused_relu_0    XBLOCK=512 warps=4 stages=1   16       -       -  as recorded
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....dumps.tables import Column, render
from ....dumps.wording import counted
from .kernel_table import amount
from .records import CompiledRow, KernelRow, PartRow, Told

_COMMENT = {"ptx": "//", "ttir": "//", "ttgir": "//", "llir": ";"}


def compiled_table(part: PartRow, *, terminal: bool = False) -> str:
    """One row for each candidate, in the order of the kernels."""
    compared = any(row.recorded for row in part.compiled)
    columns = [
        Column("kernel", style="bold"), Column("config", expendable=1), Column("regs", right=True),
        Column("spills", right=True), Column("shared", right=True),
    ]  # fmt: skip
    if compared:
        columns.append(Column("recorded", expendable=2))
    columns.append(Column("line", style="green", expendable=3))
    return render(columns, [_row(row, part.kernels, compared) for row in part.compiled], terminal=terminal).rstrip("\n")


def _row(row: CompiledRow, kernels: Sequence[KernelRow], compared: bool) -> list[str]:
    lines = next((one.lines for one in kernels if one.name == row.name and one.lines), [])
    name = row.name if row.count == 1 else f"{row.name} ({row.place + 1} of {row.count})"
    line = lines[0] if lines else ""
    recorded = [row.recorded] if compared else []
    if row.error:
        return [name, f"failed: {row.error}", "-", "-", "-", *recorded, line]
    registers = "?" if row.registers is None else str(row.registers)
    spills = None if row.spill_stores is None or row.spill_loads is None else row.spill_stores + row.spill_loads
    return [name, row.config, registers, _bytes(spills), _bytes(row.shared), *recorded, line]


def _bytes(count: int | None) -> str:
    return "-" if count == 0 else amount(count, "B")


def notes_of(told: Told) -> list[str]:
    """What a reader of the table has to know."""
    rows = [row for part in told.parts for row in part.compiled]
    notes: list[str] = []
    if not rows and told.target:
        notes.append("there is no Triton kernel in it: all is library calls")
    if several := sorted({row.name for row in rows if row.count > 1}):
        count = f"{counted(len(several), 'kernel has', 'kernels have')} several candidates"
        notes.append(f"{count}: on a GPU they are timed at the first run; what is printed is the first")
    if any(row.spill_stores or row.spill_loads for row in rows):
        notes.append("spills: bytes that each thread writes to and reads from memory because registers ran out")
    notes += [f"{row.name} is not compiled: {row.error}" for row in failed_kernels(told)]
    if differing := sorted({row.name for row in rows if row.recorded in ("differs", "not recorded")}):
        versions = f"recorded with torch {told.recorded_with}, here torch {told.torch}"
        why = versions if told.recorded_with != told.torch else "settings or chip differ"
        notes.append(f"{counted(len(differing), 'kernel is', 'kernels are')} not as recorded: {why}")
    return notes


def failed_kernels(told: Told) -> list[CompiledRow]:
    """Kernels of which no candidate compiled."""
    rows = [row for part in told.parts for row in part.compiled]
    good = {row.name for row in rows if not row.error}
    return [row for row in rows if row.error and row.name not in good]


def forms_of(work: Path, told: Told, kinds: Sequence[str], kernel: str) -> str:
    """The text forms of each kernel's first candidate, each below a comment that names it. `kernel`: only names with this."""
    texts: list[str] = []
    for part in told.parts:
        for row in part.compiled:
            if row.place or kernel not in row.name:
                continue
            for kind in kinds:
                if kind in _COMMENT and kind in row.files:
                    text = (work / part.part / "triton" / row.files[kind]).read_text(encoding="utf-8")
                    texts.append(f"{_COMMENT[kind]} ---------- {row.name}  {row.config}  {kind}, {told.target}\n{text.strip()}\n")
    return "\n".join(texts)


def named(told: Told, kernel: str) -> list[str]:
    """Kernels whose names have this in them."""
    names = [row.name for part in told.parts for row in (*part.compiled, *part.kernels)]
    return [name for name in dict.fromkeys(names) if kernel in name]
