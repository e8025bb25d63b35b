"""What is known of a running minification, in numbers and plain words: the view model of every display. Prints nothing.

>>> state = State(clock=time.monotonic)
>>> state.take(Asked(1, "sanity", "sanity", "original", Answer(Verdict.SAME, nodes=53)))
>>> state.counts()
'1 query: 1 sanity'
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log2

from ...dumps.wording import counted
from ..events import PURPOSES, Asked, Best, Happening, Started, Steered, Stepped, words
from ..passes import NAMES as PASS_NAMES
from ..problem import Verdict

RECENT = 8
"""Queries that the pace is taken from."""
AXES = 8
"""Queries that shapes, values and strides usually take, for the guess of what is left."""
VERIFY = 3

VERDICTS = {
    Verdict.SAME: "failed the same way", Verdict.PASS: "passed", Verdict.OTHER: "failed in another way",
    Verdict.INVALID: "could not be judged", Verdict.TIMEOUT: "ran out of time", Verdict.INFRA: "got no answer",
}  # fmt: skip


@dataclass
class State:
    """All that a display shows. `points`: of every query the nodes that were asked, those of the best so far, the verdict."""

    clock: Callable[[], float] = time.monotonic
    graph: str = ""
    out: str = ""
    max_time: float | None = None
    max_queries: int | None = None
    jobs: int = 1
    known: int = 0
    step: str = "sanity"
    queries: int = 0
    nodes: int = 0
    input_bytes: int = 0
    best: tuple[int, int] | None = None
    asked: Counter[str] = field(default_factory=Counter[str])
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    points: list[tuple[int, int, Verdict]] = field(default_factory=list[tuple[int, int, Verdict]])
    signature: str = ""
    paused: bool = False
    recent: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.began = self.clock()

    def take(self, event: Happening) -> None:
        """Takes in one event."""
        match event:
            case Started():
                self.graph, self.out, self.known = event.graph, event.out, event.known
                self.max_time, self.max_queries = event.options.get("max_time"), event.options.get("max_queries")
                self.jobs = event.options.get("jobs", 1)
            case Stepped():
                self.step = event.step
            case Best():
                self.best = event.nodes, event.input_bytes
            case Asked():
                self._count(event)
            case Steered() if event.state == "applied" and event.what in ("pause", "resume", "cancel"):
                self.paused = event.what == "pause"
            case _:
                pass

    def _count(self, event: Asked) -> None:
        answer = event.answer
        self.queries += 1
        self.asked[event.purpose] += 1
        if event.purpose == "search":
            self.verdicts[answer.verdict] += 1
        if event.step == "sanity" and answer.verdict is Verdict.SAME:
            self.nodes, self.input_bytes = answer.nodes, answer.input_bytes
            self.signature = answer.signature
        if not event.recalled:
            self.recent = [*self.recent[1 - RECENT :], answer.seconds]
        if event.improved:
            self.best = answer.size
        self.points.append((answer.nodes, self.best[0] if self.best else self.nodes, answer.verdict))

    def seconds(self) -> float:
        """Since the start."""
        return self.clock() - self.began

    def pace_s(self) -> float:
        """Seconds of a query, of late."""
        return sum(self.recent) / len(self.recent) if self.recent else 0.0

    def queries_left(self) -> float:
        """A guess: a search halves what is left, then come the other axes and the verification."""
        if self.step == "verification":
            left = float(max(0, VERIFY - self.asked["verification"]))
        elif self.step in ("together", "axes", "outputs", "needs", *PASS_NAMES) and self.step != "switches":
            left = AXES / 2 + VERIFY
        elif self.step in ("polish", "explain"):
            left = 2 + AXES + VERIFY
        else:
            left = 2 * log2(max(2, self.best[0] if self.best else self.nodes)) + AXES + VERIFY
        return left if self.max_queries is None else min(left, max(0, self.max_queries - self.queries))

    def left_s(self) -> float:
        """A guess of the seconds that are left, never past --max-time."""
        left = self.queries_left() * self.pace_s() / max(1, self.jobs)
        return left if self.max_time is None else min(left, max(0.0, self.max_time - self.seconds()))

    def counts(self) -> str:
        """Queries by purpose and verdict; the numbers add up."""
        return queries_text(self.asked, {verdict.value: count for verdict, count in self.verdicts.items()})

    def doing(self) -> str:
        """The current step in plain words."""
        return f"paused: {words(self.step)}" if self.paused else words(self.step)

    def size(self) -> str:
        """The best case so far against the original."""
        nodes = counted(self.nodes, "node")
        if self.best is None:
            return f"{nodes}, {byte_text(self.input_bytes)} of inputs, as recorded" if self.nodes else "nothing yet"
        return f"{self.best[0]} of {nodes}, {byte_text(self.best[1])} of {byte_text(self.input_bytes)} of inputs"


def queries_text(asked: Mapping[str, int], verdicts: Mapping[str, int]) -> str:
    """"14 queries: 2 sanity, 9 search (7 failed the same way, 2 passed), 3 verification"."""
    total = sum(asked.values())
    parts: list[str] = []
    for purpose in PURPOSES:
        if not asked.get(purpose):
            continue
        text = f"{asked[purpose]} {purpose}"
        if purpose == "search":
            told = [f"{verdicts[verdict.value]} {words}" for verdict, words in VERDICTS.items() if verdicts.get(verdict.value)]
            text += f" ({', '.join(told)})" if told else ""
        parts.append(text)
    return counted(total, "query") + (f": {', '.join(parts)}" if parts else "")


def byte_text(count: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 10 * size or (count >= size and unit != "kB"):
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def span(seconds: float) -> str:
    """A span of time: "8 s", "2:05", "1:02:03"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
