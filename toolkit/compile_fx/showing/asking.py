"""Asks a child to compile a graph and gathers its events as one document, row by row as they come. Imports no torch.

The child reports before and after each stage, so that a segfault, a hang, or memory that ran out leaves every row from
before it, and the name of the stage that did not end.

For example:

    record = compiled(saved, Request(until="lower"), server, watch=print)
    [row.stage for part in record.parts for row in part.stages]  # -> ['post_grad', 'lower']
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....dumps.errors import (
    BadValueError,
    CannotSkipError,
    ExistsAlreadyError,
    OptionsExcludeError,
    UnknownWordError,
    WrongKindError,
)
from ....dumps.store import SavedGraph
from ...isolation import ForkServer, TaskResult, ask
from ...kernels.records import CompileFailure, CompileRecord, StageRow
from ...triton.targets import CHIPS, DEFAULT, FORMS, target_of
from ...verdicts.ladder_words import address
from ...verdicts.verdict import with_flags
from ..passes import asked as stages_and_passes
from ..passes import resolve
from ..stage import NAMES, REWRITING, STAGES, first_stage, order, reaches

_BEHIND_GRAPHS = "it makes no graph"
_RECORDED_ON = re.compile(r"DeviceProperties\(type='cuda'[^)]*\bcc=(\d+)")


def entry_of(saved: SavedGraph, package: str = "") -> str:
    """The first stage that runs for a graph; for a package, the first of all stages."""
    if package:
        return NAMES[0]
    return first_stage(saved.stage, training_joint=saved.stage in ("joint", "joint_passed") and _has_backward(saved))


def sibling(saved: SavedGraph, stages: Sequence[str]) -> str:
    """The address of a graph of the same compile, recorded at the first of `stages` that has one; "" where none has."""
    if saved.run is None:
        return ""
    head = saved.local_id.rpartition("/")[0]
    same = [graph for graph in saved.run.graphs() if graph.local_id.rpartition("/")[0] == head]
    siblings = (graph for stage in stages for graph in same if graph.stage == stage and graph.id != saved.id)
    return next(map(address, siblings), "")


def check_stage(saved: SavedGraph, name: str, option: str) -> None:
    """Raises UsageError for a name that is no stage, or for a stage that ran before this graph was recorded."""
    order(name)
    entered = entry_of(saved)
    applied = saved.stage.startswith("post_grad") and name == "post_grad"
    inference = name == "partition" and saved.stage in ("inference", "joint_passed") and order(name) >= order(entered)
    if inference and not _has_backward(saved):
        raise WrongKindError(f"{address(saved)} is not partitioned", "it is an inference graph, without a backward")
    if order(name) >= order(entered) and not applied:
        return
    earlier = sibling(saved, STAGES[name].graphs)
    asked_for = option if option.startswith("--skip ") else f"{option} {name}"
    fix = (
        f"try {with_flags(f'graphdbg compile {earlier} {asked_for}')}"
        if earlier
        else f"record it with graphdbg dump --stages {_recorded(name)}"
    )
    raise WrongKindError(f"{address(saved)} was recorded after {name}", "that stage does not run for it any more", fix)


def check_diff(saved: SavedGraph, stage: str, until: str | None) -> None:
    """Raises UsageError where there are no graphs before and after a stage to compare."""
    order(stage)
    if stage not in REWRITING:
        why = {
            "capture": "it makes other graphs of the one that it takes",
            "partition": "it makes two graphs of one: graphdbg diff compares saved ones",
        }.get(stage, f"{_BEHIND_GRAPHS}: --emit source shows what comes of it")
        raise BadValueError(f"--diff {stage} has nothing to compare", why, f"--diff takes {', '.join(REWRITING)}")
    check_stage(saved, stage, "--diff")
    _must_reach(until, stage, f"--diff {stage} needs {stage} to run", "it")


def check_skip(saved: SavedGraph, names: Sequence[str]) -> None:
    """Raises UsageError for names that are no stage and no pass, cannot be skipped, or ran before this graph was
    recorded."""
    stages, _ = stages_and_passes(names)
    for name in sorted(stages):
        if needed := STAGES[name].needed:
            before = [stage for stage in REWRITING if order(entry_of(saved)) <= order(stage) < order(name)]
            fix = f"--until {before[-1]} stops before it" if before else "leave it in"
            raise CannotSkipError(f"cannot skip {name}", needed, fix)
        check_stage(saved, name, "--skip")
    for name in names:
        if name in STAGES:
            continue
        possible = sorted({stage for stage, _ in resolve(name)}, key=order)
        if all(order(stage) < order(entry_of(saved)) for stage in possible):
            check_stage(saved, possible[-1], f"--skip {name}")


def check_emit(kinds: Sequence[str], target: str | None, *, device: str | None, folder: Path | None) -> list[str]:
    """The forms of single kernels among `kinds`. Raises UsageError for kinds that are unknown, or what cannot be
    printed."""
    for kind in kinds:
        if kind not in ("source", *FORMS):
            near = difflib.get_close_matches(kind, ("source", *FORMS), 1)
            why = f"it takes source, {', '.join(FORMS)}"
            raise UnknownWordError(f"--emit knows no {kind!r}", why, f"did you mean {near[0]}?" if near else "")
    forms = [kind for kind in FORMS if kind in kinds]
    if (forms or target) and device is not None:
        why = "--device moves the graph to a device that is here, --target writes code for a GPU that need not be"
        raise OptionsExcludeError("--device and a target are two different things", why, "leave one of them out")
    if "cubin" in kinds and folder is None:
        raise OptionsExcludeError("--emit cubin prints nothing", "machine code is binary", "write it with -o DIR")
    return forms


def target_for(saved: SavedGraph, named: str | None) -> str:
    """The GPU that kernels are written for: the one that was named, that of the recording, or the usual one."""
    if named is not None:
        return target_of(named).name
    codes = [file.read_text() for file in saved.code_files() if file.name == "output_code.py"]
    recorded = [match[1] for code in codes if (match := _RECORDED_ON.search(code)) and int(match[1]) in CHIPS]
    return f"cuda:{recorded[0]}" if recorded else DEFAULT


def check_package(path: Path, others: Mapping[str, object]) -> None:
    """Raises before anything is compiled where no package can be written to `path`, or with options that stop before
    its end."""
    if path.suffix != ".pt2":
        raise BadValueError(
            f"cannot write a package to {path}", "torch loads only files whose name ends in .pt2", "add it"
        )
    if path.exists():
        raise ExistsAlreadyError(f"{path} is there already", "nothing is overwritten", "name another file")
    if given := [name for name, value in others.items() if value]:
        raise OptionsExcludeError(
            "--package runs every stage as it is", f"{given[0]} asks for something else", f"leave {given[0]} out"
        )


def _has_backward(saved: SavedGraph) -> bool:
    return "num_fwd_outputs" in saved.record.compile_kwargs


def _recorded(stage: str) -> str:
    return {"pre_grad": "dynamo", "joint": "joint,dynamo"}.get(stage, "forward,dynamo")


def check_code(until: str, emit: str) -> None:
    """Raises UsageError where a compile stops before there is code to print."""
    _must_reach(until, "codegen", f"--emit {emit} needs the code", "codegen")


def _must_reach(until: str | None, stage: str, what: str, it: str) -> None:
    if not reaches(until, stage):
        raise OptionsExcludeError(what, f"--until {until} stops before {it}", "leave --until out")


TASK = f"{__package__}.child:task"
DEATH, INTERRUPTED = "death", "CompileInterrupted"
"""The error kind where the child ended without a report of its stage; the error type after Ctrl-C."""

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
    """Compiles once in a child, which writes into `folder`. Raises GraphdbgError for what the child refused,
    Interrupted after Ctrl-C."""
    telling = _Telling(saved, request, watch)
    payload = {"path": str(saved.path.absolute()), "folder": str(folder), **msgspec.to_builtins(request)}
    package = folder / Path(request.package).name
    if request.package:  # the child writes into its folder alone
        payload["package"] = str(package)
    asked = ask(TASK, payload, request.limit_s, server=server)
    try:
        for event in asked:
            telling.take(event)
    except KeyboardInterrupt:
        asked.kill()
        telling.interrupted()
        raise CompileInterrupted(telling.document) from None
    telling.end(asked.end())
    if request.package and package.exists():
        shutil.move(package, request.package)
    return telling.document


class CompileInterrupted(Exception):
    """Ctrl-C; `record` holds what was reported until then."""

    def __init__(self, record: CompileRecord) -> None:
        super().__init__("interrupted")
        self.record = record


class _Telling:
    def __init__(self, saved: SavedGraph, request: Request, watch: Watch) -> None:
        self.watch, self.request = watch, request
        recorded, until, skip = saved.record.versions.get("torch", ""), request.until or "", list(request.skip)
        entered = entry_of(saved, request.package)
        self.document = CompileRecord(saved.name, saved.stage, entered, recorded_with=recorded, until=until, skip=skip)
        self.open: list[tuple[str, str]] = []

    def take(self, event: dict[str, Any]) -> None:
        """Takes one event of the child."""
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

    def end(self, answer: TaskResult) -> None:
        """Takes the outcome of the child process."""
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
        """Records the user's Ctrl-C."""
        self._died(*(self.open[-1] if self.open else ("", "loading the graph")), INTERRUPTED, "interrupted", "")

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
    """Sets those fields of `known` that an event has."""
    for field in msgspec.structs.fields(known):
        if field.name in event:
            setattr(known, field.name, msgspec.convert(event[field.name], field.type))
