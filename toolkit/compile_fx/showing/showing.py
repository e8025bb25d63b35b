"""Runs the command: compiles, prints rows as stages end, then kernels, differences, code or files; returns an exit
code.

stdout has the data and stderr the messages about it; with code on stdout the tables go to stderr. Logic of stages and
kernels is elsewhere.

For example: `shown(saved, Request(until="lower"), Options("run/0_0/forward"))` gives `0`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ....dumps import temporary
from ....dumps.atomic import new_folder
from ....dumps.errors import NoSuchNodeError
from ....dumps.output import emit, say
from ....dumps.store import SavedGraph
from ....dumps.tables import on_terminal, plain
from ....dumps.wording import counted
from ...isolation import ForkServer, opened
from ...kernels.records import MISSING_DEVICE, CompileRecord, PartRow, StageRow
from ...verdicts.ladder_words import address
from ...verdicts.own_passes import dropped_words, still_to_run
from ...verdicts.verdict import with_flags
from ..stage import NAMES, REWRITING, order, reaches
from . import asking, tables
from .asking import DEATH, INTERRUPTED, entry_of, sibling

INTERRUPTED_EXIT, LACK_EXIT = 130, 3
_STACK_LINES = 10


class ShowOptions(NamedTuple):
    """How to show it. `name`: the graph as it was typed; `code`: print the generated code, of these `kinds` and this
    `kernel`."""

    name: str
    folder: Path | None = None
    code: bool = False
    as_json: bool = False
    kinds: tuple[str, ...] = ()
    kernel: str = ""


def shown(saved: SavedGraph, request: asking.Request, options: ShowOptions) -> int:
    """Compiles and shows; the exit code. Raises GraphdbgError for what the user has to mend."""
    with temporary.folder("graphdbg-compile-") as work, opened(None, "inductor", asking.TASK) as server:
        return _Showing(saved, request, options, server, work).run()


class _Showing:
    def __init__(
        self, saved: SavedGraph, request: asking.Request, options: ShowOptions, server: ForkServer, work: Path
    ) -> None:
        self.saved, self.request, self.options, self.server, self.work = saved, request, options, server, work
        aside = options.code and options.folder is None
        terminal = on_terminal() and not aside
        self.rows = tables.StageRows(shutil.get_terminal_size().columns if terminal else 0, terminal=terminal)
        self.terminal = terminal
        self.say_row: Callable[[str], None] = (
            (lambda _: None) if options.as_json or request.diff else say if aside else _print
        )
        self.name, self.entered = address(saved), entry_of(saved, request.package)
        self.said: set[str] = set()

    def run(self) -> int:
        """Compiles and shows everything; the exit code."""
        code: int | None = None
        try:
            record = asking.compiled(self.saved, self.request, self.server, self.work / "asked", self.watch)
        except asking.CompileInterrupted as interrupted:
            record, code = interrupted.record, INTERRUPTED_EXIT
        self._complete(record)
        if code is None and self.request.skip and record.error is None and reaches(self.request.until, "codegen"):
            self._compare_code(record)
        diffs = tables.differences(self.work / "asked", record, self.request.diff) if self.request.diff else []
        record.diff = tables.difference_data(diffs)
        if self.options.folder is not None:
            emitted(self.options.folder, self.work / "asked", record)
        if self.request.package and record.error is None:
            record.files.append({"path": self.request.package, "bytes": Path(self.request.package).stat().st_size})
        if self.options.as_json:
            emit(msgspec.to_builtins(record), as_json=True, next=self._steps(record))
        else:
            self._tell(record, tables.difference_text(diffs, terminal=self.terminal) if diffs else "")
        return _exit_code(record) if code is None else code

    def watch(self, kind: str, event: dict[str, Any]) -> None:
        """Prints the rows and notes that are known before the end."""
        if kind == "start":
            devices = ", ".join(event["devices"]) or "no tensors"
            recorded = self.saved.record.versions.get("torch", "?")
            head = (
                f"{self.name}: {counted(event['nodes'], 'node')}, {devices}, torch {event['torch']} (recorded "
                f"{recorded})"
            )
            self.say_row(plain(f"{head}; enters at {self.entered}; caches not used"))
            if event["target"]:
                self.say_row(plain(f"compiled for {event['target']}; {event['assembler']}; no GPU is used"))
            if recorded != event["torch"]:
                say(f"note: recorded with torch {recorded}; stages of torch {event['torch']} are what you see")
            lost = [] if self.request.imports else still_to_run(self.saved)
            first = [f"compiled {dropped_words(self.saved, lost)[0]}"] if lost else []
            for note in [*first, *event["notes"]]:
                self.said.add(note)
                say(f"note: {note}")
            self.say_row(self.rows.head())
            if (row := self._before()) is not None:
                self.say_row(self.rows.row(row))
        elif kind == "row":
            self.say_row(self.rows.row(event["row"]))

    def _before(self) -> StageRow | None:
        """One row for the stages that ran before the graph was recorded; None where there are none."""
        behind = NAMES[: order(self.entered)]
        if not behind:
            return None
        where = sibling(self.saved, ("dynamo", "pre_grad", "joint"))
        why = "before this graph was recorded" + (f": see {where}" if where else "")
        part = self.saved.stage.removeprefix("post_grad_")
        if part == "joint_passed":
            part = "joint" if "num_fwd_outputs" in self.saved.record.compile_kwargs else "inference"
        return StageRow("dynamo" if part == "pre_grad" else part, _span(behind), "before", why)

    def _complete(self, record: CompileRecord) -> None:
        """Adds rows for stages that did not run, in each part that had begun."""
        for part in record.parts:
            done = [row for row in part.stages if row.stage in NAMES]
            ends = part.part.partition(".")[0]
            if not done or ends in ("dynamo", "joint"):
                continue
            last = max(order(row.stage) for row in done)
            left = NAMES[last + 1 :]
            failed = any(row.status == "failed" for row in done)
            cut = failed or record.error or record.until or record.lacking
            if not left or not cut or self.request.until == NAMES[last]:
                continue
            why = "a stage before failed" if failed or record.error else f"no {', '.join(record.lacking)} device here"
            part.stages += [StageRow(part.part, name, "not_run", why) for name in left]
            self.say_row(self.rows.row(StageRow(part.part, _span(left), "not_run", why)))

    def _compare_code(self, record: CompileRecord) -> None:
        """Compiles once more with nothing skipped, and records whether the generated code differs."""
        plain_one = msgspec.structs.replace(self.request, skip=[], until="codegen", graphs=False, source=True, diff="")
        skipping = plain_one if self.request.source else msgspec.structs.replace(plain_one, skip=self.request.skip)
        silent: asking.Watch = lambda _kind, _event: None  # noqa: E731
        if not self.request.source:
            asking.compiled(self.saved, skipping, self.server, self.work / "asked", silent)
        whole = asking.compiled(self.saved, plain_one, self.server, self.work / "whole", silent)
        texts = [_normal(source_of(self.work / folder, record)) for folder in ("whole", "asked")]
        kernels = [sum(len(part.kernels) for part in run.parts) for run in (whole, record)]
        record.code = {"differs": texts[0] != texts[1], "kernels_without_skip": kernels[0], "kernels": kernels[1]}

    def _tell(self, record: CompileRecord, difference: str) -> None:
        out = self.say_row if self.options.code and self.options.folder is None else _print
        if self.request.diff:
            if difference:
                _print(difference)
            elif record.error is None:
                say(f"{self.request.diff} did not run for this graph: nothing to compare")
        for part in record.parts if not self.request.diff else ():
            if part.kernels:
                out(f"\n{part.part}, kernels as called:" if len(record.parts) > 1 else "\nkernels as called:")
                out(tables.kernel_table(part, terminal=self.terminal))
                if part.compiled:
                    out(f"\nTriton kernels for {record.target}:")
                    out(tables.compiled_table(part, terminal=self.terminal))
            elif part.buffers and self.request.until == "lower":
                out(f"\n{part.part}, buffers:\n{tables.buffer_table(part.buffers)}")
        self._notes(record)
        if self.options.code and self.options.folder is None and record.error is None:
            self._code(record)
        for file in record.files:
            _print(f"{file['path']}  {file['bytes']:,} bytes")
        if record.error is not None:
            self._failure(record)
        elif record.lacking and reaches(self.request.until, "load"):
            less = with_flags(f"graphdbg compile {self.name} --until codegen")
            say(
                f"graphdbg: {self.name} cannot be loaded here: there is no {', '.join(record.lacking)} device. "
                f"Its code is as above; to ask for no more: {less}"
            )
        else:
            self._next(record)

    def _code(self, record: CompileRecord) -> None:
        options, work = self.options, self.work / "asked"
        if options.kernel and not tables.named(record, options.kernel):
            known = ", ".join(tables.named(record, "")) or "none"
            raise NoSuchNodeError(f"no kernel is called {options.kernel!r}", f"there are {known}")
        if "source" in options.kinds:
            _print(source_of(work, record, options.kernel))
        if text := tables.forms_of(work, record, options.kinds, options.kernel):
            _print(text)

    def _notes(self, record: CompileRecord) -> None:
        for note in tables.notes_of(record) if record.error is None else ():
            say(f"note: {note}")
        if record.error is None and not self.request.diff and not record.lacking:
            left = NAMES[order(self.request.until) + 1 :] if self.request.until else ()
            if left:
                asked = "as asked" if not self.options.code else "where the code is"
                say(f"stopped after {self.request.until}, {asked}; not run: {', '.join(left)}")
        if record.error is None and not any(part.stages for part in record.parts):
            say(f"{self.name}: empty graph, returned as it is: nothing is compiled")
        if record.seconds:
            say(f"total {record.seconds:.2f} s")
        for note in dict.fromkeys(record.notes):
            if note not in self.said:
                say(f"note: {note}")
        if record.code is not None:
            before, after = record.code["kernels_without_skip"], record.code["kernels"]
            count = f" ({before} -> {after} kernel calls)"
            say(f"generated code: {'differs' + count if record.code['differs'] else 'the same as without --skip'}")

    def _failure(self, record: CompileRecord) -> None:
        error = record.error
        assert error is not None
        if error.type == INTERRUPTED:
            say(f"graphdbg: {error.message}; the rows above are what was done")
            return
        if error.kind == MISSING_DEVICE:
            say(f"graphdbg: {error.message}: {error.advice}")
            return
        if error.kind == DEATH:
            say(f"graphdbg: {error.message}" + (f": {error.advice}" if error.advice else ""))
            say("\n".join(_stack(error.excerpt or error.traceback)))
        else:
            say(f"graphdbg: {error.excerpt or error.message}")
        say(f"try: {' | '.join(self._steps(record))}")

    def _steps(self, record: CompileRecord) -> list[str]:
        """The commands to suggest next."""
        error, words = record.error, list[str]()
        if error is not None:
            before = NAMES[max(order(error.stage) - 1, 0)] if error.stage in NAMES else ""
            until = [f"compile {self.name} --until {before}"] if before and order(before) >= order(self.entered) else []
            judged = error.type != INTERRUPTED and error.kind != MISSING_DEVICE
            words = [f"minify {self.name}", f"bisect {self.name}", *until] if judged else []
        elif self.request.skip:
            words = [f"replay {self.name}", f"bisect {self.name}"]
        elif not self.request.diff and not self.request.package:
            stages = [row.stage for part in record.parts for row in part.stages if row.stage in REWRITING]
            diff = (
                f" --diff {stages[-1]}" if stages and not self.saved.stage.startswith("post_grad") else " --skip list"
            )
            return [with_flags(f"graphdbg compile {self.name}") + diff]
        return [with_flags(f"graphdbg {command}") for command in words]

    def _next(self, record: CompileRecord) -> None:
        if self.request.package:
            say(f"load it without graphdbg: torch._inductor.aoti_load_package({self.request.package!r})")
        elif self.request.skip:
            say(f"try: {' | '.join(self._steps(record))}")
        elif not self.request.diff and not self.options.code and self.options.folder is None:
            (step,) = self._steps(record)
            say(f"try: {step}{'' if step.endswith(' --skip list') else ' | --skip list'} | --emit source -o DIR")


def _span(stages: Sequence[str]) -> str:
    return stages[0] if len(stages) == 1 else f"{stages[0]}..{stages[-1]}"


def _print(text: str) -> None:
    emit(text, as_json=False)


def _stack(output: str) -> list[str]:
    """Where a process was as it died: the innermost frames, down to the stage's own."""
    lines = output.strip().splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith("Stack (most recent")), None)
    if start is None:
        return lines[-_STACK_LINES:]
    frames = [line for line in lines[start + 1 :] if line.startswith("  File")]
    end = next((index for index, line in enumerate(frames) if "/compile_fx/pipeline.py" in line), len(frames))
    return frames[: min(end, _STACK_LINES)]


