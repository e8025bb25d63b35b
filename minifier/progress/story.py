"""A minification as screens show it, from the lines of its events.jsonl: points, steps, history, other failures, the query now.

Takes plain data (docs/minify-events.md), so that a process that never imports torch can follow one in another process, and leaves
out what it does not know. The process that minifies follows itself in the same way. Must not read files or decide anything.

>>> story = Story()
>>> story.take({"event": "query", "queries": 1, "purpose": "sanity", "verdict": "same", "nodes": 53})
>>> story.original
(53, 0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any, cast

from ..events import words as step_words
from ..passes import NAMES as PASS_NAMES
from ..search.tiers import TIERS

ORDER = ("sanity", *(name for name, _ in TIERS), "explain", "outputs", "together", *PASS_NAMES, "needs", "verification")
"""The steps of a search in their order, as far as they are known before it says so itself."""
UNTOLD = "nodes"
"""The step of queries of which nobody wrote the step."""
RECENT = 8
"""Queries that the pace is taken from."""
AXES, VERIFY = 8, 3
"""Queries that the other axes and the verification usually take, for the guess of what is left."""
SAID = 500
"""Sentences that are kept."""


@dataclass(frozen=True)
class Query:
    """One answered query. `number`: how many were answered with it."""

    number: int
    purpose: str
    step: str
    case: str
    verdict: str
    signature: str
    nodes: int
    input_bytes: int
    seconds: float
    improved: bool
    recalled: bool


@dataclass
class StepCount:
    """One step: how often it asked, what was accepted, how long it took. `mark`: what steering made of it."""

    name: str
    asked: int = 0
    accepted: int = 0
    seconds: float = 0.0
    begun: bool = False
    mark: str = ""

    @property
    def words(self) -> str:
        """In plain words."""
        return "dropping nodes (an old journal does not say how)" if self.name == UNTOLD else step_words(self.name)


@dataclass(frozen=True)
class Improvement:
    """A failing case smaller than all before it, the `number`-th; 0 is the original. `after`: the one that it came from."""

    number: int
    queries: int
    case: str
    nodes: int
    input_bytes: int
    step: str
    after: int | None = None


@dataclass
class OtherSeen:
    """Another failure that was met and not followed; `path` is a folder once it was written."""

    signature: str
    count: int
    nodes: int
    case: str = ""
    path: str = ""
    command: str = ""


@dataclass(frozen=True)
class InFlight:
    """The query that runs now, since `since` (seconds since the epoch; 0: unknown)."""

    number: int
    case: str
    step: str
    since: float


@dataclass
class Steered:
    """A wish of the user's: `asked` until the search says what became of it."""

    id: str
    what: str
    state: str = "asked"
    why: str = ""


