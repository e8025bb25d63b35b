"""Asks a child to compile a graph and keeps what it tells as one document, row by row while they come. Imports no torch.

The child writes lines to a file before and after each stage; they are read here, so that a segfault, a hang, or memory that ran
out leaves every row from before it, and the name of the stage that did not end.

>>> told = compiled(saved, Request(until="lower"), server, watch=print)
>>> [row.stage for part in told.parts for row in part.stages]
['post_grad', 'lower']
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...isolation import Answer, ForkServer, default_memory_bytes
from ...replay import PRELOAD, outcome_of
from ..entering import first_stage
from .records import BufferRow, CompiledRow, KernelRow, StageRow, Told, Trouble

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph

TASK = f"{__package__}.child:task"
LOOK_S = 0.05
DEATH, INTERRUPTED = "death", "Interrupted"
"""The kind of an end that no stage told of; the type of the user's."""

Watch = Callable[[str, dict[str, Any]], None]
"""Called with each event as it comes: "start", "begin", "row" (a StageRow), "kernels" (a part's name)."""


class Request(msgspec.Struct):
    """What is asked of a compile. `diff`: keep the graphs around that stage; `target`: compile for a GPU of that name,
    and its kernels to `forms`."""

    until: str | None = None
    skip: list[str] = []
    diff: str = ""
    source: bool = False
    graphs: bool = False
    device: str | None = None
    imports: list[str] = []
    limit_s: float = 600.0
    target: str = ""
    forms: list[str] = []


def server() -> ForkServer:
    """A fork server with what compiles need, and a private compile cache of its own."""
    preload = (*PRELOAD, TASK.partition(":")[0])
    return ForkServer(
        threads=os.cpu_count() or 1, memory_bytes=default_memory_bytes(), warm="inductor", preload=preload
    )


def compiled(saved: SavedGraph, request: Request, server: ForkServer, folder: Path, watch: Watch) -> Told:
    """One compile. Files go to `folder`. Raises GraphdbgError for what the child refused, Interrupted after Ctrl-C."""
    told = _Telling(saved, request, watch)
    lines = server.scratch_file(".jsonl")
    payload = {
        "path": str(saved.path.absolute()), "lines": str(lines), "folder": str(folder), "until": request.until,
        "skip": request.skip, "device": request.device, "imports": request.imports,
        "wanted": {"graphs": request.graphs, "source": request.source, "diff": request.diff, "forms": request.forms,
                   "target": request.target},
    }  # fmt: skip
    pending = server.submit(TASK, payload, request.limit_s)
    tail = _Tail(lines)
    try:
        while True:
            ended = pending.done()
            for event in tail.more():
                told.take(event)
            if ended:
                break
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        server.kill(pending)
        told.interrupted()
        raise Interrupted(told.document) from None
    finally:
        lines.unlink(missing_ok=True)
    told.end(pending.result())
    return told.document


class Interrupted(Exception):
    """Ctrl-C, with what was told until then."""

    def __init__(self, told: Told) -> None:
        super().__init__("interrupted")
        self.told = told


