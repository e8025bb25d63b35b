"""Locates rings, and makes a run of a ring whose process died during a compiled call, a backward or a compile. Imports
no torch; leaves the ring of a process that may still live alone.

>>> recovered()                         # no recording held a ring here
[]
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ....dumps import index, journal, process, trust
from ....dumps.atomic import free_path, write_file
from ....dumps.errors import GraphdbgError
from ....dumps.graph_folder import GRAPHS_FOLDER, JOURNAL_FILE, RUN_FILE, TENSORS_FOLDER, encode
from ....dumps.held import FOLDER as HELD
from ....dumps.opening import opened
from ....dumps.output import say
from ....dumps.reading import read_record
from ....dumps.schema import RunRecord
from ....dumps.writer import RunWriter
from .. import summary

MARK = "call"
"""File in a process folder that records what is running at the moment."""
IDLE, CALL, BACKWARD = range(3)
_STATE = struct.Struct("<B7xQ112s")
"""State (IDLE, CALL or BACKWARD), number of the execution, id of the graph that was called last."""
_TAKEN = ".taken"


class Mark:
    """Records what is running at the moment, in mapped memory that outlives the process."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            os.truncate(descriptor, _STATE.size)
            self.buffer = mmap.mmap(descriptor, _STATE.size)
        finally:
            os.close(descriptor)

    def call(self, local: bytes, execution: int) -> None:
        """Records that a graph is about to run."""
        _STATE.pack_into(self.buffer, 0, CALL, execution, local)

    def state(self, state: int) -> None:
        """Records that the graph ended, or a backward began."""
        self.buffer[0] = state


class Recovered(NamedTuple):
    """A run made from a ring. `graph`: the graph that its process was last at; `what`: what it did then."""

    run: Path
    graph: str
    what: str
    command: str


def fresh() -> Path:
    """A path for this process's ring, which does not exist yet. Raises GraphdbgError where none can be created."""
    folder = trust.place().parent / trust.RINGS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return free_path(str(folder / f"{os.getpid()}"))


def recovered() -> list[Recovered]:
    """Makes runs of the rings of dead processes, in the folder where each was armed, or in the current one; never
    raises."""
    runs: list[Recovered | None] = []
    for ring in trust.rings():
        with contextlib.suppress(OSError, GraphdbgError):
            runs.append(_recovered(ring))
    return [run for run in runs if run is not None]


def report() -> None:
    """Reports the runs that `recovered` made, and what to do with them."""
    for run in recovered():
        name = summary.shown_path(run.run)
        who = run.command or "a process"
        say(
            f"graphdbg: {who} ended before it could save its graphs (killed, crashed, no space): they are in {name}; "
            f"the last one was {run.graph}: {run.what}"
        )
        say(f"graphdbg: next: graphdbg minify {name}/{run.graph}")


def _recovered(ring: Path) -> Recovered | None:
    """Makes a run from a ring; None where its process may still live."""
    if ring.name.endswith(_TAKEN) or not (ring / RUN_FILE).exists():
        return None
    processes = index.processes(ring)
    if any(process.liveness not in ("dead", "ended") for process in processes):
        return None
    taken = ring.with_name(ring.name + _TAKEN)
    ring.rename(taken)  # the rename succeeds for one command only
    try:
        run = _made_a_run(taken, next((process for process in processes if process.states), None))
    except BaseException:
        taken.rename(ring)  # nothing is lost: the next command tries again
        raise
    shutil.rmtree(taken, ignore_errors=True)
    return run


def _made_a_run(taken: Path, process: index.Process | None) -> Recovered | None:
    if process is None:
        return None
    local, alone, what, events = _last(process, taken / process.name / MARK)
    graphs = [local] if alone else None
    run = to_run(taken, process.name, _free(_begun_in(taken / process.name)), graphs, events, gone=True)
    return Recovered(run, local, what, " ".join(process.record.argv))


def _last(process: index.Process, mark: Path) -> tuple[str, bool, str, list[dict[str, Any]]]:
    """The graph that a process was last at; whether it must be that one; what the process did, as text; journal events
    that record it."""
    compiling = next((local for local, state in process.states.items() if state.status == "compiling"), None)
    if compiling is not None:
        return compiling, True, "it was being compiled", []
    if not mark.exists():
        return next(reversed(process.states)), False, "nothing had run", []
    with opened(mark) as file:
        state, execution, name = _STATE.unpack(file.read(_STATE.size))
    local = name.rstrip(b"\0").decode()
    if state == IDLE:
        return local, False, f"it had run (execution {execution}); the code after it is not compiled", []
    what = f"it ran (execution {execution})" if state == CALL else f"a backward ran after its execution {execution}"
    return local, state == CALL, what, [{"kind": "running", "graph": local, "execution": execution}]


def _begun_in(process: Path) -> Path:
    for event in journal.read(process / JOURNAL_FILE).events:
        if "armed" in event.fields:
            return Path(str(event.fields["armed"]))
    return Path.cwd()


def _free(folder: Path) -> Path:
    here = folder if os.access(folder, os.W_OK) else Path.cwd()
    return free_path(str(here / "graphdbg-armed"), bare=False)


def to_run(
    ring: Path,
    name: str,
    path: Path,
    graphs: Iterable[str] | None,
    events: Iterable[dict[str, Any]],
    *,
    gone: bool = False,
) -> Path:
    """A new run at `path` of one process of a ring: its graphs, or those named; with more events in its journal.

    `gone`: the process died, and its held inputs go over. Raises GraphdbgError, OSError, and then leaves nothing.
    """
    record = msgspec.structs.replace(read_record(ring / RUN_FILE, RunRecord), inputs_policy="last")
    path = RunWriter.create(path, record, ours=True).path
    try:
        folder = path / name
        shutil.copytree(ring / name, folder, ignore=shutil.ignore_patterns(MARK, *([] if gone else [HELD])))
        if (ring / TENSORS_FOLDER).is_dir():
            shutil.copytree(ring / TENSORS_FOLDER, path / TENSORS_FOLDER, dirs_exist_ok=True)
        log = journal.Journal(folder / JOURNAL_FILE)
        kept = None if graphs is None else set(graphs)
        for graph_folder in sorted((folder / GRAPHS_FOLDER).glob("*/*")):
            local = f"{graph_folder.parent.name}/{graph_folder.name}"
            if kept is not None and local not in kept:
                shutil.rmtree(graph_folder)
                log.event("left_out", local, reason="the choice of what ran last")
        for event in events:
            log.event(**event)
        if gone:
            about = msgspec.structs.replace(read_record(folder / process.FILE, process.ProcessRecord), gone=True)
            (folder / process.FILE).unlink()
            write_file(folder / process.FILE, encode(about))
        else:
            log.event("end")
        log.close()
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return path