@dataclass
class Story:
    """All that is known. `points`: per query the nodes and input bytes of the best case so far."""

    graph: str = ""
    out: str = ""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    known: int = 0
    life: int = 0
    began: float = 0.0
    last: float = 0.0
    step: str = ""
    original: tuple[int, int] = (0, 0)
    best: tuple[int, int] | None = None
    best_case: str = ""
    signature: str = ""
    queries: list[Query] = field(default_factory=list[Query])
    points: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    turns: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """After how many queries another step asked."""
    begun: list[str] = field(default_factory=list[str])
    """The steps in the order in which they began."""
    steps: dict[str, StepCount] = field(default_factory=dict[str, StepCount])
    asked: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    history: list[Improvement] = field(default_factory=list[Improvement])
    others: dict[str, OtherSeen] = field(default_factory=dict[str, OtherSeen])
    flying: dict[int, InFlight] = field(default_factory=dict[int, InFlight])
    steers: dict[str, Steered] = field(default_factory=dict[str, Steered])
    said: list[str] = field(default_factory=list[str])
    paused: bool = False
    done: dict[str, Any] | None = None
    ended: str = ""
    """How the process that minifies ended, where it said so."""
    _recent: list[float] = field(default_factory=list[float])
    _parent: int | None = None

    def __post_init__(self) -> None:
        self.steps = {name: StepCount(name) for name in ORDER}

    # -- taking in

    def take(self, line: Mapping[str, Any]) -> None:
        """Takes in one line; one that it does not know, or that has other types than promised, is left out."""
        taker = getattr(self, "_take_" + str(line.get("event", "")), None)
        if taker is None:
            return
        try:
            taker(line)
        except (KeyError, TypeError, ValueError):
            return
        self.last = _number(line.get("time")) or self.last

    def _take_start(self, line: Mapping[str, Any]) -> None:
        """A process begins or goes on: the search is a replay, so that all that it tells comes again."""
        steers = self.steers
        self.__init__()
        self.steers = steers
        self.graph, self.out = str(line.get("graph", "")), str(line.get("out", ""))
        options = line.get("options")
        self.options = dict(cast("dict[str, Any]", options)) if isinstance(options, dict) else {}
        self.known, self.life = int(line.get("known") or 0), int(line.get("life") or 0)
        self.began = _number(line.get("time"))
        self.step = "sanity"

    def _take_step(self, line: Mapping[str, Any]) -> None:
        self.step = str(line["step"])
        self._step(self.step).begun = True
        self.begun.append(self.step)

    def _take_asking(self, line: Mapping[str, Any]) -> None:
        number = int(line.get("number") or line.get("queries") or len(self.queries) + 1)
        step = str(line.get("step") or self.step)
        self.flying[number] = InFlight(number, str(line.get("case", "")), step, _number(line.get("time")))

    def _take_query(self, line: Mapping[str, Any]) -> None:
        text = {name: str(line.get(name, "")) for name in ("purpose", "step", "case", "verdict", "signature")}
        query = Query(
            len(self.queries) + 1, **text, nodes=int(line.get("nodes") or 0), input_bytes=int(line.get("input_bytes") or 0),
            seconds=float(line.get("seconds") or 0), improved=bool(line.get("improved")), recalled=bool(line.get("recalled")),
        )  # fmt: skip
        if not self.queries or self.queries[-1].step != query.step:
            self.turns.append((len(self.queries), query.step))
        self.queries.append(query)
        self.asked[query.purpose] += 1
        answered = min((number for number, flight in self.flying.items() if flight.case == query.case), default=0)
        self.flying.pop(answered, None)
        step = self._step(query.step or self.step)
        step.asked, step.seconds, step.begun = step.asked + 1, step.seconds + query.seconds, True
        step.accepted += query.verdict == "same"
        if not query.recalled:
            self._recent = [*self._recent[1 - RECENT :], query.seconds]
        if query.purpose == "search":
            self.verdicts[query.verdict] += 1
            if query.verdict == "other":
                self._meet(query)
        elif query.purpose == "sanity" and query.verdict == "same" and not self.original[0]:
            self.original, self.signature = (query.nodes, query.input_bytes), query.signature
            self.history.append(Improvement(0, query.number, query.case, *self.original, query.step))
        if query.improved:
            self.best, self.best_case = (query.nodes, query.input_bytes), query.case
        self.points.append(self.best or self.original)

    def _take_best(self, line: Mapping[str, Any]) -> None:
        """After a restart also for what was known to fail already, without a query."""
        size = int(line["nodes"]), int(line["input_bytes"])
        self.best, self.best_case = size, str(line["case"])
        number = int(line.get("number") or 0) or len(self.history)
        after = self._parent if self._parent is not None else number - 1 if number else None
        self._parent = None
        if number >= len(self.history):
            self.history.append(Improvement(number, len(self.queries), self.best_case, *size, self.step, after))
        if self.points:
            self.points[-1] = size

    def _take_say(self, line: Mapping[str, Any]) -> None:
        self.said.append(str(line.get("text") or line.get("words") or ""))
        del self.said[:-SAID]

    def _take_steered(self, line: Mapping[str, Any]) -> None:
        name, what = str(line.get("id", "")), line.get("what", "")
        state = str(line.get("state") or ("refused" if line.get("refused") else "applied"))
        known = self.steers.get(name) or Steered(name, what if isinstance(what, str) else "")
        known.state, known.why = state, str(line.get("why") or "")
        self.steers[name] = known
        if state == "applied":
            self.flying = {}
            self._steer(known.what, str(line.get("step") or ""))

    def _take_restarted(self, line: Mapping[str, Any]) -> None:
        self._parent = int(line.get("number") or 0)
        self.best, self.best_case = (int(line["nodes"]), int(line["input_bytes"])), str(line["case"])

    def _take_paused(self, line: Mapping[str, Any]) -> None:
        self.paused = True

    def _take_resumed(self, line: Mapping[str, Any]) -> None:
        self.paused = False

    def _take_done(self, line: Mapping[str, Any]) -> None:
        self.done, self.flying, self.paused = dict(line), {}, False
        self.best = int(line["nodes"]), int(line["input_bytes"])
        for other in cast("list[dict[str, Any]]", line.get("others") or []):
            text = str(other["signature"])
            seen = self.others.setdefault(text, OtherSeen(text, 0, 0))
            seen.count, seen.nodes = int(other.get("count") or 0), int(other.get("nodes") or 0)
            seen.path, seen.command = str(other.get("case") or ""), str(other.get("command") or "")

    def _take_end(self, line: Mapping[str, Any]) -> None:
        verdict = str(line.get("verdict") or "ended")
        why = str(line.get("why") or "")
        self.ended, self.flying, self.paused = f"{verdict}: {why}" if why and why != verdict else verdict, {}, False

    def _step(self, name: str) -> StepCount:
        return self.steps.setdefault(name, StepCount(name))

    def _meet(self, query: Query) -> None:
        seen = self.others.setdefault(query.signature, OtherSeen(query.signature, 0, query.nodes, query.case))
        seen.count += 1
        if query.nodes < seen.nodes:
            seen.nodes, seen.case = query.nodes, query.case

    def _steer(self, what: str, step: str) -> None:
        verb, _, rest = what.partition(" ")
        step = step or rest
        if verb in ("pause", "resume", "cancel"):
            self.paused = verb == "pause"
        elif verb in ("disable", "enable", "raise") and step in self.steps:
            self.steps[step].mark = {"disable": "disabled", "enable": "", "raise": "raised"}[verb]
        elif verb == "skip" and (step or self.step) in self.steps:
            self.steps[step or self.step].mark = "skipped"

    # -- saying

    def flight(self) -> InFlight | None:
        """The oldest query that has no answer yet."""
        return self.flying[min(self.flying)] if self.flying else None

    def idle(self) -> int:
        """Queries since the case became smaller."""
        return len(self.queries) - (self.history[-1].queries if self.history else 0)

    def pace_s(self) -> float:
        """Seconds of a query, of late."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    def seconds(self, now: float) -> float:
        """Since the start."""
        return now - self.began if self.began else 0.0

    def queries_left(self) -> float:
        """A guess: a search halves what is left, then come the other axes and the verification."""
        if self.step == "verification":
            left = float(max(0, VERIFY - self.asked["verification"]))
        elif self.step in ("together", "outputs", "needs", *PASS_NAMES) and self.step != "switches":
            left = AXES / 2 + VERIFY
        elif self.step in ("polish", "explain"):
            left = 2.0 + AXES + VERIFY
        else:
            left = 2 * log2(max(2, (self.best or self.original)[0])) + AXES + VERIFY
        most = self.options.get("max_queries")
        return min(left, max(0, most - len(self.queries))) if isinstance(most, int) else left

    def left_s(self, now: float) -> float:
        """A guess of the seconds that are left, never past --max-time."""
        most, seconds = self.max_time_s, self.queries_left() * self.pace_s() / max(1, int(self.options.get("jobs") or 1))
        return seconds if most is None or not self.began else min(seconds, max(0.0, most - self.seconds(now)))

    @property
    def max_time_s(self) -> float | None:
        """What --max-time says."""
        most = self.options.get("max_time")
        return most if isinstance(most, (int, float)) else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
