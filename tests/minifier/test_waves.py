"""Several workers: what is behind the first candidate that fails is ended, not waited for and not counted. No torch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock

from graphdbg.minifier.events import Happening, QueryAnswered
from graphdbg.minifier.search.problem import Aborted, Answer, Candidate
from tests.minifier.abstract import Abstract, core, run
from tests.minifier.generated import needs, transformer

LARGE = 150


@dataclass
class Slow(Abstract):
    """Large candidates that fail have an answer only by being ended, small ones when a large one has begun (where one
    does); `ended` are those that were."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ended: list[str] = []
        self.guard, self.begun = Lock(), Event()

    def test(self, candidate: Candidate) -> Answer:
        aborts, end = self.aborts, time.monotonic() + 20
        fails = self.failure(self.shape, candidate)
        if fails and len(candidate.keep) <= LARGE:
            self.begun.wait(1.0)
            self.begun.set()
        if fails and LARGE < len(candidate.keep) < self.size:
            self.begun.set()
            while self.aborts == aborts:
                assert time.monotonic() < end, "nobody ended what is not needed"
                time.sleep(0.002)
            with self.guard:
                self.ended.append(candidate.text())
            raise Aborted
        return super().test(candidate)


def test_what_is_behind_the_first_that_fails_is_ended_and_not_counted(tmp_path: Path) -> None:
    messages: list[Happening] = []
    problem = Slow(transformer(300), needs([30]))
    (tmp_path / "out").mkdir()
    result = run(problem, tmp_path / "out", steered=True, tell=messages.append, jobs=4)
    assert core(result) == {30}
    assert problem.ended, "the first wave has a large candidate behind a small one that fails"
    answered = [event for event in messages if isinstance(event, QueryAnswered)]
    assert len(answered) == result.queries
    assert not {event.case for event in answered} & set(problem.ended)
    assert not problem.doubled


def test_where_queries_are_limited_all_that_were_asked_are_waited_for(tmp_path: Path) -> None:
    free = Abstract(transformer(300), needs([30, 270]))
    limited = Abstract(transformer(300), needs([30, 270]))
    few = run(free, tmp_path / "free", jobs=4)
    all_ = run(limited, tmp_path / "limited", jobs=4, max_queries=10_000)
    assert core(few) == core(all_) == {30, 270}
    assert all_.queries == limited.queries > few.queries
