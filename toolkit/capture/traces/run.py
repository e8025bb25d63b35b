"""A run of all graphs in structured traces, one process for each rank, or in a folder of TORCH_COMPILE_DEBUG.

Nothing of a trace is run: its graphs are parsed, and loaded by the names on the allow-list like those of any other run.

For example:

    import_trace(Path("trace"), Path("graphdbg-run-1"))
    # ImportedRun(path='graphdbg-run-1', kind='structured trace', graphs=14, processes=2, left_out=[])
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ....dumps.errors import CannotImportError, UnreadableError
from ....dumps.opening import read_text
from ....dumps.schema import FORMAT, FROM_TRACE, STAGES, RunRecord
from ....dumps.validate import check_graph
from ....dumps.wording import counted
from ....dumps.writer import RunWriter
from . import lines, runnable
from .process import Process, TraceGraph, of_runnable

_RUNNABLE = "fx_graph_runnable.py"
_FOLDER = re.compile(r"(?:.*__)?(\d+)_(forward|backward|inference)_(\d+)(?:\.\d+)?")


@dataclass
class ImportedRun:
    """What was made: the run's folder, what it was made of, how many graphs of how many processes, and one sentence for
    each thing that was left out."""

    path: str
    kind: str
    graphs: int
    processes: int
    left_out: list[str] = field(default_factory=list[str])


def traces_in(path: Path) -> list[Path]:
    """The structured traces that a path names: itself, or those in the folder."""
    if path.is_file():
        return [path] if lines.is_trace(path) else []
    return [file for file in sorted(path.rglob("*.log")) if file.is_file() and lines.is_trace(file)]


def debug_in(path: Path) -> list[Path]:
    """The folders of graphs in a folder of TORCH_COMPILE_DEBUG, in the order of their compiles."""
    folders = [folder.parent for folder in path.rglob(_RUNNABLE)] if path.is_dir() else []
    named = {folder: _FOLDER.fullmatch(folder.name) for folder in folders}
    return sorted(
        folders, key=lambda folder: (folder.parent, int(known[3]) if (known := named[folder]) else 0, folder.name)
    )


def is_one(path: Path) -> bool:
    """Whether a path is a trace by its looks: a folder, a file that begins as a trace does, or one that is named like
    one."""
    return path.is_dir() or (path.is_file() and (path.suffix == ".log" or lines.is_trace(path)))


def import_trace(path: Path, out: Path) -> ImportedRun:
    """Writes the run. Raises UsageError where there is no graph to be found, or `out` is taken."""
    traces = [lines.read(file) for file in traces_in(path)]
    folders = [] if traces else debug_in(path)
    processes: list[Process] = []
    left = [sentence for trace in traces for sentence in trace.damage]
    for trace in traces:
        ranks = list(dict.fromkeys(entry.rank for entry in trace.entries))
        late = len(ranks) == 2 and None in ranks  # what came before the process group was made
        rank = next((rank for rank in ranks if rank is not None), None)
        for of_rank in [rank] if late else ranks:
            process = Process(of_rank)
            process.take([entry for entry in trace.entries if late or entry.rank == of_rank])
            processes.append(process)
    if folders:
        processes = [_of_folders(folders)]
    left += [note for process in processes for note in process.notes]
    processes = [process for process in processes if process.graphs]
    kind = "structured trace" if traces else "folder of TORCH_COMPILE_DEBUG"
    if not processes:
        raise CannotImportError(
            f"{path} cannot be imported", _why_nothing(path, bool(traces or folders), left), _how_to_trace()
        )
    record = RunRecord(
        format=FORMAT,
        command=["graphdbg", "import", path.name],
        inputs_policy=FROM_TRACE,
        world_size=max(1, len(processes)),
        versions={"torch": version}
        if (version := next((process.torch for process in processes if process.torch), ""))
        else {},
        stages=[
            stage for stage in STAGES if any(graph.stage == stage for process in processes for graph in process.graphs)
        ],
    )
    run, count = RunWriter.create(out, record), 0
    for process in processes:
        count += _write(run, process, path.name, left)
    run.unite()
    return ImportedRun(str(out), kind, count, len(processes), left)


def _why_nothing(path: Path, known: bool, left: list[str]) -> str:
    if known:
        return (
            "; ".join(["no graph in it can be read", *left[:3]])
            if left
            else "there is no graph in it: nothing was compiled"
        )
    if path.is_file():
        return "it is empty" if not path.stat().st_size else "it does not begin as a structured trace does"
    return f"it holds no structured trace (*.log) and no {_RUNNABLE}"


def _how_to_trace() -> str:
    return (
        "TORCH_TRACE=FOLDER before a program's command makes a trace; where it can run again, record it: "
        "graphdbg dump SCRIPT"
    )


def _write(run: RunWriter, process: Process, source: str, left: list[str]) -> int:
    """Writes what is known of one process; returns how many graphs."""
    writer = run.process("trace" if process.rank is None else f"rank{process.rank}_trace", rank=process.rank)
    ids: list[tuple[TraceGraph, str]] = []
    writer.journal.event(
        "note", message=f"read from {source}, which says of inputs their layout alone: values are made up"
    )
    for entry in process.entries:
        if isinstance(entry, dict):
            writer.journal.event("why", **entry)
            continue
        local = writer.unique_id(entry.compile_id, entry.stage)
        record = process.record(entry, local)
        try:
            check_graph(record, local)
        except UnreadableError as error:
            left.append(f"{local}: left out, {error.what}: {error.why}")
            continue
        writer.save_graph(record)
        ids.append((entry, local))
    for graph, local in ids:
        if graph.status == "failed":
            kind, message = graph.error
            writer.journal.event("failed", local, type=kind, message=message, seconds=graph.seconds)
        elif graph.status == "compiled":
            writer.journal.event("compiled", local, seconds=graph.seconds)
    writer.close()
    return len(ids)


def _of_folders(folders: list[Path]) -> Process:
    """The process whose graphs Inductor left in folders named after them: model__0_forward_1.0."""
    process = Process(None)
    for folder in folders:
        named = _FOLDER.fullmatch(folder.name)
        number, kind = (named[1], named[2]) if named else ("0", "")
        try:
            script = runnable.read(read_text(folder / _RUNNABLE))
            process.add(of_runnable(script, f"x{number}_0", "joint_passed" if kind == "inference" else kind))
        except (UnreadableError, OSError) as error:
            why = f"{error.what}: {error.why}" if isinstance(error, UnreadableError) else str(error)
            process.notes.append(f"{folder.name}: left out, {why}")
    return process


def imported_line(imported: ImportedRun) -> str:
    """One line on the imported run."""
    where = f" of {counted(imported.processes, 'process', 'processes')}" if imported.processes > 1 else ""
    return (
        f"{imported.kind}: {counted(imported.graphs, 'graph')}{where}; inputs are known by their layout alone, values "
        "are made up"
    )
