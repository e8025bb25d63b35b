"""The records of a shadowed program: one JSON object per line, written by the program and read by the command that
started it. Imports no torch.

For example: `[call.function for call in read(folder)]` gives `['step']`.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.opening import text_if_there
from ..verdicts.mismatches import NodeMismatch
from ..verdicts.verdict import OK, Verdict

FILE = "calls.jsonl"
TRACE_SIGNAL = signal.SIGUSR1
"""Sent to a process before it is killed: it then writes its stacks to a file (see `aside.traced`)."""
VARIABLE, OPTIONS = "GRAPHDBG_SHADOW", "GRAPHDBG_SHADOW_OPTIONS"
BACKENDS = {
    "dynamo": "eager",
    "aot_eager": "aot_eager",
    "decomposed": "aot_eager_decomp_partition",
    "inductor": "inductor",
}
"""Rung -> the torch backend that it runs."""
PROGRAM = "program"
"""The rung of a row about the program's own call, where only that departs."""
DEFAULT_CALLS = 3
ALONE, WITH_MODULES, MODULES = "repro.py", "repro-with-modules.py", "modules"
"""The file of a repro that needs torch alone, the file of one that imports the program's modules, and the folder of
these."""


DRAWN = "draws random numbers"
AS_COMPILED = "it calls torch.compiler.is_compiling(): eager was made to take the compiled path"
REPLICA = "DistributedDataParallel runs as its module alone"
NO_GRAPH = "Dynamo makes no graph of this function, so it runs in eager"
FILTERED = " leaves guards out; what runs beside it keeps them all"
"""Notes on such calls; FILTERED follows the name of the setting that leaves guards out."""
FROZEN = "freezing makes constants of its parameters"
"""The note on a call compiled with Inductor's `freezing`."""


LOST = "after which its process can run nothing on the device"


class CallRung(msgspec.Struct):
    """One rung of one call. `value`: the value furthest from eager's; `error`: its distance, relative to its size;
    `tolerance`: a distance that its dtype always allows; `rounding`: where `error` is beyond that, how far rounding
    alone may move it; `size`: its dtype and shape; `part`: "" for the call, "backward" for its gradients;
    `differences`: per value, where calls are followed over steps (in eager's row: what rounding alone does)."""

    rung: str
    verdict: Verdict = OK
    part: str = ""
    value: str = ""
    size: str = ""
    error: float | None = None
    tolerance: float | None = None
    rounding: float | None = None
    seconds: float = 0.0
    differences: dict[str, float] = {}


class Call(msgspec.Struct):
    """One call of a compiled function, counted from 0. `why`: why it was not run beside eager; `in_flight`: the rung
    that was running when the process ended; `run`: the folder of the recorded graphs; `fresh`: "departs" or "agrees":
    the result of compiling it again with nothing compiled before; `raises`, `said`: type and text of eager's exception;
    `nan`: the first value in which eager leaves NaN; `repro`: the folder of a program that may reproduce it; `unsaid`:
    why there is none, or what it lacks; `operator`: a custom operator of a departing call that contradicts its schema
    or fake function; `rank`: this process's among several, else -1; `compiled`: whether the program's own call was seen
    to compile; `cuda_graphs`: whether the program asks for CUDA graphs, which runs beside it do not use."""

    key: str
    function: str
    file: str
    line: int
    number: int
    rows: list[CallRung] = []
    why: str = ""
    notes: list[str] = []
    in_flight: str = ""
    since: float = 0.0
    run: str = ""
    recorded: str = ""
    fresh: str = ""
    raises: str = ""
    said: str = ""
    repro: str = ""
    unsaid: str = ""
    operator: NodeMismatch | None = None
    seconds: dict[str, float] = {}
    compiled: bool = False
    rank: int = -1
    nan: str = ""
    cuda_graphs: bool = False

    @property
    def first(self) -> bool:
        """Whether this is the function's first call and was seen to compile."""
        return self.compiled and self.number == 0

    @property
    def place(self) -> str:
        """The call as text: `step() (train.py:31), call 2`, with several ranks `call 2 on rank 1`."""
        rank = f" on rank {self.rank}" if self.rank >= 0 else ""
        return f"{self.function}() ({Path(self.file).name}:{self.line}), call {self.number}{rank}"

    @property
    def lost(self) -> bool:
        """Whether a run beside the call destroyed the device context, after which the program itself cannot go on."""
        return LOST in (self.why + self.recorded)

    @property
    def graphless(self) -> bool:
        """Whether Dynamo makes no graph of the function."""
        return any(note.startswith(NO_GRAPH) for note in self.notes)

    @property
    def pid(self) -> int:
        """The id of the process that made the call."""
        return int(self.key.partition(":")[0])

    @property
    def failed(self) -> CallRung | None:
        """The first row that departs: those of the call before those of its gradients."""
        return next((row for row in self.rows if row.verdict.failed), None)

    @property
    def judged(self) -> bool:
        """Whether anything was compared."""
        return not self.why and any(row.rung != "eager" and not row.verdict.skipped for row in self.rows)


class Program(msgspec.Struct):
    """All records of one program. `calls`: in order; `counts`: calls per "function file:line", which several functions
    may share; `most`: the highest count of one function; `missed`: requested calls that came after the time was over;
    `modules`: file -> name of the user's modules that it imported; `raised`: the exception that ended it; `raised_in`:
    the key of the call that raised it."""

    calls: list[Call] = []
    counts: dict[str, int] = {}
    most: int = 0
    missed: int = 0
    notes: list[str] = []
    ended: bool = False
    modules: dict[str, str] = {}
    raised: str = ""
    raised_in: str = ""


def trace_of(folder: Path, pid: int) -> Path:
    """The file to which a process writes its stacks when it dies."""
    return folder / f"trace-{pid}.txt"


def stopped_at(folder: Path, pid: int) -> str:
    """Where a process died or hung in a run beside its call, as ", in scale (train.py:9)": the innermost function
    outside Python, packages and graphdbg; "" where that is unknown."""
    threads = text_if_there(trace_of(folder, pid)).split("\n\n")
    ours = str(Path(__file__).parent)
    at = next((thread for thread in threads if f'"{ours}' in thread), "")
    for file, line, name in re.findall(r'File "([^"]+)", line (\d+) in (\S+)', at.partition(f'"{ours}')[0]):
        if not re.search(r"<|-packages/|/lib/python\d", file):
            return f", in {name} ({Path(file).name}:{line})"
    return ""


def read(path: Path) -> Program:
    """Reads the records written so far; an empty Program where there is no file."""
    program, calls = Program(), {}
    for line in text_if_there(path).splitlines():
        try:
            fields: dict[str, Any] = json.loads(line)
        except ValueError:  # the process died while writing this line
            continue
        if (event := fields.pop("event")) == "call":
            calls[fields["key"]] = msgspec.convert(fields, Call)
        elif event == "end":
            for name, count in fields["counts"].items():
                program.counts[name] = program.counts.get(name, 0) + count
            program.most = max(program.most, fields.get("most", 0))
            program.missed += fields.get("missed", 0)
            program.notes += fields["notes"]
            program.modules |= fields.get("modules", {})
            program.ended = True
            program.raised = program.raised or fields.get("raised", "")
            program.raised_in = program.raised_in or fields.get("raised_in", "")
        elif event == "begun":
            calls[fields["key"]].in_flight, calls[fields["key"]].since = fields["rung"], fields["at"]
    program.calls = list(calls.values())
    return program


def departing(program: Program) -> Call | None:
    """The first call that departs."""
    return next((call for call in program.calls if call.failed), None)
