"""Sends queries to the fork server: with which time limits, alone or beside others, and how often. Imports no torch.

Also: `cut` writes nodes of a saved graph as a case of their own, built as the minifier builds its candidates.

Knows the kind of failure that is looked for, not whether a candidate shows it (see `oracle`). `Pace` sets how long a
candidate may take before it counts as hanging; `SharedLock` lets a query run alone.

For example:

    asking = Querying(server, MinifyOptions(), 600.0)
    asking.probe({"case": ..., "candidate": None, ...}).status  # -> 'done'
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Lock
from typing import Any

import msgspec

from ..dumps import temporary, trust
from ..dumps.atomic import check_folder, new_folder
from ..dumps.errors import EnvironmentLackError, NoGraphError
from ..dumps.opening import read_text
from ..dumps.store import SavedGraph, load_graph
from ..dumps.wording import counted
from ..toolkit.isolation import PendingTask, Servers, ask, opened, raise_refusal
from ..toolkit.isolation import TaskResult as Reply
from ..toolkit.replaying.replay import DEFAULT_LIMIT_S, longer, slowed
from ..toolkit.rungs import warmth
from ..toolkit.verdicts.signature import Signature, from_answer
from .options import MinifyOptions
from .search.problem import Aborted

FACTOR = 10.0
"""A candidate may take so many times as long as the slowest one that passed."""
LEAST_S = 3.0
PER_NODE = 0.05
"""Each node beyond the largest passing candidate lengthens the limit by this fraction."""


@dataclass
class Pace:
    """Time limits for one stage, from how long passing candidates took there. `jobs` candidates at the same time slow
    each other down.

    Each case that hangs costs its whole time limit, so the limit is shortened to a multiple of the time that passing
    candidates took in the stage that hangs, with an allowance for size. A limit that is too short would take a slow
    case for a hanging one: the final case is judged once more at the full limit, and if it passes there, `distrust`
    ends the shortening.

    >>> pace = Pace(60.0)
    >>> pace.saw(seconds=0.4, nodes=3)
    >>> pace.limit_s(nodes=3), pace.limit_s(nodes=300)
    (4.0, 60.0)
    """

    full_s: float
    jobs: int = 1
    trusted: bool = True
    _slowest_s: float | None = None
    _nodes: int = 0

    @property
    def known(self) -> bool:
        """Whether limits are shortened: a candidate has passed, and `distrust` was not called."""
        return self.trusted and self._slowest_s is not None

    def saw(self, seconds: float, nodes: int) -> None:
        """Takes in that a candidate of `nodes` nodes spent `seconds` in the stage and left it."""
        self._slowest_s = max(self._slowest_s or 0.0, seconds)
        self._nodes = max(self._nodes, nodes)

    def limit_s(self, nodes: int) -> float:
        """The seconds that a candidate of `nodes` nodes may spend in the stage."""
        if not self.trusted or self._slowest_s is None:
            return self.full_s
        larger = 1 + PER_NODE * max(0, nodes - self._nodes)
        return min(self.full_s, max(LEAST_S, FACTOR * self._slowest_s * larger) * self.jobs)

    def distrust(self) -> None:
        """Ends the shortening of limits: a case that ran into a shortened one turned out not to hang."""
        self.trusted = False


def seconds_in(stage: str, marks: Sequence[tuple[str, float]], end_s: float) -> float | None:
    """Seconds that a child spent in a stage, over all its visits; None where it never entered it. `marks`: stage and
    second of each entry."""
    ends = [*(second for _, second in marks[1:]), end_s]
    visits = [end - second for (name, second), end in zip(marks, ends, strict=False) if name == stage]
    return sum(visits) if visits else None


class SharedLock:
    """A lock that many queries hold together or one holds alone; a query that waits to be alone goes before later ones.

    With several workers a query may run out of time only because the others take the machine (two kernels on one GPU
    share its time), so what was cut short is asked again alone.
    """

    def __init__(self) -> None:
        self._turn = Lock()
        """Held by a query that is alone or waits to be."""
        self._changed = Condition()
        self._inside = 0

    @contextmanager
    def together(self) -> Generator[None]:
        """Holds the gate together with others for the block; waits while a query is alone or waits to be."""
        with self._turn, self._changed:
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """Holds the gate alone for the block; waits until nobody else is inside."""
        with self._turn:
            with self._changed:
                self._changed.wait_for(lambda: not self._inside)
            yield


TASKS = f"{__package__}.tasks"
RUNNING = "running"
"""The file with the name of the node that is being run while values are recorded; it is read where the child died."""
LEAST_LIMIT_S = 30.0
LIMIT_FACTOR = 10.0
"""A query may take so many times as long as the original did."""
NODES = 30
"""Size of the harmless graph that is compiled beside a query that seems to hang, to see how busy the machine is."""
NEAR = 1.25
"""A time above the threshold by less than this factor is measured again."""
MEASURED = 3
"""How often such a time is measured at most; the shortest counts."""
PROBE_LIMIT_S = 20.0
"""Seconds for a part of the case that is run only to see how long it takes."""
KILLED = "SIGKILL"
OUT_OF_BOUNDS = ("illegal memory access", "misaligned address")


LIVES = 3
"""How many workers one query is given to at most, where they die."""


@dataclass
class Querying:
    """Sends queries to the fork server, with time limits that it adapts to the answers."""

    server: Servers
    options: MinifyOptions
    limit_s: float
    wanted: Signature | None = None
    pace: Pace | None = None
    """How long candidates take in the stage that hangs; None for other failures."""
    uncached: bool = False
    """Whether CUDA memory is not pooled, so that accesses out of bounds are noticed more surely."""
    confirmed: bool = False
    """Whether the final case was seen to hang at the full limit."""
    _cuda: bool = False
    _gate: SharedLock = field(default_factory=SharedLock)
    _in_flight: set[PendingTask] = field(default_factory=set[PendingTask])
    _deaths: Counter[str] = field(default_factory=Counter[str])
    """How many workers died, by reason; their queries were asked again."""
    _aborts: int = 0
    _lock: Lock = field(default_factory=Lock)

    def task(self, name: str, payload: Mapping[str, Any]) -> Reply:
        """Runs a function of `tasks` in this process's own server, with the limit of a whole query; once more where it
        is lost."""
        with self._gate.together():
            reply = ask(f"{TASKS}:{name}", payload, self.limit_s, server=self.server.home).answer()
            if reply.status == "lost":
                self._died(reply)
                reply = ask(f"{TASKS}:{name}", payload, self.limit_s, server=self.server.home).answer()
            return reply

    def ask(self, function: str, payload: dict[str, Any], limits: Mapping[str, float] | None = None) -> Reply:
        """Runs `function` in a child, and in another one where its worker dies. Raises Aborted where `abort` was called
        before it answered."""
        for _ in range(LIVES - 1):
            reply = self._answer(function, payload, limits)
            if reply.status != "lost":
                return reply
            self._died(reply)
        return self._answer(function, payload, limits)

    def deaths(self) -> list[str]:
        """One sentence about the workers that died; empty where none did."""
        if not self._deaths:
            return []
        count = sum(self._deaths.values())
        what = counted(count, "query was asked again, because its worker", "queries were asked again: their workers")
        return [f"{what} died ({'; '.join(self._deaths)})"]

    def _died(self, reply: Reply) -> None:
        with self._lock:
            self._deaths[reply.error.message if reply.error else "it was killed"] += 1

    def _answer(self, function: str, payload: dict[str, Any], limits: Mapping[str, float] | None) -> Reply:
        aborts = self._aborts
        asked = ask(function, payload, self.limit_s, server=self.server, stage_limits=limits)
        with self._lock:
            self._in_flight.add(asked)
        try:
            reply = asked.answer()
        finally:
            with self._lock:
                self._in_flight.discard(asked)
        if self._aborts != aborts:
            raise Aborted
        return reply

    def abort(self) -> None:
        """Ends all queries in flight; they get no answer."""
        with self._lock:
            self._aborts += 1
            for asked in self._in_flight:
                asked.kill()

    def probe(self, payload: Mapping[str, Any], limits: Mapping[str, float] | None = None) -> Reply:
        """Returns the answer of one judgement. Asks again where the child was killed from outside, may be late because
        of other queries, or measured a time too near to the threshold.

        `limits`: seconds of single stages, from `limits_of`.
        """
        options = self.options
        measured = {"slower_than": options.slower_than, "memory_over": options.memory_over}
        whole = {"rung": options.rung, "check": options.judged, **measured, "uncached": self.uncached, **payload}

        def once() -> Reply:
            reply = self.ask(f"{TASKS}:probe", whole, limits)
            if reply.signal == KILLED and not (self.wanted is not None and self.wanted.detail == KILLED):
                # Our own kills, for time and memory, have verdicts of their own: this one was another's.
                with self._lock:
                    self._deaths[f"{KILLED} from outside"] += 1
                reply = self.ask(f"{TASKS}:probe", whole, limits)
            return reply

        slow = options.slower_than
        # Side by side, one of the first queries would wait for what the other compiles.
        first = options.judged == "hang" and self.wanted is None
        if slow is not None or first or (self.hangs and self._cuda):  # a kernel that never ends takes the device
            with self._gate.alone():
                reply = once()
                if first and reply.status == "timeout" and (fair := self._fair_s(reply.seconds)) > self.limit_s:
                    self.limit_s = fair
                    reply = once()
                for _ in range(MEASURED - 1):
                    seconds = _slow_seconds(reply)
                    if slow is None or seconds is None or seconds > NEAR * slow:
                        break
                    reply = once()
            return reply
        with self._gate.together():
            reply = once()
        if reply.status == "timeout" and options.jobs > 1 and self.wanted is not None and not self.hangs:
            with self._gate.alone():
                reply = once()
        return reply

    def _fair_s(self, waited_s: float) -> float:
        """The fair time limit on this machine now, for a query that ran out of time after `waited_s`: longer where the
        machine is busy."""
        return longer(self.limit_s, slowed(self.server.home, NODES), DEFAULT_LIMIT_S, waited_s)

    @property
    def hangs(self) -> bool:
        """Whether the failure that is looked for is a hang."""
        return self.wanted is not None and self.wanted.kind == "hang"

    def want(self, signature: Signature, seconds: float) -> None:
        """Sets the failure that is looked for. `seconds`: how long the query took that first showed it; later limits
        follow from it."""
        self.wanted = signature
        if self.hangs:
            self.pace = Pace(self.limit_s, self.options.jobs)
        elif self.options.time_limit is None:
            self.limit_s = min(self.limit_s, max(LEAST_LIMIT_S, LIMIT_FACTOR * seconds))

    def limits_of(self, nodes: int) -> dict[str, float]:
        """The shortened limit of the stage that hangs, for a candidate of that size; empty where nothing is
        shortened."""
        if self.pace is None or self.wanted is None:
            return {}
        return {self.wanted.stage: self.pace.limit_s(nodes)}

    def limits_of_saved(self) -> dict[str, float]:
        """The limit of the stage that hangs, for a result on the disk: empty (the full limit) until the hang was seen
        there, then twice the shortened one."""
        if self.pace is None or self.wanted is None or not (self.confirmed and self.pace.known):
            return {}
        return {self.wanted.stage: min(self.limit_s, 2 * self.pace.limit_s(0))}

    def short_limits(self) -> dict[str, float]:
        """The limit of the failing stage for a part of the case that is run only to see how long it takes."""
        return {} if self.wanted is None else {self.wanted.stage: min(self.limit_s, PROBE_LIMIT_S)}

    def learn(self, reply: Reply, nodes: int, *, cuda: bool = False) -> None:
        """Takes in how long a query about a graph of `nodes` nodes took; later limits follow from it."""
        self._cuda = self._cuda or cuda
        if self.pace is not None and self.wanted is not None and reply.status == "done":
            seconds = seconds_in(self.wanted.stage, reply.marks, reply.seconds)
            if seconds is not None:
                self.pace.saw(seconds, nodes)

    def out_of_bounds(self) -> bool:
        """Whether the failure is a CUDA access that a pool of memory may hide."""
        return self.wanted is not None and any(words in self.wanted.raw for words in OUT_OF_BOUNDS)


def _slow_seconds(reply: Reply) -> float | None:
    """The time of a query that was too slow; None for any other."""
    if reply.status != "done":
        return None
    signature = from_answer(reply)
    return signature.size if signature is not None and signature.kind == "slow" else None


TASK = f"{TASKS}:cut"


class CutCase(msgspec.Struct):
    """A case cut from the graph `of`, written at `case`. `nodes`: how many nodes its graph has, `kept`: how many of
    them were cut out, `came`: the nodes cut out beside the named ones. `inputs`: pairs of a name and "graph" (an input
    of the graph) or "node" (the value of a node). `notes` are sentences."""

    case: Path
    of: str
    nodes: int
    kept: int
    inputs: list[tuple[str, str]]
    outputs: list[str]
    input_bytes: int
    came: list[str]
    notes: list[str]


def cut(saved: SavedGraph, names: Sequence[str], out: Path, *, seed: int = 0, imports: Sequence[str] = ()) -> CutCase:
    """Writes the named nodes as a case folder at `out`. Raises UsageError where it exists, and where they make no
    graph.

    Where this machine cannot run the graph eagerly, the case holds only the shapes and dtypes of its values, and
    `notes` says so.
    """
    check_folder(out)
    with opened(None, warmth("eager"), TASK) as server, temporary.folder("graphdbg-cut-") as work:
        written = work / "made" / "case"
        payload = {"case": str(saved.path.absolute()), "work": str(work), "out": str(written), "names": list(names)}
        payload |= {"seed": seed, "imports": list(imports), "only_compiled": False}
        notes: list[str] = []
        reply = ask(TASK, payload, DEFAULT_LIMIT_S, server=server).answer()
        try:
            raise_refusal(reply)
        except EnvironmentLackError as lack:
            reply = ask(TASK, payload | {"only_compiled": True}, DEFAULT_LIMIT_S, server=server).answer()
            if reply.status != "done":
                raise
            why = f"eager cannot run this graph here ({lack.why or lack.what})"
            notes.append(f"{why}: only the shapes and dtypes of its values are kept")
        _must_be_done(reply, work)
        with new_folder(out) as fresh:
            shutil.copytree(written, fresh, dirs_exist_ok=True)
        if trust.trusted(saved.path):
            trust.bind(out)
    reported = reply.value
    notes += reported.pop("notes")
    if random := reported.pop("random"):
        notes.append(f"{', '.join(random)}: random numbers are drawn again here, from the seed")
    there = {node.name for node in saved.record.graph.nodes if node.op == "placeholder"}
    case = load_graph(out)
    table = case.table
    inputs = [(row.name, "graph" if row.name in there else "node") for row in table.rows() if row.op == "placeholder"]
    outputs = [table.name[place] for row in table.rows() if row.op == "output" for place in row.inputs]
    return CutCase(out, saved.id, inputs=inputs, outputs=outputs, notes=notes, **reported)


def _must_be_done(reply: Reply, work: Path) -> None:
    raise_refusal(reply)
    if reply.status == "done":
        return
    why = reply.error.message if reply.error else f"the process ended by {reply.signal or reply.status}"
    running = work / RUNNING
    at = f" at {read_text(running)}" if running.exists() else ""
    what = f"eager itself dies{at}" if reply.stage == "eager" else "the case could not be built"
    fix = "cut out what lies before it" if at else ""
    raise NoGraphError(f"cannot cut these nodes out: {what}", why.strip().splitlines()[0] if why.strip() else "", fix)
