"""Counts over one graph's table: nodes by kind and target, bytes by role, dtypes, devices, and the largest values.

>>> of(saved.table).nodes
15
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from .sidecar import Table, dims_text
from .tables import Column, render
from .wording import counted, size_text

LARGEST = 8


class Statistics(msgspec.Struct):
    """Counts over one graph. Bytes are those when recorded; `unknown_sizes` counts values whose size was unknown
    (unbacked symbols)."""

    nodes: int
    ops: dict[str, int]
    targets: dict[str, int]
    dtypes: dict[str, int]
    devices: dict[str, int]
    input_bytes: int
    computed_bytes: int
    unknown_sizes: int
    largest: list[dict[str, Any]]


def of(table: Table) -> Statistics:
    """Counts over all nodes of a table."""
    rows = list(table.rows())
    inputs = ("placeholder", "get_attr")
    ops = Counter(row.op for row in rows)
    targets = Counter(row.target for row in rows if row.op not in (*inputs, "output"))
    dtypes = Counter(row.dtype for row in rows if row.dtype)
    devices = Counter(row.device for row in rows if row.device)
    largest = [
        row for row in sorted(rows, key=lambda row: row.size_bytes or 0, reverse=True)[:LARGEST] if row.size_bytes
    ]
    return Statistics(
        len(rows),
        dict(ops.most_common()),
        dict(targets.most_common()),
        dict(dtypes.most_common()),
        dict(devices.most_common()),
        input_bytes=sum(row.size_bytes or 0 for row in rows if row.op in inputs),
        computed_bytes=sum(row.size_bytes or 0 for row in rows if row.op not in (*inputs, "output")),
        unknown_sizes=sum(bool(row.dtype) and row.size_bytes is None for row in rows),
        largest=[
            {"name": r.name, "size_bytes": r.size_bytes, "dtype": r.dtype, "shape": dims_text(r.shape)} for r in largest
        ],
    )


def text(statistics: Statistics) -> str:
    """The counts as text."""
    lines = [
        f"nodes      {statistics.nodes}: " + ", ".join(f"{count} {op}" for op, count in statistics.ops.items()),
        f"inputs     {size_text(statistics.input_bytes)}, "
        f"all computed values together {size_text(statistics.computed_bytes)}"
        + (
            f", {counted(statistics.unknown_sizes, 'size is', 'sizes are')} unknown" if statistics.unknown_sizes else ""
        ),
        "dtypes     " + ", ".join(f"{name} ({count})" for name, count in statistics.dtypes.items()),
        "devices    " + ", ".join(f"{name} ({count})" for name, count in statistics.devices.items()),
    ]
    if statistics.targets:
        rows = [(str(count), name) for name, count in statistics.targets.items()]
        lines += ["", render([Column("calls", right=True), Column("target")], rows)]
    if statistics.largest:
        rows = [(size_text(v["size_bytes"]), v["dtype"], v["shape"], v["name"]) for v in statistics.largest]
        lines += [
            "",
            render([Column("bytes", right=True), Column("dtype"), Column("shape"), Column("largest values")], rows),
        ]
    return "\n".join(lines)