def _normal(source: str) -> str:
    """Generated code without Inductor's numbers of graphs, which count per process, and without folders of a cache."""
    import re

    return re.sub(r"graph_\d+", "graph_N", re.sub(r"# AOT ID: .*|/\S*/", "", source))


def _exit_code(record: CompileRecord) -> int:
    if record.error is None and tables.failed_kernels(record):
        return 1
    if record.error is None:
        return LACK_EXIT if record.lacking and reaches(record.until, "load") else 0
    missing = record.error.kind in ("missing compiler", "missing C++ compiler", MISSING_DEVICE)
    return LACK_EXIT if missing else INTERRUPTED_EXIT if record.error.type == INTERRUPTED else 1


def emitted(folder: Path, work: Path, record: CompileRecord) -> list[dict[str, Any]]:
    """Writes the output folder; returns the files in it, with sizes. `work` is the folder that the child wrote to.
    Raises UsageError where `folder` exists."""
    with new_folder(folder) as fresh:
        for source in sorted(work.rglob("*")):
            of_a_diff = source.suffix == ".json" and source.name.startswith(("before_", "after_"))
            if source.is_file() and not of_a_diff:
                target = fresh / source.relative_to(work)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        for part in record.parts:
            _tables(fresh / part.part, part)
        if record.error is not None:
            text = record.error.excerpt or record.error.message
            (fresh / "error.txt").write_text(f"{text}\n\n{record.error.traceback}".rstrip() + "\n", encoding="utf-8")
        files = [path for path in sorted(fresh.rglob("*")) if path.is_file()]
        record.files = [{"path": str(folder / path.relative_to(fresh)), "bytes": path.stat().st_size} for path in files]
        (fresh / "compile.json").write_bytes(msgspec.json.encode(record))
        size = (fresh / "compile.json").stat().st_size
    record.files.insert(0, {"path": str(folder / "compile.json"), "bytes": size})
    return record.files


def source_of(work: Path, record: CompileRecord, kernel: str = "") -> str:
    """The generated code of all parts, or of each generated kernel with this in its name, under lines with the part's
    name."""
    texts: list[str] = []
    for part in record.parts:
        folder = work / part.part
        paths = sorted((folder / "kernels").glob("*")) if kernel else [folder / "output_code.py"]
        for path in paths:
            if path.is_file() and kernel in path.stem:
                texts.append(f"# {record.graph}: {part.part}\n{path.read_text(encoding='utf-8').strip()}\n")
    return "\n\n".join(texts)


def _tables(folder: Path, part: PartRow) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    both: dict[str, Any] = {"node_to_kernel": part.node_to_kernel, "without_kernel": part.without_kernel}
    both["kernel_to_node"] = {row.label: row.nodes for row in part.kernels}
    tables = {"buffers": part.buffers, "compiled": part.compiled, "kernels": part.kernels, "map": part.kernels and both}
    for name, table in {"stages": part.stages, **tables}.items():
        if table or name == "stages":
            (folder / f"{name}.json").write_bytes(msgspec.json.encode(table))
