"""The result of launching a kernel alone, as plain data and as the texts of `graphdbg kernel`. Imports no torch.

For example:

    print(report(judged))
    # triton_poi_fused_relu_0, launch 1 of 1, grid (4, 1, 1), XBLOCK=256 warps=4 stages=1   interpreter
    # out_ptr0 = buf0 = node relu  f32[1024]  eager 0 (tolerance 1e-05)   ok
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...dumps.amounts import count_text, size_text
from .launches import Launch, Launches
from .roofline import Ceilings, KernelBound


class Against(msgspec.Struct, frozen=True):
    """A result against what it should be. `error`: the largest one of an element to size and RMS of the tensor
    together, or the relative RMS error to float64; for integers the share of elements that differ; None: not finite.
    `why`: in what it differs, or why it does not count."""

    error: float | None
    tolerance: float | None
    ok: bool
    why: str = ""


class Argument(msgspec.Struct):
    """One argument that a kernel wrote. None: there was nothing to compare with."""

    name: str
    buffer: str
    node: str
    type: str
    interpreter: Against | None = None
    eager: Against | None = None

    @property
    def ok(self) -> bool:
        """Whether it is right, as far as it could be compared."""
        return all(comparison is None or comparison.ok for comparison in (self.interpreter, self.eager))


class JudgedLaunch(msgspec.Struct):
    """One launch. `died`: how the process ended, where it did; `where`: "interpreter", or the GPU's name."""

    kernel: str
    number: int
    call: int
    calls: int
    grid: tuple[int, int, int] = (1, 1, 1)
    config: str = ""
    where: str = ""
    nodes: list[str] = []
    arguments: list[Argument] = []
    place: KernelBound | None = None
    died: str = ""
    notes: list[str] = []

    @classmethod
    def of(cls, launch: Launch, where: str, arguments: list[Argument], died: str = "") -> JudgedLaunch:
        """The result of one launch."""
        return cls(
            launch.kernel,
            launch.number,
            launch.call,
            launch.calls,
            launch.grid,
            launch.config_text(),
            where,
            launch.nodes,
            arguments,
            died=died,
        )

    @property
    def ok(self) -> bool:
        """Whether it ran and agrees."""
        return not self.died and all(argument.ok for argument in self.arguments)


def table(launches: Sequence[Launch]) -> str:
    """One row for each kernel: name, launches, grid, configuration, arguments; of several launches the first one's."""
    by_name: dict[str, list[Launch]] = {}
    for launch in launches:
        by_name.setdefault(launch.kernel, []).append(launch)
    rows = [["KERNEL", "LAUNCHES", "GRID", "CONFIG", "ARGUMENTS"]]
    for name, of_kernel in by_name.items():
        first = of_kernel[0]
        more = "" if len({launch.grid for launch in of_kernel}) == 1 else " ..."
        rows.append([name, str(first.calls), _grid(first.grid) + more, first.config_text(), _arguments(first)])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )


def _arguments(launch: Launch) -> str:
    texts = [f"{name} {tensor.text()}" for name, tensor in launch.tensors.items()]
    numbers = [str(argument) for argument in launch.passed if not isinstance(argument, str)]
    return ", ".join([*texts, *numbers])


def listed(known: Launches) -> dict[str, Any]:
    """The list as JSON: one object for each launch."""
    rows = [
        {
            "kernel": launch.kernel,
            "launch": launch.number,
            "call": launch.call,
            "calls": launch.calls,
            "grid": list(launch.grid),
            "config": launch.config_text(),
            "blocks": launch.blocks,
            "num_warps": launch.num_warps,
            "num_stages": launch.num_stages,
            "arguments": [{"name": name, "type": tensor.text()} for name, tensor in launch.tensors.items()],
            "numbers": [value for value in launch.passed if not isinstance(value, str)],
            "written": [{"name": row.argument, "buffer": row.buffer, "node": row.node} for row in launch.written],
            "nodes": launch.nodes,
            "bytes_read": launch.bytes_read,
            "bytes_written": launch.bytes_written,
            "flops": launch.flops,
        }
        for launch in known.launches
    ]
    index = known.index
    return {"graph": index.graph, "target": index.target, "notes": index.notes, "launches": rows}


def report(judged: JudgedLaunch, limits: Ceilings | None = None) -> str:
    """One launch: what it wrote and whether that is right, its time, and where it stands."""
    head = (
        f"{judged.kernel}, launch {judged.call} of {judged.calls}, grid {_grid(judged.grid)}, {judged.config}   "
        f"{judged.where}"
    )
    lines = [head, *(_argument(argument) for argument in judged.arguments)]
    if judged.died:
        lines.append(f"died      {judged.died}")
    if judged.place is not None:
        lines += placing(judged.place, limits)
    return "\n".join([*lines, *(f"note      {note}" for note in judged.notes)])


def placing(place: KernelBound, limits: Ceilings | None) -> list[str]:
    """The lines of time, bytes and operations."""
    lines = [f"time      {place.seconds * 1e6:.1f} us (do_bench, median)"]
    top = f" of {count_text(limits.bandwidth, 'B/s')} measured here" if limits is not None else ""
    moved = size_text(place.bytes)
    speed = (
        f" -> {count_text(place.bandwidth, 'B/s')}, {place.bandwidth_share:.0%}{top}"
        if place.bandwidth is not None
        else ""
    )
    if place.flops is None:
        work = "FLOPs ?"
    else:
        per = f", {place.intensity:.3g} per byte" if place.intensity is not None else ""
        share = f", {place.rate_share:.1%} of the {place.kind} peak" if place.rate_share is not None else ""
        work = f"FLOPs {count_text(place.flops)}{per}{share}"
    words = {
        "memory": " -> memory bound",
        "compute": " -> compute bound",
        "launch": " -> as short as a launch: bound by neither",
    }
    return [*lines, f"bytes     {moved}{speed}     {work}{words.get(place.bound, '')}"]


def _argument(row: Argument) -> str:
    named = " = ".join(filter(None, [row.name, row.buffer, f"node {row.node}" if row.node else ""]))
    against = [("interpreter", row.interpreter), ("eager", row.eager)]
    parts = [_against(name, comparison) for name, comparison in against if comparison is not None]
    if row.eager is None:
        parts.append("eager ?")
    return f"{named}  {row.type}  {' · '.join(parts)}   {'ok' if row.ok else 'DIFFERS'}"


def _against(name: str, comparison: Against) -> str:
    why = f": {comparison.why}" if comparison.why else ""
    if comparison.error is None or comparison.tolerance is None:
        return f"{name} not finite{why}"
    return f"{name} {comparison.error:.2g} (tolerance {comparison.tolerance:.2g}){why}"


def document(known: Launches, judged: Sequence[JudgedLaunch], limits: Ceilings | None, device: str) -> dict[str, Any]:
    """All results as JSON."""
    rows = [{"ok": launch.ok, **msgspec.to_builtins(launch)} for launch in judged]
    ceilings = None if limits is None else msgspec.to_builtins(limits)
    return {
        "graph": known.index.graph,
        "target": known.index.target,
        "device": device,
        "notes": known.index.notes,
        "ceilings": ceilings,
        "ok": all(launch.ok for launch in judged),
        "launches": rows,
    }


def _grid(grid: Sequence[int]) -> str:
    return f"({','.join(str(size) for size in grid)})"
