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

from ....dumps.errors import UnreadableError, UsageError
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
    return [one for one in sorted(path.rglob("*.log")) if one.is_file() and lines.is_trace(one)]


def debug_in(path: Path) -> list[Path]:
    """The folders of graphs in a folder of TORCH_COMPILE_DEBUG, in the order of their compiles."""
    found = [one.parent for one in path.rglob(_RUNNABLE)] if path.is_dir() else []
    named = {one: _FOLDER.fullmatch(one.name) for one in found}
    return sorted(found, key=lambda one: (one.parent, int(known[3]) if (known := named[one]) else 0, one.name))


def is_one(path: Path) -> bool:
    """Whether a path is meant to be taken here: a folder, a file that begins as a trace does, or one that is named like
    one."""
    return path.is_dir() or (path.is_file() and (path.suffix == ".log" or lines.is_trace(path)))


def import_trace(path: Path, out: Path) -> ImportedRun:
    """Writes the run. Raises UsageError where there is no graph to be found, or `out` is taken."""
    traces = [lines.read(one) for one in traces_in(path)]
    folders = [] if traces else debug_in(path)
    processes: list[Process] = []
    left = [sentence for trace in traces for sentence in trace.damage]
    for trace in traces:
        ranks = list(dict.fromkeys(entry.rank for entry in trace.entries))
        late = len(ranks) == 2 and None in ranks  # what came before the process group was made
        rank = next((rank for rank in ranks if rank is not None), None)
        for one in [rank] if late else ranks:
            made = Process(one)
            made.take([entry for entry in trace.entries if late or entry.rank == one])
            processes.append(made)
    if folders:
        processes = [_of_folders(folders)]
    left += [note for made in processes for note in made.notes]
    processes = [made for made in processes if made.graphs]
    kind = "structured trace" if traces else "folder of TORCH_COMPILE_DEBUG"
    if not processes:
        raise UsageError(f"{path} was not imported", _why_nothing(path, bool(traces or folders), left), _how_to_trace())
    record = RunRecord(
        format=FORMAT,
        command=["graphdbg", "import", path.name],
        inputs_policy=FROM_TRACE,
        world_size=max(1, len(processes)),
        versions={"torch": version} if (version := next((made.torch for made in processes if made.torch), "")) else {},
        stages=[stage for stage in STAGES if any(graph.stage == stage for made in processes for graph in made.graphs)],
    )
    run, count = RunWriter.create(out, record), 0
    for made in processes:
        count += _write(run, made, path.name, left)
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


def _write(run: RunWriter, made: Process, source: str, left: list[str]) -> int:
    """Writes what is known of one process; returns how many graphs."""
    writer = run.process("trace" if made.rank is None else f"rank{made.rank}_trace", rank=made.rank)
    ids: list[tuple[TraceGraph, str]] = []
    writer.journal.event(
        "note", message=f"read from {source}, which says of inputs their layout alone: values are made up"
    )
    for one in made.told:
        if isinstance(one, dict):
            writer.journal.event("why", **one)
            continue
        local = writer.unique_id(one.compile_id, one.stage)
        record = made.record(one, local)
        try:
            check_graph(record, local)
        except UnreadableError as error:
            left.append(f"{local}: left out, {error.what}: {error.why}")
            continue
        writer.save_graph(record)
        ids.append((one, local))
    for graph, local in ids:
        if graph.status == "failed":
            kind, message = graph.error
            writer.journal.event("failed", local, type=kind, message=message, seconds=graph.seconds)
        elif graph.status == "compiled":
            writer.journal.event("compiled", local, seconds=graph.seconds)
    writer.close()
    return len(ids)


def _of_folders(folders: list[Path]) -> Process:
    """The graphs that Inductor left in folders named after them: model__0_forward_1.0."""
    made = Process(None)
    for folder in folders:
        named = _FOLDER.fullmatch(folder.name)
        number, kind = (named[1], named[2]) if named else ("0", "")
        try:
            told = runnable.read(read_text(folder / _RUNNABLE))
            made.add(of_runnable(told, f"x{number}_0", "joint_passed" if kind == "inference" else kind))
        except (UnreadableError, OSError) as error:
            why = f"{error.what}: {error.why}" if isinstance(error, UnreadableError) else str(error)
            made.notes.append(f"{folder.name}: left out, {why}")
    return made


def told(made: ImportedRun) -> str:
    """What was made, in one line."""
    where = f" of {counted(made.processes, 'process', 'processes')}" if made.processes > 1 else ""
    return (
        f"{made.kind}: {counted(made.graphs, 'graph')}{where}; inputs are known by their layout alone, values "
        "are made up"
    )
