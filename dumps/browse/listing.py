"""Runs, their processes and graphs as one list of lines that fold, for the Home screen. Imports no torch, opens no
graph, prints nothing.

Also: follows a growing run: twice a second, journals whose size or time changed are read on from their last position.

Everything damaged, vanished, left out or missing so far has a line of its own, so that the rest is still shown.

>>> from graphdbg.dumps.browse.listing import Following
>>> following = Following(Path("myrun"))
>>> following.poll()
True
>>> lines = visible(run_lines("myrun", following), folded=set())
>>> [(line.kind, line.name, line.status) for line in lines][:3]
[('run', 'myrun', ''), ('compile', '0_0', 'ran'), ('graph', '0_0/dynamo', 'ran')]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from .. import deaths, index, journal, why
from ..errors import GraphdbgError
from ..graph_folder import GRAPHS_FOLDER, JOURNAL_FILE, RUN_FILE
from ..index import ListedGraph
from ..journal import IN_FLIGHT
from ..lines import Tail
from ..process import EXIT_FILE, liveness
from ..process import FILE as PROCESS_FILE
from ..reading import read_record
from ..schema import RunRecord
from ..tables import one_line, plain
from ..why.show import Compiled, of_rows
from ..wording import age_text, ago_text, counted
from ..worst import why_none

State = Literal["waiting", "running", "ended", "vanished", "unreadable", "unknown"]
"""waiting: not there yet; unknown: its processes are on another host; unreadable: run.json is damaged, see
`trouble`."""

POLL_S = 0.5
GRACE_S = 3.0
"""Seconds after its last process ends until a command counts as ended, where its own end is not recorded."""

_Stamp = tuple[tuple[int, int, int], ...]


class _JournalTail:
    """A journal that is read as it grows, with the listing of the graph folders beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents = journal.JournalContents([], [])
        self.folders = index.Folders()
        self._tail = Tail(path)

    def read_on(self) -> None:
        """Reads the lines added since the last call; from the start where the file was replaced or became shorter."""
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
    """A run that is polled repeatedly. `rows` and `processes` are those of the last `poll`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: State = "waiting"
        self.record: RunRecord | None = None
        self.processes: list[index.Process] = []
        self.rows: list[index.ListedGraph] = []
        self.trouble = ""
        """Why the run cannot be read."""
        self._journals: dict[str, _JournalTail] = {}
        self._stamps: dict[str, _Stamp] = {}
        self._run_stamp: tuple[int, int, int] | None = None
        self._quiet_since: float | None = None

    def poll(self) -> bool:
        """Reads what is new, and returns whether anything changed. Never raises for a damaged run."""
        before = (self.state, self.trouble, len(self.processes))
        try:
            changed = self._look()
        except GraphdbgError as error:
            self.state, self.trouble, changed = "unreadable", str(error), False
        return changed or before != (self.state, self.trouble, len(self.processes))

    def events(self, process: index.Process) -> list[journal.Event]:
        """The journal events of one process that were read so far."""
        return self._journals[process.name].contents.events

    @property
    def damage(self) -> list[str]:
        """One sentence per torn journal line or unreadable small file."""
        return [sentence for process in self.processes for sentence in process.damage]

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
        """Starts over, because another run has the same path."""
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
            reader = self._journals.setdefault(name, _JournalTail(folder / JOURNAL_FILE))
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
        # Without `graphdbg dump` the end of the command is not recorded, and another process may still start.
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
    """Yields lines as graphs progress, until the run has ended, vanished or cannot be read; calls `wait` in between."""
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


Kind = Literal["section", "run", "process", "compile", "graph", "out", "job", "note"]
GRAPHS = ("compile", "graph")
"""Kinds of lines about a graph; a line about a compile stands for its main graph."""

_MOST_NOTES = 8


class ListingLine(msgspec.Struct):
    """One line. `key` identifies it for the cursor; `target` is the name that commands take (`run`: that of its run);
    `text` belongs to no column.

    `folds`: there are lines below it; `since`: when it went in flight (0: not in flight).
    """

    key: str
    kind: Kind
    name: str
    depth: int = 0
    text: str = ""
    stage: str = ""
    nodes: int | None = None
    status: str = ""
    seconds: float | None = None
    error: str = ""
    bad: bool = False
    target: str = ""
    run: str = ""
    path: Path | None = None
    folds: bool = False
    since: float = 0.0
    saved: bool = True
    function: str = ""
    compiled: Compiled | None = None
    """The compile that the line shows, or belongs to."""
    judged: str = ""
    """For a compile: the graph whose verdict the line shows."""

    def status_text(self, now: float | None = None) -> str:
        """The status, with the seconds that the graph is in flight."""
        if self.since:
            return f"{self.status} {max(0.0, (time.time() if now is None else now) - self.since):.0f} s"
        return self.status

    @property
    def graph(self) -> str:
        """The id of the graph that the line is about."""
        return self.judged or (self.compiled.main.id if self.kind == "compile" and self.compiled else self.name)

    def words(self) -> str:
        """The text that a filter searches."""
        return f"{self.name} {self.stage} {self.status} {self.error} {self.text} {self.function}".lower()


def run_lines(name: str, run: Following) -> list[ListingLine]:
    """The lines of a run: its processes where there are several or one ended badly, its graphs, and notes on it.

    `name` is the user's name for the run, and the prefix of its graphs' ids (a packed run lies in another folder)."""
    key = f"run {name}"
    head = ListingLine(key, "run", name, 0, target=name, run=name, path=run.path, folds=run.record is not None)
    head.text, head.status, head.bad = _run_text(run)
    lines = [head]
    if run.record is None:
        return lines
    ends = deaths.endings(run.processes)
    hosts = {end.process.record.host for end in ends}
    compiles: dict[str, list[Compiled]] = {}
    for compiled in of_rows(run):
        compiles.setdefault(compiled.rows[0].process, []).append(compiled)
    for end in ends:
        process, below = end.process, 1
        bad = end.status in ("failed", "killed", "died")
        if len(ends) > 1 or bad:
            shown = process.name if process.rank is None else f"rank {process.rank} (pid {process.record.pid})"
            line = ListingLine(f"{key} {process.name}", "process", shown, below, status=end.status, bad=bad, folds=True)
            line.run = name
            ending_text = deaths.sentence(end, run.processes, with_host=len(hosts) > 1) if bad else ""
            line.text = plain(ending_text) or counted(len(process.states), "graph", form=",")
            lines.append(line)
            below += 1
        for compiled in compiles.get(process.name, []):
            lines += _compile_lines(key, name, compiled, below)
    return lines + _notes(key, name, run, 1)


def aged(lines: list[ListingLine], run: Following) -> list[ListingLine]:
    """The lines of an unchanged run with its current age; the same list if the text is the same."""
    text, status, bad = _run_text(run)
    if (lines[0].text, lines[0].status, lines[0].bad) == (text, status, bad):
        return lines
    return [msgspec.structs.replace(lines[0], text=text, status=status, bad=bad), *lines[1:]]


def visible(lines: Sequence[ListingLine], folded: set[str]) -> list[ListingLine]:
    """The lines without those below a folded line."""
    kept: list[ListingLine] = []
    hidden_below: int | None = None
    for line in lines:
        if hidden_below is not None and line.depth > hidden_below:
            continue
        hidden_below = line.depth if line.folds and line.key in folded else None
        kept.append(line)
    return kept


def _run_text(run: Following) -> tuple[str, str, bool]:
    """The text after a run's name, its status in a word, and whether something in it failed."""
    if run.state == "waiting":
        return "it is not there yet; its graphs are shown as they come", "waiting", False
    if run.state == "unreadable":
        return plain(run.trouble), "damaged", True
    if run.record is None:
        return "", run.state, False
    failed = sum(row.status == "failed" or row.lost for row in run.rows)
    parts = [counted(len(run.rows), "graph", form=",")]
    parts += [f"{failed} failed"] * bool(failed)
    if len(run.processes) > 1:
        parts.append(counted(len(run.processes), "process"))
    if run.record.started:
        parts.append(ago_text(time.time() - run.record.started))
    parts.append(one_line(" ".join(run.record.command), 60))
    if run.state == "vanished":
        return "the folder is not there any more; this is what was read before", "vanished", True
    return " · ".join(part for part in parts if part), "running" if _lives(run) else "", bool(failed)


