"""Asks a child to compile a graph and keeps what it reports as one document, row by row while they come. Imports no
torch.

The child reports before and after each stage, so that a segfault, a hang, or memory that ran out leaves every row from
before it, and the name of the stage that did not end.

For example:

    told = compiled(saved, Request(until="lower"), server, watch=print)
    [row.stage for part in told.parts for row in part.stages]  # -> ['post_grad', 'lower']
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...isolation import Answer, ForkServer, ask
from ...kernels.records import CompileFailure, CompileRecord, StageRow
from .asked import entry_of

if TYPE_CHECKING:
    from ....dumps.store import SavedGraph

TASK = f"{__package__}.child:task"
DEATH, INTERRUPTED = "death", "Interrupted"
"""The kind of an end that no stage told of; the type of the user's."""

Watch = Callable[[str, dict[str, Any]], None]
"""Called with each event as it comes: "start", "begin", "row" (a StageRow), "kernels" (a part's name)."""


class Request(msgspec.Struct):
    """What is asked of a compile. `diff`: keep the graphs around that stage; `target`: compile for a GPU of that name,
    and its kernels to `forms`; `package`: a new file, compiled to ahead of time."""

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
    package: str = ""


def compiled(saved: SavedGraph, request: Request, server: ForkServer, folder: Path, watch: Watch) -> CompileRecord:
    """One compile. Files go to `folder`. Raises GraphdbgError for what the child refused, Interrupted after Ctrl-C."""
    told = _Telling(saved, request, watch)
    payload = {"path": str(saved.path.absolute()), "folder": str(folder), **msgspec.to_builtins(request)}
    made = folder / Path(request.package).name
    if request.package:  # the child writes into its folder alone
        payload["package"] = str(made)
    asked = ask(TASK, payload, request.limit_s, server=server)
    try:
        for event in asked:
            told.take(event)
    except KeyboardInterrupt:
        asked.kill()
        told.interrupted()
        raise Interrupted(told.document) from None
    told.end(asked.end())
    if request.package and made.exists():
        shutil.move(made, request.package)
    return told.document


class Interrupted(Exception):
    """Ctrl-C, with what was told until then."""

    def __init__(self, told: CompileRecord) -> None:
        super().__init__("interrupted")
        self.told = told


class _Telling:
    def __init__(self, saved: SavedGraph, request: Request, watch: Watch) -> None:
        self.watch, self.request = watch, request
        record, entered = saved.record, entry_of(saved, request.package)
        self.document = CompileRecord(
            saved.name,
            saved.stage,
            entered,
            recorded_with=record.versions.get("torch", ""),
            until=request.until or "",
            skip=list(request.skip),
        )
        self.open: list[tuple[str, str]] = []

    def take(self, event: dict[str, Any]) -> None:
        """One line of the child."""
        document, kind = self.document, event["event"]
        if kind == "begin":
            self.open.append((event["part"], event["stage"]))
        elif kind == "end":
            row = msgspec.convert(event["row"], StageRow)
            if (row.part, row.stage) in self.open:
                self.open.remove((row.part, row.stage))
            self._of_record(row)
            document.part(row.part).stages.append(row)
            self.watch("row", {"row": row})
            return
        elif "part" in event:
            _put(document.part(event["part"]), event)
        else:
            notes = [*document.notes, *event.get("notes", ())]
            _put(document, event)
            document.notes = notes
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
        part, stage = self.open[-1] if self.open else ("", answer.stage or "loading the graph")
        how = {
            "signal": f"killed by {answer.signal}",
            "timeout": f"still in it after {self.request.limit_s:g} s",
            "memory": "memory ran out",
        }.get(answer.status, f"ended by {answer.error.type}" if answer.error else answer.status)
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
        self.document.error = CompileFailure(
            stage, kind, inside, part, DEATH, excerpt=output, advice=advice.get(kind, "")
        )
        for open_part, open_stage in reversed(self.open):
            innermost = (open_part, open_stage) == (part, stage)
            why = how if innermost else f"{stage} inside it did not end"
            row = StageRow(open_part, open_stage, "failed" if innermost else "not_run", why)
            self.document.part(open_part).stages.append(row)
            self.watch("row", {"row": row})
        self.open.clear()


def _put(known: msgspec.Struct, event: dict[str, Any]) -> None:
    """Sets the fields that an event tells of."""
    for field in msgspec.structs.fields(known):
        if field.name in event:
            setattr(known, field.name, msgspec.convert(event[field.name], field.type))
