"""The jobs of the replay screen: started, attached to again, their lines taken as they come, their end reported.

`LadderSeen` and `ValuesSeen` know what lines mean; a job that dies leaves the lines that it had printed. Paints nothing
itself. Also: `occupied`, how busy the NVIDIA GPUs here are, as `nvidia-smi` reports it: a replay beside a training run
is slow.

For example: `ReplayJobs(room).start("triage", ["triage", "myrun/0_0/forward", "--json-lines"])`.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....dumps.errors import InUseError, JobFailedError
from ....dumps.tables import plain
from ....dumps.wording import ago_text, size_text
from ....toolkit.node_values.seen import ValuesSeen
from ....toolkit.triage.seen import LadderSeen
from ...job_files import NORMAL, JobFile, conditions, of_graph, rungs_so_far
from ...jobs import Job, ending
from ...settings import mark

PROGRAM = "nvidia-smi"
QUERY = "--query-gpu=index,memory.used,memory.total,utilization.gpu"
LIMIT_S = 5.0
SOME_MIB = 1000
"""Less than this is what an idle device holds."""

if TYPE_CHECKING:
    from .room import ReplayRoom

KINDS = ("values", "bisect", "triage")
STOPPED = (130, -signal.SIGINT)

Data = dict[str, Any]


@dataclass
class ReplaySlot:
    """One command and its output: `document` is the JSON that a command prints at its end."""

    kind: str
    words: list[str]
    job: Job | None = None
    said: list[str] = field(default_factory=list)
    document: Data = field(default_factory=dict)
    code: int | None = None
    began: float = field(default_factory=time.time)
    ended_at: float = 0.0
    stopped: bool = False

    @property
    def line(self) -> str:
        """The command line as a user would type it."""
        return shlex.join(["graphdbg", *self.words])

    @property
    def runs(self) -> bool:
        """Whether the command has not ended."""
        return self.code is None

    def state(self) -> str:
        """The state in one or two words, for a tab."""
        if self.runs:
            return f"{mark('runs')} {time.time() - self.began:.0f} s"
        if self.stopped or self.code in STOPPED:
            return "stopped"
        if self.code not in NORMAL:
            return "✗ died"
        return ago_text(time.time() - self.ended_at)


class ReplayJobs:
    """The part of Replay that runs commands, and holds their findings."""

    def __init__(self, room: ReplayRoom) -> None:
        self.room = room
        self.ladder = LadderSeen()
        self.values = ValuesSeen()
        self.slots: dict[str, ReplaySlot] = {}

    @property
    def running(self) -> bool:
        """Whether any command has not ended."""
        return any(slot.runs for slot in self.slots.values())

    # -- starting and stopping

    def start(self, kind: str, words: Sequence[str]) -> None:
        """Starts a command in place of the last one of its kind."""
        old = self.slots.get(kind)
        if old is not None and old.runs:
            raise InUseError(f"{old.line} runs", "one at a time of each kind", "press x to stop it")
        slot = ReplaySlot(kind, self.room.workbench.as_trusted(words))
        slot.job = Job(slot.words, **self._hearing(slot))
        self._begin(slot)
        self.room.add_job(slot.job)
        self.room.changed(kind)

    def stop(self, kind: str) -> bool:
        """Stops the command of a kind; returns whether one was running."""
        slot = self.slots.get(kind)
        if slot is None or not slot.runs or slot.job is None:
            return False
        slot.stopped = True
        slot.job.stop()
        return True

    def find_last(self) -> None:
        """Attaches to the newest jobs about this graph; they may still run."""
        graph = self.room.here.graph
        if graph is not None:
            last = lambda: (rungs_so_far(graph), of_graph(graph))  # noqa: E731
            self.room.work(last, self._attach_all, group="last", doing="looking for the last ladder")

    def _attach_all(self, last: tuple[list[Data], dict[str, JobFile]]) -> None:
        before, by_kind = last
        for line in before if "triage" not in self.slots else ():
            self.ladder.take(line)
        if before:
            self.room.changed("triage")
        for kind, kept in by_kind.items():
            if kind in self.slots:
                continue
            slot = ReplaySlot(kind, kept.record.words, began=kept.record.started, ended_at=kept.ended or 0.0)
            self._begin(slot)
            ours = next((job for job in self.room.workbench.jobs if job.folder == kept.folder), None)
            slot.job = Job.attach(kept.folder, **self._hearing(slot))
            if ours is None and kept.state == "running":
                self.room.workbench.jobs.add(slot.job)
            self.room.changed(kind)

    def _begin(self, slot: ReplaySlot) -> None:
        before = self.slots.get(slot.kind, slot)
        self.slots[slot.kind] = slot
        if slot.kind == "triage":
            alike = conditions(before.words) == conditions(slot.words)
            self.ladder = LadderSeen(rows=dict(self.ladder.rows) if alike else {})
        elif slot.kind == "values":
            self.values = ValuesSeen()

    # -- what comes

    def _hearing(self, slot: ReplaySlot) -> dict[str, Any]:
        """Callbacks that pass the output of a job to the screen; that of an older job of the kind is dropped."""

        def heard(take: Callable[[ReplaySlot, Any], None]) -> Callable[[Any], None]:
            return lambda what: self.room.home(
                lambda: self.slots.get(slot.kind) is slot and take(slot, what), doing=slot.kind
            )

        return {"on_batch": heard(self._take), "on_said": heard(self._hear), "on_end": heard(self._over)}

    def _take(self, slot: ReplaySlot, batch: list[Data]) -> None:
        for data in batch:
            if slot.kind == "triage":
                self.ladder.take(data)
            elif slot.kind == "values":
                self.values.take(data)
            else:
                slot.document = data
        self.room.changed(slot.kind)

    def _hear(self, slot: ReplaySlot, text: str) -> None:
        slot.said.append(plain(text))
        self.room.changed(slot.kind)

    def _over(self, slot: ReplaySlot, code: int) -> None:
        slot.code = code
        slot.ended_at = slot.ended_at or time.time()
        slot.stopped = slot.stopped or code in STOPPED
        how = "was stopped" if slot.stopped else ending(code).removeprefix("it ")
        if slot.kind == "triage":
            self.ladder.lost(how, stopped=slot.stopped)
        elif slot.kind == "values":
            self.values.lost(how)
            if self.room.here.graph is not None and self.values.rows:
                self.room.workbench.values[self.room.here.graph] = self.values
        if code not in NORMAL and not slot.stopped:
            reasons = [line.removeprefix("graphdbg: ") for line in slot.said if line.startswith("graphdbg: ")]
            why = (reasons or ["it printed no reason"])[-1]
            error = JobFailedError(f"{slot.line}: {ending(code)}", why, "the results so far stay on the screen")
            self.room.trouble(error, doing=slot.kind, said=slot.said, quiet=True)
        self.room.tell_where()
        self.room.changed(slot.kind, ended=True)


def occupied() -> str:
    """The GPUs that others use, in words; empty where there is none, or nothing is known."""
    program = shutil.which(PROGRAM)
    if program is None:
        return ""
    try:
        asked = [program, QUERY, "--format=csv,noheader,nounits"]
        said = subprocess.check_output(
            asked, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "; ".join(text for line in said.splitlines() if (text := _gpu(line)))


def _gpu(line: str) -> str:
    try:
        index, used, total, busy = (int(part) for part in line.split(","))
    except ValueError:
        return ""
    if used < SOME_MIB and busy < 10:
        return ""
    return f"GPU {index}: {size_text(used << 20)} of {size_text(total << 20)} used, {busy} % busy"