def _lives(run: Following) -> bool:
    return run.state == "running" and any(process.liveness == "alive" for process in run.processes)


def _compile_lines(key: str, run: str, compiled: Compiled, depth: int) -> list[ListingLine]:
    """A line for the compile, and below it its graphs if there are several."""
    graphs = [_graph_line(key, run, row, depth + 1) for row in compiled.rows]
    main, worst = (graphs[compiled.rows.index(row)] for row in (compiled.main, compiled.worst))
    line = msgspec.structs.replace(main, key=f"{main.key} compile", kind="compile", name=compiled.id, depth=depth)
    line.stage, line.nodes, line.seconds = compiled.stages, compiled.nodes, compiled.seconds
    line.function, line.bad, line.folds = compiled.function(200), compiled.bad, len(graphs) > 1
    line.status, line.since = worst.status, worst.since
    for graph in (line, *graphs):
        graph.compiled = compiled
    return [line, *graphs] if line.folds else [line]


def _graph_line(key: str, run: str, row: index.ListedGraph, depth: int) -> ListingLine:
    status = f"{row.status}, {'died' if row.died else 'ended'}" if row.lost else row.status
    since = row.since if row.status in IN_FLIGHT and not row.lost else 0.0
    error = one_line(row.error or (row.at and f"in {row.at}"), 200) or ("" if row.saved else "it was not saved")
    return ListingLine(
        f"{key} {row.process} {row.local}",
        "graph",
        row.id,
        depth,
        stage=row.stage,
        nodes=row.nodes,
        status=status,
        seconds=row.seconds,
        error=error,
        bad=row.status == "failed" or row.lost,
        target=f"{run}/{row.id}",
        run=run,
        path=row.path,
        since=since,
        saved=row.saved,
    )


