"""What `ls` shows of a run, from journals, folder names and process.json alone: no graph.json is opened.

It is fast for thousands of graphs, and reads what a killed process left behind.

>>> [(row.id, row.status) for row in rows(processes(Path("myrun")))][:2]
[('0_0/dynamo', 'ran'), ('0_0/pre_grad', 'compiled')]
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from . import ids, journal
from .errors import GraphdbgError, UnreadableError
from .graph_folder import GRAPH_FILE, GRAPHS_FOLDER, JOURNAL_FILE, RUN_FILE, TENSORS_FOLDER
from .process import EXIT_FILE, ExitRecord, Liveness, ProcessRecord, liveness
from .process import FILE as PROCESS_FILE
from .reading import read_if_there, read_record, stored
from .schema import FORMAT, GraphRecord
from .sidecar import TABLE, read_table
from .wording import counted

_SETTLED_NS = 2_000_000_000
"""A folder changed less than this ago may change again with the same mtime, as clocks of file systems are coarse."""


class Process(msgspec.Struct):
    """One recorded process: its folder, whether it lives, the states of its graphs, and its damaged files.

    `last` is its last event about a graph, `exit` its exit code as seen from outside, `uncaught` the exception that
    ended it, `left_out` the number of graphs that were not saved, by the limit that excluded them."""

    name: str
    path: Path
    rank: int | None
    record: ProcessRecord
    liveness: Liveness
    states: dict[str, journal.GraphState]
    saved: set[str]
    damage: list[str]
    last: journal.Event | None = None
    exit: ExitRecord | None = None
    uncaught: str | None = None
    left_out: dict[str, int] = {}


class ListedGraph(journal.GraphState, kw_only=True):
    """One graph as `ls` shows it. `id`: the id that commands take; `saved`: False when only the journal knows the
    graph; `lost`: in flight when its process ended; `died`: its process died instead of ending."""

    id: str
    local: str
    process: str
    rank: int | None
    stage: str
    saved: bool
    path: Path
    lost: bool = False
    died: bool = False

    def fixed(self) -> dict[str, Any]:
        """The row as `ls --json` prints it. `at` and `stack` (where a long compile was last seen) and `word` (the
        program's own name for the stage) are there only when set."""
        names = ["id", "process", "rank", "stage", "nodes", "status", "error", "seconds"]
        names += ["at", "stack"] * bool(self.at) + ["word"] * bool(self.word)
        return {name: getattr(self, name) for name in names}


def is_run(path: Path) -> bool:
    """Whether the folder holds a run."""
    return (path / RUN_FILE).is_file()


def runs(folder: Path) -> list[Path]:
    """The runs directly inside a folder, by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted(folder / entry.name for entry in entries if entry.is_dir() and is_run(folder / entry.name))
    except OSError as error:
        raise UnreadableError(f"cannot read {folder}", error.strerror or str(error)) from error


def processes(run: Path) -> list[Process]:
    """The processes of a run by rank, then start time. Damaged journals and process files are reported in `damage`, not
    raised."""
    return in_order(process_at(run / entry, journal.read(run / entry / JOURNAL_FILE)) for entry in process_folders(run))


def process_folders(run: Path) -> list[str]:
    """The names of a run's folders that belong to processes."""
    files = (PROCESS_FILE, JOURNAL_FILE, GRAPHS_FOLDER)
    names = [name for name in _folders(run) if name != TENSORS_FOLDER]
    return [name for name in names if any((run / name / file).exists() for file in files)]


def in_order(processes: Iterable[Process]) -> list[Process]:
    """Processes by rank, then start time."""
    return sorted(processes, key=lambda p: (p.rank is None, p.rank or 0, p.record.started, p.name))


class Folders:
    """The folders of one process's graphs. `look` reads again only the compiles that changed since its last call."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, list[str]]] = {}

    def look(self, path: Path) -> list[tuple[str, list[str]]]:
        """The names of compiles, each with the names of its stages."""
        folders: dict[str, tuple[int, list[str]]] = {}
        for name in _folders(path):
            try:
                changed = (path / name).stat().st_mtime_ns
            except OSError:  # deleted meanwhile
                continue
            known = self._known.get(name)
            settled = known is not None and known[0] == changed and time.time_ns() - changed > _SETTLED_NS
            folders[name] = known if known is not None and settled else (changed, _folders(path / name))
        self._known = folders
        return [(name, stages) for name, (_, stages) in folders.items()]


def _folders(path: Path) -> list[str]:
    try:
        with suppress(FileNotFoundError), os.scandir(path) as entries:
            return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
        return []
    except OSError as error:
        raise UnreadableError(f"cannot read {path}", error.strerror or str(error)) from error


def process_at(path: Path, contents: journal.JournalContents, folders: Folders | None = None) -> Process:
    """Returns the process of a folder whose journal was already read. Damaged files are listed in `damage`, not raised.
    `folders`: keeps what was read, for the next call."""
    damage = list(contents.damage)
    try:
        record = read_record(path / PROCESS_FILE, ProcessRecord)
    except GraphdbgError as error:
        damage.append(str(error))
        record = ProcessRecord(format=FORMAT, name=path.name, pid=0, host="")
    compiles = (folders or Folders()).look(path / GRAPHS_FOLDER)
    there = [f"{compile_name}/{stage}" for compile_name, stages in compiles for stage in stages]
    states = contents.states()
    wrong = {local for local in {*there, *states} if not ids.is_id(local)}
    damage += [f"{path / GRAPHS_FOLDER / local!s}: not a graph id, ignored" for local in there if local in wrong]
    damage += [f"{path / JOURNAL_FILE}: {local!r} is not a graph id, ignored" for local in states if local in wrong]
    saved, states = set(there) - wrong, {local: state for local, state in states.items() if local not in wrong}
    for local in sorted(saved - states.keys()):
        states[local] = journal.GraphState(status="captured")
    left = exit_record(path, damage)
    end = contents.ending()
    alive = "dead" if left is not None and not end.ended else liveness(record, ended=end.ended)
    process = Process(path.name, path, record.rank, record, alive, states, saved, damage, end.last, left, end.uncaught)
    process.left_out = dict(end.left_out)
    return process


def left_out(processes: Iterable[Process]) -> Counter[str]:
    """Reason -> how many graphs of those processes were not saved for it."""
    return sum((Counter(process.left_out) for process in processes), Counter[str]())


def left_out_text(counts: Counter[str]) -> str:
    """Counts of left-out graphs as text: "left out: 480 graphs by --max-disk 8000000, 12 by --only forward"; empty when
    none was left out."""
    parts = [f"{counted(count, 'graph')} by {reason}" for reason, count in counts.most_common()]
    return f"left out: {', '.join(parts)}" if parts else ""


def exit_record(path: Path, damage: list[str]) -> ExitRecord | None:
    """How the process of a folder (of a run's folder: its command) ended, as seen from outside; None when nobody saw
    it."""
    try:
        return read_if_there(path / EXIT_FILE, ExitRecord)
    except GraphdbgError as error:
        damage.append(str(error))
        return None


def rows(processes: Iterable[Process]) -> list[ListedGraph]:
    """The graphs of the given processes in the order of capture."""
    pairs = [(process, local) for process in processes for local in process.states]
    names = ids.shown([ids.Address(process.name, process.rank, local) for process, local in pairs])
    return [_row(process, local, name) for (process, local), name in zip(pairs, names, strict=True)]


def _row(process: Process, local: str, name: str) -> ListedGraph:
    state = process.states[local]
    path = process.path / GRAPHS_FOLDER / local
    nodes = state.nodes
    if nodes is None and local in process.saved:  # the journal lost the line of this graph
        try:
            table = read_table(path / TABLE) if stored(path / TABLE) is not None else None
            nodes = len(read_record(path / GRAPH_FILE, GraphRecord).graph.nodes if table is None else table)
        except GraphdbgError as error:
            process.damage.append(str(error))
    row = ListedGraph(
        **msgspec.structs.asdict(state),
        id=name,
        local=local,
        process=process.name,
        rank=process.rank,
        stage=ids.stage_of(local),
        saved=local in process.saved,
        path=path,
        lost=state.status in journal.IN_FLIGHT and process.liveness in ("dead", "ended"),
        died=process.liveness == "dead",
    )
    row.nodes = nodes
    if row.lost:
        how = "died" if row.died else "ended"  # ended: while one of its threads was still compiling or running
        row.error = f"process {process.record.pid} {how} while this graph was {state.status}"
    return row
