"""The state of a minification, added up from its events: answers, steps, history, other failures, the running query.

Everything that shows or resumes a minification reads this one class: `log` keeps the story of the process that
minifies, for the live view and the plain lines, and reads one to resume; `progress.watched` follows another process by
its lines (docs/minify-events.md). Lines that it does not know are left out. Must not read files, decide anything or
import torch.

>>> story = Story()
>>> story.take({"event": "query", "queries": 1, "purpose": "sanity", "verdict": "same", "nodes": 53})
>>> story.original
(53, 0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import log2
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from . import events
from .events import STEPS, Best, Conditions, Happening, QueryAnswered, QueryStarted, Started, Steered, from_json
from .events import words as step_words
from .minified import Also
from .passes import NAMES as PASS_NAMES
from .search.problem import Answer

ORDER = ("sanity", *STEPS, "verification")
"""The steps that ask queries, in the order that is expected before the search begins them."""
RECENT = 8
"""Queries that the pace is taken from."""
AXES, VERIFY = 8, 3
"""Queries that the other axes and the verification usually take, to estimate what is left."""
MARKS = {"disable": "disabled", "enable": "", "raise": "raised", "skip": "skipped"}
"""An order -> the mark of the step that it is about."""
SAID = 500
"""Sentences that are kept."""
LASTING = ("conditions", "digest", "answers", "orders", "steers")
"""The fields that a process which resumes starts from."""


@dataclass
class StepCount:
    """One step: how often it asked, how many answers were accepted, how long it took. `mark`: "disabled", "raised",
    "skipped" or empty."""

    name: str
    asked: int = 0
    accepted: int = 0
    seconds: float = 0.0
    begun: bool = False
    mark: str = ""

    @property
    def words(self) -> str:
        """The step in plain words."""
        return step_words(self.name)


@dataclass(frozen=True)
class Improvement:
    """A failing case smaller than all before it, the `number`-th; 0 is the original. `after`: the number of the case
    that it came from."""

    number: int
    queries: int
    case: str
    nodes: int
    input_bytes: int
    step: str
    after: int | None = None


@dataclass
class Story:
    """All that is known of one minification. `points`: per query the nodes and input bytes of the best case so far."""

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
    queries: list[QueryAnswered] = field(default_factory=list[QueryAnswered])
    """The answered queries, each numbered by its place."""
    points: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    times: list[float] = field(default_factory=list[float])
    """Seconds from the start to each answer; of an old folder, which does not say, 0."""
    detail: str = ""
    """The detail of the last answer."""
    turns: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Each time that another step asked: after how many queries, and its name."""
    begun: list[str] = field(default_factory=list[str])
    """The steps in the order in which they began."""
    steps: dict[str, StepCount] = field(default_factory=dict[str, StepCount])
    asked: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[str] = field(default_factory=Counter[str])
    history: list[Improvement] = field(default_factory=list[Improvement])
    others: dict[str, Also] = field(default_factory=dict[str, Also])
    flying: dict[int, QueryStarted] = field(default_factory=dict[int, QueryStarted])
    """The queries that have no answer yet."""
    conditions: Conditions | None = None
    digest: str = ""
    """The digest of how the graph is cut into atoms."""
    answers: dict[tuple[str, int], Answer] = field(default_factory=dict[tuple[str, int], Answer])
    """(candidate, run) -> the answer; `run` numbers the times that the candidate was asked."""
    orders: dict[str, Steered] = field(default_factory=dict[str, Steered])
    """The orders that were carried out, each as the first process did."""
    steers: dict[str, Steered] = field(default_factory=dict[str, Steered])
    """Id of an order -> its latest outcome."""
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
        """Takes in one line; a line that is not known, or has other types than promised, is left out."""
        if line.get("event") == "done":
            with suppress(KeyError, TypeError, ValueError):
                self._conclude(line)
        elif (event := from_json(line)) is not None:
            with suppress(ValueError):  # a verdict that a later version may have
                self.hear(event)

    def hear(self, event: Happening) -> None:
        """Takes in one event."""
        match event:
            case Conditions():
                self.conditions = event
            case events.Cut():
                self.digest = event.digest
            case events.Answered():
                self.answers[event.case, event.run] = event.answer
            case Started():
                self._begin(event)
            case events.Stepped():
                self.step = event.step
                self._step(self.step).begun = True
                self.begun.append(self.step)
            case QueryStarted():
                self.flying[event.number] = event
            case QueryAnswered():
                self._answered(event)
            case Best():
                self._better(event)
            case events.Said():
                self.said.append(event.text)
                del self.said[:-SAID]
            case Steered():
                self.steers[event.id] = event
                if event.state == "applied":
                    self.orders.setdefault(event.id, event)
                    self.flying = {}
                    self._steer(event.what, event.step)
            case events.Restarted():
                self._parent, self.best, self.best_case = event.number, (event.nodes, event.input_bytes), event.case
            case events.Ended():
                words = f"{event.verdict}: {event.why}" if event.why and event.why != event.verdict else event.verdict
                self.ended, self.flying, self.paused = words, {}, False
            case _:
                pass
        self.last = event.time or self.last

    def _begin(self, event: Started) -> None:
        """Empties the story for a process that begins or resumes: its search is a replay, so all its events come again;
        what it starts from (LASTING) stays."""
        kept = {name: getattr(self, name) for name in LASTING}
        self.__init__(event.graph, event.out, event.options, event.known, event.life, event.time, step="sanity", **kept)

    def _answered(self, event: QueryAnswered) -> None:
        self.times.append(max(0.0, event.time - self.began) if event.time and self.began else 0.0)
        self.detail = event.detail
        query = replace(event, queries=len(self.queries) + 1, detail="", failure=None, record=None)
        if not self.queries or self.queries[-1].step != query.step:
            self.turns.append((len(self.queries), query.step))
        self.queries.append(query)
        self.asked[query.purpose] += 1
        asked = (number for number, flying in self.flying.items() if flying.case == query.case)
        self.flying.pop(min(asked, default=0), None)
        step = self._step(query.step or self.step)
        step.asked, step.seconds, step.begun = step.asked + 1, step.seconds + query.seconds, True
        step.accepted += query.verdict == "same"
        if not query.recalled:
            self._recent = [*self._recent[1 - RECENT :], query.seconds]
        if query.purpose == "search":
            self.verdicts[query.verdict] += 1
            if query.verdict == "other":
                seen = self.others.setdefault(query.signature, Also(query.signature, 0, query.nodes))
                seen.count, seen.nodes = seen.count + 1, min(seen.nodes, query.nodes)
        elif query.purpose == "sanity" and query.verdict == "same" and not self.original[0]:
            self.original, self.signature = (query.nodes, query.input_bytes), query.signature
            self.history.append(Improvement(0, query.queries, query.case, *self.original, query.step))
        if query.improved:
            self.best, self.best_case = (query.nodes, query.input_bytes), query.case
        self.points.append(self.best or self.original)

    def _better(self, event: Best) -> None:
        """Takes in a new best case; after a restart also one that was known to fail already, without a query."""
        self.best, self.best_case = (event.nodes, event.input_bytes), event.case
        number = event.number or len(self.history)
        after = self._parent if self._parent is not None else number - 1 if number else None
        self._parent = None
        if number >= len(self.history):
            self.history.append(Improvement(number, len(self.queries), self.best_case, *self.best, self.step, after))
        if self.points:
            self.points[-1] = self.best

    def _conclude(self, line: Mapping[str, Any]) -> None:
        self.done, self.flying, self.paused = dict(line), {}, False
        self.best = int(line["nodes"]), int(line["input_bytes"])
        for other in line.get("others") or ():
            path, command = Path(other["case"]) if other.get("case") else None, other.get("command") or ""
            counts = int(other["count"]), int(other["nodes"])
            self.others[other["signature"]] = Also(other["signature"], *counts, path, command)
        self.last = line.get("time") or self.last

    def _step(self, name: str) -> StepCount:
        return self.steps.setdefault(name, StepCount(name))

    def _steer(self, what: str, step: str) -> None:
        if what in ("pause", "resume", "cancel"):
            self.paused = what == "pause"
        elif what in MARKS and (step or self.step) in self.steps:
            self.steps[step or self.step].mark = MARKS[what]

    # -- saying

    def flight(self) -> QueryStarted | None:
        """The oldest query that has no answer yet."""
        return self.flying[min(self.flying)] if self.flying else None

    def idle(self) -> int:
        """Queries since the case became smaller."""
        return len(self.queries) - (self.history[-1].queries if self.history else 0)

    def pace_s(self) -> float:
        """Seconds per query, from the latest ones."""
        return sum(self._recent) / len(self._recent) if self._recent else 0.0

    def seconds(self, now: float) -> float:
        """Seconds since the start."""
        return now - self.began if self.began else 0.0

    def queries_left(self) -> float:
        """An estimate of the queries that are left: a search halves the nodes, then come the other axes and the
        verification."""
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
        """An estimate of the seconds that are left, never past --max-time."""
        most, jobs = self.max_time_s, max(1, int(self.options.get("jobs") or 1))
        seconds = self.queries_left() * self.pace_s() / jobs
        return seconds if most is None or not self.began else min(seconds, max(0.0, most - self.seconds(now)))

    @property
    def max_time_s(self) -> float | None:
        """The seconds of --max-time, or None."""
        most = self.options.get("max_time")
        return most if isinstance(most, (int, float)) else None
