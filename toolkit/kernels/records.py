"""What is known of one compile, as plain data: what `graphdbg compile --json` prints and its tables are made of.

A number that is not known is None, never 0. Must not import torch.

>>> StageRow("forward", "lower", produced=Amount(64, "buffers")).status
'ok'
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MISSING_DEVICE = "missing device"
"""The kind of Trouble where a stage asks a device that is not here."""

Status = Literal["ok", "skipped", "not_run", "failed", "before", "running"]


class Amount(msgspec.Struct):
    """How much of what a stage took or made: 64 "buffers"."""

    count: int
    unit: str

    def text(self) -> str:
        """As a table has it."""
        return f"{self.count:,} {self.unit[:-1] if self.count == 1 and self.unit.endswith('s') else self.unit}"


class PassRow(msgspec.Struct, omit_defaults=False):
    """One pass that ran, or was skipped, inside a stage. `graph`: of the bodies inside, "" for the stage's own.
    `changes`: in how many places it changed something; `matched`: by patterns with names, and the user's lines."""

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
    """One stage of one part.

    `removed` and `added` count operators; `reordered`, `rewired` (nodes with other arguments) and `relaid` (nodes with
    another size, stride or dtype) are what such counts do not show. `why`: why it did not run, or how it failed.
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
    """One call of a kernel. Nodes in the order of the graph; `lines` are the user's; `estimated`: sizes are hints of
    symbols.

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
    """The place among the calls of kernels of this name, from 0."""

    @property
    def label(self) -> str:
        """What the maps call it: its name, with the number of the call where it is called again."""
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
    """One buffer that lowering made. `size` as it prints; `nodes` are those that it was made of."""

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
    """How a compile ended before its end. `nodes` and `lines`: graph nodes behind it and where they were written."""

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
    """One compile. `entered_at` is its first stage here, `caches` what became of the compile caches."""

    graph: str
    recorded_at: str = ""
    entered_at: str = ""
    nodes: int | None = None
    devices: list[str] = []
    lacking: list[str] = []
    """Of these, the ones that are not here."""
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
    """Where something was skipped: whether the code differs from that of a compile without, and its kernels."""
    notes: list[str] = []
    seconds: float = 0.0

    def part(self, name: str) -> PartRow:
        """The part of that name, made where there is none yet."""
        for row in self.parts:
            if row.part == name:
                return row
        self.parts.append(PartRow(name))
        return self.parts[-1]
