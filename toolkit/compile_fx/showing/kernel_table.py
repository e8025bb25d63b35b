"""The table of kernels: what each is made of, moves and computes. View models in, text out.

>>> print(kernel_table(part))
kernel               kind  nodes     read  written    FLOPs  FLOP/byte  fused (first user line)
extern_kernels.addmm extern    1   2.1 MB   512 kB   134 M        51.5  addmm  model.py:41
"""

from __future__ import annotations

import shutil

from ....dumps.tables import Column, render
from ..kernels import summary
from .records import BufferRow, KernelRow, PartRow

MOST_ROWS = 40
"""On a terminal."""
_NAMES = 4
_WIDE = 110


def kernel_table(part: PartRow, *, terminal: bool = False) -> str:
    """The kernels of a part in the order of their calls, and the map between nodes and kernels in a line."""
    columns = [
        Column("kernel", style="bold"), Column("kind", style="cyan"), Column("nodes", right=True, expendable=4),
        Column("read", right=True, expendable=1), Column("written", right=True, expendable=1),
        Column("FLOPs", right=True, expendable=1),
        Column("FLOP/byte", right=True, expendable=2), Column("line", style="green"), Column("fused", expendable=3),
    ]  # fmt: skip
    shown = part.kernels[:MOST_ROWS] if terminal else part.kernels
    table = render(columns, [_row(row, terminal) for row in shown], terminal=terminal).rstrip("\n")
    lines = [table]
    if len(shown) < len(part.kernels):
        lines.append(f"... {len(part.kernels) - len(shown)} more: --json, or into a file")
    if any(row.estimated for row in part.kernels):
        lines.append("~ from the hints of symbolic sizes")
    lines.append(f"map: {summary(part.node_to_kernel, part.without_kernel)}. The whole map: --json, or -o DIR")
    return "\n".join(lines)


def buffer_table(buffers: list[BufferRow]) -> str:
    """What lowering made."""
    columns = [Column("buffer"), Column("kind"), Column("dtype"), Column("size"), Column("nodes")]
    return render(
        columns, [(one.name, one.kind, one.dtype, f"[{', '.join(one.size)}]", ", ".join(one.nodes)) for one in buffers]
    )


def _row(row: KernelRow, terminal: bool) -> list[str]:
    about = "~" if row.estimated else ""
    rate = "-" if row.intensity == 0 else "?" if row.intensity is None else f"{about}{row.intensity:.3g}"
    names = ", ".join(row.nodes[:_NAMES]) + (f", ... (+{len(row.nodes) - _NAMES})" if len(row.nodes) > _NAMES else "")
    label = _cut(row.label) if terminal else row.label
    flops = "-" if row.flops == 0 else amount(row.flops, "", about)
    return [
        label, row.kind, str(len(row.nodes)), amount(row.bytes_read, "B", about), amount(row.bytes_written, "B", about), flops,
        rate, row.lines[0] if row.lines else "", names,
    ]  # fmt: skip


def _cut(label: str) -> str:
    """A name that leaves room for the numbers: its beginning, and its end, by which kernels are told apart."""
    limit = 48 if shutil.get_terminal_size().columns >= _WIDE else 26
    return label if len(label) <= limit else f"{label[: limit - 7]}...{label[-4:]}"


def amount(value: int | None, unit: str, about: str = "") -> str:
    """A number with a decimal prefix: 2.1 MB, 134 M; "?" where it is not known."""
    if value is None:
        return "?"
    prefixes, number = ["", "k", "M", "G", "T", "P"], float(value)
    while number >= 999.5 and len(prefixes) > 1:
        number /= 1000
        prefixes.pop(0)
    text = f"{value}" if not prefixes[0] else f"{number:.3g}"
    return f"{about}{text} {prefixes[0]}{unit}".rstrip()