class _Telling:
    def __init__(self, saved: SavedGraph, request: Request, watch: Watch) -> None:
        self.watch, self.request = watch, request
        record = saved.record
        training = saved.stage in ("joint", "joint_passed") and "num_fwd_outputs" in record.compile_kwargs
        entered = first_stage(saved.stage, training_joint=training)
        name = f"{saved.run.path}/{saved.id}" if saved.run else str(saved.path)
        self.document = Told(
            name, saved.stage, entered, recorded_with=record.versions.get("torch", ""), until=request.until or "",
            skip=list(request.skip),
        )  # fmt: skip
        self.open: list[tuple[str, str]] = []

    def take(self, event: dict[str, Any]) -> None:
        """One line of the child."""
        document, kind = self.document, event["event"]
        if kind == "start":
            document.devices, document.torch, document.nodes = event["devices"], event["torch"], event["nodes"]
            document.notes += event["notes"]
            document.lacking = event["lacking"]
            document.target, document.assembler = event["target"], event["assembler"]
        elif kind == "begin":
            self.open.append((event["part"], event["stage"]))
        elif kind == "end":
            row = msgspec.convert(event["row"], StageRow)
            if (row.part, row.stage) in self.open:
                self.open.remove((row.part, row.stage))
            self._of_record(row)
            document.part(row.part).stages.append(row)
            self.watch("row", {"row": row})
            return
        elif kind == "kernels":
            part = document.part(event["part"])
            part.kernels = msgspec.convert(event["kernels"], list[KernelRow])
            part.node_to_kernel, part.without_kernel = event["node_to_kernel"], event["without_kernel"]
        elif kind == "compiled":
            document.part(event["part"]).compiled = msgspec.convert(event["compiled"], list[CompiledRow])
        elif kind == "buffers":
            document.part(event["part"]).buffers = msgspec.convert(event["buffers"], list[BufferRow])
        elif kind == "error":
            document.error = msgspec.convert(event["trouble"], Trouble)
        elif kind == "notes":
            document.notes += event["notes"]
        if kind in ("error", "done"):
            document.seconds = event["seconds"]
        self.watch(kind, event)

    def _of_record(self, row: StageRow) -> None:
        recorded = self.document.recorded_at
        behind = (row.stage == "post_grad" and recorded.startswith("post_grad")) or row.stage == recorded == "pre_grad"
        if behind and row.status == "ok":
            row.notes.append("its passes had run when it was recorded, and are not run again")

    def end(self, answer: Answer) -> None:
        """What became of the process."""
        if answer.status == "done":
            return
        if answer.status == "lost" or (
            answer.error is not None and answer.error.type.startswith("graphdbg.dumps.errors")
        ):
            outcome_of(answer, "")  # raises what the task refused
        part, stage = self.open[-1] if self.open else ("", answer.stage or "loading the graph")
        how = {
            "signal": f"killed by {answer.signal}", "timeout": f"still in it after {self.request.limit_s:g} s",
            "memory": "memory ran out",
        }.get(answer.status, f"ended by {answer.error.type}" if answer.error else answer.status)  # fmt: skip
        kind = {"signal": answer.signal, "timeout": "Timeout", "memory": "OutOfMemory"}.get(answer.status, "")
        self._died(part, stage, kind or (answer.error.type if answer.error else ""), how, answer.output[-4000:])
        if answer.error is not None and self.document.error is not None:
            self.document.error.message += f": {answer.error.message}"
            self.document.error.traceback = answer.error.traceback

    def interrupted(self) -> None:
        """Ctrl-C of the user."""
        part, stage = self.open[-1] if self.open else ("", "loading the graph")
        self._died(part, stage, INTERRUPTED, "interrupted", "")

    def _died(self, part: str, stage: str, kind: str, how: str, output: str) -> None:
        advice = {
            "Timeout": "give it more time with --limit",
            "OutOfMemory": "close what else runs, or try --until schedule",
        }
        inside = f"{how} in {stage}" + (f" of {part}" if part else "")
        self.document.error = Trouble(stage, kind, inside, part, DEATH, excerpt=output, advice=advice.get(kind, ""))
        for open_part, open_stage in reversed(self.open):
            innermost = (open_part, open_stage) == (part, stage)
            why = how if innermost else f"{stage} inside it did not end"
            row = StageRow(open_part, open_stage, "failed" if innermost else "not_run", why)
            self.document.part(open_part).stages.append(row)
            self.watch("row", {"row": row})
        self.open.clear()


class _Tail:
    """The lines of a file that another process writes to, as they come."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0

    def more(self) -> list[dict[str, Any]]:
        """The whole lines since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return []
        end = data.rfind(b"\n") + 1
        self._at += end
        return [json.loads(line) for line in data[:end].splitlines()]
