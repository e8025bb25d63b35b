"""A run as it grows: journals are read on from where they were, twice a second, by size and time of change. Needs no
torch.

It does not wait, print or open a graph; a run that is not there yet, or has vanished, is a state and no error.
`lines_until_end` gives a line for each step that a graph takes, and for each process that ends.

>>> following = Following(Path("myrun"))
>>> following.poll()
True
>>> [row.status for row in following.rows][:2]
['ran', 'compiled']
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from .. import deaths, index, journal
from ..errors import GraphdbgError
from ..graph_folder import GRAPHS_FOLDER, JOURNAL_FILE, RUN_FILE
from ..index import ListedGraph
from ..lines import Tail
from ..process import EXIT_FILE, liveness
from ..process import FILE as PROCESS_FILE
from ..reading import read_record
from ..schema import RunRecord
from ..tables import one_line

State = Literal["waiting", "running", "ended", "vanished", "unreadable", "unknown"]
"""waiting: not there yet; unknown: its processes are on another host; unreadable: run.json is damaged, see
`trouble`."""

POLL_S = 0.5
GRACE_S = 3.0
"""How long after the last of its processes a command counts as ended, where nobody recorded its end."""

_Stamp = tuple[tuple[int, int, int], ...]


class _Journal:
    """A journal that is read as it grows, and what is known of the folders beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents = journal.JournalContents([], [])
        self.folders = index.Folders()
        self._tail = Tail(path)

    def read_on(self) -> None:
        """Reads what was added; from the start where the file is another or became shorter."""
        try:
            new_lines = self._tail.read()
        except OSError as error:
            self.contents.damage[:] = [f"cannot read {self.path}: {error.strerror or error}"]
            return
        if self._tail.fresh:
            self.contents = journal.JournalContents([], [])
        more = journal.of_lines(new_lines, str(self.path))
        self.contents.events += more.events
        self.contents.damage += more.damage


class Following:
    """A run that is looked at again and again. `rows` and `processes` are as of the last `poll`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State = "waiting"
        self.record: RunRecord | None = None
        self.processes: list[index.Process] = []
        self.rows: list[index.ListedGraph] = []
        self.trouble = ""
        """Why the run cannot be read."""
        self._journals: dict[str, _Journal] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._run_stamp: tuple[int, int, int] | None = None
        self._quiet_since: float | None = None

    def poll(self) -> bool:
        """Reads what is new; returns whether anything is. Never raises for a damaged run."""
        before = (self.state, self.trouble, len(self.processes))
        try:
            changed = self._look()
        except GraphdbgError as error:
            self.state, self.trouble, changed = "unreadable", str(error), False
        return changed or before != (self.state, self.trouble, len(self.processes))

    def events(self, process: index.Process) -> list[journal.Event]:
        """The journal of one of its processes, as far as it was read."""
        return self._journals[process.name].contents.events

    @property
    def damage(self) -> list[str]:
        """One sentence per torn journal line or unreadable small file."""
        return [sentence for process in self.processes for sentence in process.damage]

    @property
    def in_flight(self) -> list[index.ListedGraph]:
        """The graphs that are being compiled or run."""
        return [row for row in self.rows if row.status in journal.IN_FLIGHT and not row.lost]

    def _look(self) -> bool:
        if not index.is_run(self.path):
            self.state = "waiting" if self.record is None else "vanished"
            return False
        stamp = _stamp(self.path / RUN_FILE)
        if self.record is None or stamp != self._run_stamp:
            self._forget()
            self.record = read_record(self.path / RUN_FILE, RunRecord)
            self._run_stamp, self.trouble = stamp, ""
        changed = self._look_at_processes(index.process_folders(self.path))
        if changed:
            self.processes = index.in_order(self.processes)
            self.rows = index.rows(self.processes)
        self.state = self._now()
        return changed

    def _forget(self) -> None:
        """Starts over: another run is in the same place."""
        self.processes, self.rows = [], []
        self._journals, self._stamps, self._quiet_since = {}, {}, None

    def _look_at_processes(self, names: list[str]) -> bool:
        known = {process.name: process for process in self.processes}
        changed = known.keys() - set(names) != set()
        kept: list[index.Process] = []
        for name in names:
            folder, old = self.path / name, known.get(name)
            stamp = tuple(_stamp(folder / file) for file in (JOURNAL_FILE, EXIT_FILE, PROCESS_FILE, GRAPHS_FOLDER))
            if old is not None and stamp == self._stamps.get(name):
                alive = old.liveness if old.liveness in ("ended", "dead") else liveness(old.record, ended=False)
                changed = changed or alive != old.liveness
                kept.append(old if alive == old.liveness else msgspec.structs.replace(old, liveness=alive))
                continue
            self._stamps[name] = stamp
            reader = self._journals.setdefault(name, _Journal(folder / JOURNAL_FILE))
            reader.read_on()
            kept.append(index.process_at(folder, reader.contents, reader.folders))
            changed = True
        self.processes = kept
        return changed

    def _now(self) -> State:
        statuses = {ending.status for ending in deaths.endings(self.processes)}
        if (self.path / EXIT_FILE).exists():
            return "ended"
        if "running" in statuses or not self.processes:
            self._quiet_since = None
            return "running"
        if "unknown" in statuses:
            return "unknown"
        # Without `graphdbg dump` nobody records the end of the command, and another process may yet start.
        last = max((process.last.time for process in self.processes if process.last), default=0.0)
        if time.time() - last > 2 * GRACE_S:
            return "ended"
        self._quiet_since = self._quiet_since or time.monotonic()
        return "ended" if time.monotonic() - self._quiet_since > GRACE_S else "running"


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        now = path.stat()
    except OSError:
        return (0, 0, 0)
    return (now.st_ino, now.st_size, now.st_mtime_ns)


def lines_until_end(run: Following, wait: Callable[[float], None]) -> Iterator[str]:
    """Lines as they come, until the run has ended, vanished or cannot be read; `wait` is called in between."""
    steps: dict[tuple[str, str], tuple[str, float, bool, str]] = {}
    ended: set[str] = set()
    said_waiting = False
    while True:
        run.poll()
        if run.state == "waiting" and not said_waiting:
            said_waiting = True
            yield f"waiting for {run.path}: it is not there yet"
        for row in run.rows:
            step = (row.status, row.since, row.lost, row.at)
            if steps.get((row.process, row.local)) != step:
                steps[row.process, row.local] = step
                yield _step(row)
        for end in deaths.endings(run.processes):
            if end.status in ("failed", "killed", "died") and end.process.name not in ended:
                ended.add(end.process.name)
                yield deaths.sentence(end, run.processes)
        if run.state in ("ended", "vanished", "unreadable"):
            return
        wait(POLL_S)


def _step(row: ListedGraph) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(row.since)) if row.since else " " * 8
    seconds = f" {row.seconds:.2f} s" if row.seconds is not None and row.status in ("compiled", "failed") else ""
    nodes = "" if row.nodes is None else str(row.nodes)
    status = f"{row.status}, {'died' if row.died else 'ended'}" if row.lost else row.status
    status += f" in {row.at}" if row.at else ""
    error = f"  {one_line(row.error)}" if row.error else ""
    return f"{clock}  {row.id:<28} {nodes:>7}  {status}{seconds}{error}"