def _notes(key: str, name: str, run: Following, depth: int) -> list[ListingLine]:
    texts = [index.left_out_text(index.left_out(run.processes)), why.hint(name, run.processes)]
    if not run.rows and run.state != "running":
        texts.append(f"no graphs: {why_none(run.processes)}")
    note_lines = [ListingLine(f"{key} note {place}", "note", text, depth) for place, text in enumerate(texts) if text]
    damage = run.damage
    shown = enumerate(damage[:_MOST_NOTES])
    note_lines += [ListingLine(f"{key} damage {place}", "note", plain(text), depth, bad=True) for place, text in shown]
    if len(damage) > _MOST_NOTES:
        more = counted(len(damage) - _MOST_NOTES, "more damaged place")
        note_lines.append(ListingLine(f"{key} damage", "note", f"and {more}", depth, bad=True))
    return note_lines


def filtered(lines: Sequence[ListingLine], text: str, folded: Collection[str] = ()) -> list[ListingLine]:
    """The lines that contain every word of `text`; words may also be in the name or command of the line's run, or in
    its function (`-word`: not in the line). Lines above a kept line are kept. Graphs of a kept compile in `folded` are
    left out."""
    words = text.lower().split()
    if not words:
        return list(lines)
    kept: list[ListingLine] = []
    above: list[ListingLine] = []
    taken: set[str] = set()
    whole: set[str] = set()
    for line in lines:
        while above and above[-1].depth >= line.depth:
            above.pop()
        run = next((upper for upper in above if upper.kind == "run"), None)
        named = f"{run.name} {run.text.rpartition(' · ')[2]}".lower() if run else ""  # its command
        around = above[-1] if above and above[-1].kind == "compile" else None
        named += around.function.lower() if around else ""
        own = [word for word in words if word[:1] == "-" or word not in named]
        hidden = around is not None and around.key in folded and around.key in whole
        if line.kind in (*GRAPHS, "out", "job") and not hidden and matches(line.words(), own):
            kept += [upper for upper in above if upper.key not in taken]
            taken.update(upper.key for upper in above)
            kept.append(line)
            taken.add(line.key)
            whole.add(line.key)
        above.append(line)
    return kept


def matches(text: str, words: Iterable[str]) -> bool:
    """Whether the text contains every word, and no word that has a minus before it."""
    return all((word[1:] not in text) if word[:1] == "-" and len(word) > 1 else word in text for word in words)


def suggestion(line: ListingLine) -> str:
    """The next step for a graph that failed, in one line; empty for other lines."""
    if line.kind not in GRAPHS or not line.bad:
        return ""
    reason = line.error.partition(": ")[0] if line.status == "failed" else line.error
    if not line.saved:
        return f"{line.graph}: {reason}. It was not saved; w tells why it was compiled"
    return f"{line.graph}: {reason}. t triage · 5 shrink"


def first_bad(lines: Sequence[ListingLine]) -> int | None:
    """The line where the cursor begins: the first failed graph, preferably a saved one of a final stage, which is
    nearest to the error."""
    bad = [place for place, line in enumerate(lines) if line.kind in GRAPHS and line.bad and not line.folds]
    if not bad:
        return None
    final = ("forward", "backward", "inference")
    runnable = [place for place in bad if lines[place].saved and lines[place].stage in final]
    return (runnable or bad)[0]


def kernels_of(path: Path) -> int | None:
    """The number of kernels generated for a graph; None where no code was saved or the code cannot be read."""
    from ..kernels import WHOLE
    from ..store import SavedGraph

    try:
        files = SavedGraph(path).code_files()
    except (OSError, GraphdbgError):
        return None
    return sum(file.name != WHOLE for file in files) if files else None


def following_text(run: Following) -> str:
    """The state of a followed run: what is in flight, and for how long."""
    states = {
        "waiting": f"waiting for {run.path}: it is not there yet",
        "ended": "the run has ended",
        "vanished": "the folder is gone",
        "unreadable": "run.json is damaged",
        "unknown": "on another host: only there can you see whether it still runs",
    }
    resting = run.state == "running" and run.processes and not _lives(run)
    parts = ["none of its processes runs at the moment" if resting else states.get(run.state, run.state)]
    if run.state != "waiting":
        parts.append(counted(len(run.rows), "graph", form=","))
    if flight := [row for row in run.rows if row.status in IN_FLIGHT and not row.lost]:
        parts.append(f"{flight[-1].id} in flight, {flight[-1].status} for {age_text(time.time() - flight[-1].since)}")
    ends = [end for end in deaths.endings(run.processes) if end.status in ("failed", "killed", "died")]
    if ends:
        parts.append(plain(deaths.sentence(ends[0], run.processes)))
    return " · ".join(parts)
