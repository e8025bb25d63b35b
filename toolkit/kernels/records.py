"""The record of one compile, as plain data: printed by `graphdbg compile --json`, and the source of its tables.

A number that is not known is None, never 0. Must not import torch.

>>> StageRow("forward", "lower", produced=Amount(64, "buffers")).status
'ok'
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MISSING_DEVICE = "missing device"
"""The kind of a Trouble in which a stage needs a device that is missing here."""

Status = Literal["ok", "skipped", "not_run", "failed", "before", "running"]


class Amount(msgspec.Struct):
    """An amount that a stage consumed or produced: 64 "buffers"."""

    count: int
    unit: str

    def text(self) -> str:
        """The amount as a table shows it."""
        return f"{self.count:,} {self.unit[:-1] if self.count == 1 and self.unit.endswith('s') else self.unit}"


class PassRow(msgspec.Struct, omit_defaults=False):
    """One pass that ran, or was skipped, inside a stage. `graph`: the subgraph, "" for the stage's own graph;
    `changes`: in how many places it changed something; `matched`: named pattern -> number of matches; `lines`: the
    user's lines there."""

    name: str
    graph: str = ""
    seconds: float | None = None
    nodes_before: int | None = None
    nodes_after: int | None = None
    changes: int = 0
    matched: dict[str, int] = {}
    lines: list[str] = []
    skippable: bool = True
    why_not: str = ""
    status: Status = "ok"


class StageRow(msgspec.Struct):
    """One stage of one part of a compile.

    `removed`, `added`: counts of operators; `reordered`, `rewired` (nodes with other arguments) and `relaid` (nodes
    with another size, stride or dtype): changes that such counts miss. `why`: why it did not run, or how it failed.
    """

    part: str
    stage: str
    status: Status = "ok"
    why: str = ""
    took: Amount | None = msgspec.field(default=None, name="in")
    produced: Amount | None = msgspec.field(default=None, name="out")
    seconds: float | None = None
    removed: dict[str, int] = {}
    added: dict[str, int] = {}
    reordered: bool = False
    rewired: int = 0
    relaid: int = 0
    replaced: bool = False
    notes: list[str] = []
    passes: list[PassRow] = []


class KernelRow(msgspec.Struct):
    """One call of a kernel. `nodes`: in the order of the graph; `lines`: the user's; `estimated`: whether sizes are
    hints of symbols.

    `bytes_read` counts each buffer from outside once, `bytes_written` each that is needed outside. `flops`: of library
    calls by their shapes, of loops one for each arithmetic operation of the body and element. `intensity` is FLOPs by
    byte.
    """

    name: str
    kind: str
    nodes: list[str] = []
    lines: list[str] = []
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    intensity: float | None = None
    estimated: bool = False
    call: int = 0
    """Index among the calls of kernels with this name, from 0."""

    @property
    def label(self) -> str:
        """The name for maps: with the number of the call, if it is not the first."""
        return self.name if not self.call else f"{self.name}#{self.call + 1}"


class CompiledRow(msgspec.Struct):
    """One candidate of a Triton kernel, compiled for a named GPU. `place` among its `count` candidates, from 0; None:
    not known.

    `registers` (32 bit), bytes of `stack` and of spills are those of a thread, `shared` bytes those of a block.
    `recorded`: whether the recorded kernel of this name has this source. `files`: form -> name of its file; `report`:
    the assembler's.
    """

    name: str
    config: str = ""
    place: int = 0
    count: int = 1
    registers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    shared: int | None = None
    dynamic_shared: int | None = None
    recorded: str = ""
    error: str = ""
    files: dict[str, str] = {}
    report: str = ""


class BufferRow(msgspec.Struct):
    """One buffer that lowering made. `size`: as it prints; `nodes`: those that it was made from."""

    name: str
    kind: str
    size: list[str] = []
    dtype: str = ""
    nodes: list[str] = []


class PartRow(msgspec.Struct):
    """One part of a compile: joint, forward, backward, inference; "dynamo" before it is traced."""

    part: str
    stages: list[StageRow] = []
    kernels: list[KernelRow] = []
    compiled: list[CompiledRow] = []
    buffers: list[BufferRow] = []
    node_to_kernel: dict[str, list[str]] = {}
    without_kernel: dict[str, str] = {}


class CompileFailure(msgspec.Struct):
    """How a compile failed. `nodes`, `lines`: the graph nodes behind the failure, and where they were written."""

    stage: str
    type: str
    message: str
    part: str = ""
    kind: str = ""
    nodes: list[str] = []
    lines: list[str] = []
    kernel: str = ""
    excerpt: str = ""
    advice: str = ""
    traceback: str = ""


class CompileRecord(msgspec.Struct):
    """The record of one compile. `entered_at`: its first stage here; `caches`: how compile caches were used."""

    graph: str
    recorded_at: str = ""
    entered_at: str = ""
    nodes: int | None = None
    devices: list[str] = []
    lacking: list[str] = []
    """Those of `devices` that are missing here."""
    torch: str = ""
    recorded_with: str = ""
    caches: str = "not used"
    until: str = ""
    target: str = ""
    """The GPU that code was written for, where one was named: "cuda:90 (H100, 132 SMs)"."""
    assembler: str = ""
    skip: list[str] = []
    parts: list[PartRow] = []
    error: CompileFailure | None = None
    files: list[dict[str, Any]] = []
    diff: list[dict[str, Any]] = []
    code: dict[str, Any] | None = None
    """Where passes were skipped: whether the code differs from that of a full compile, and its kernels."""
    notes: list[str] = []
    seconds: float = 0.0

    def part(self, name: str) -> PartRow:
        """The part of that name, created if needed."""
        for row in self.parts:
            if row.part == name:
                return row
        self.parts.append(PartRow(name))
        return self.parts[-1]
