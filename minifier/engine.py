"""The engine: asks the oracle, remembers, counts, keeps the best case, and stops in time. Knows no FX and no search
order.

Also: `Monotony`, which tracks whether a failure is monotone and which queries that saves: a subset of a passing set
passes, too.

Search functions (`search/`) propose candidates through three questions: `ask` (one candidate), `first` (which of these
fails first) and `smallest` (how much of a growing family is needed). With `jobs` workers the engine asks several at
once; answers are always consumed in the order of submission, so one seed and one worker count give one result.

For example:

    engine = Engine(problem, jobs=2, executor=pool)
    result = engine.run(TIERS, Candidate.of(range(problem.size)))
    result.best, result.queries, result.history
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from ..dumps.wording import counted
from .agenda import Agenda, Cancelled, RestartAsked, SearchLimits, SearchStopped, SkipAsked
from .events import Best, Follow, QueryAnswered, QueryStarted, Stepped
from .log import Log
from .minified import Interrupted, Minified, Other
from .search.problem import Aborted, Answer, Candidate, Neighbours, Problem, Ruling
from .search.windows import quantiles

if TYPE_CHECKING:
    from ..toolkit.verdicts.signature import Signature
    from .steering import Steering


class Monotony:
    """The sets of atoms that failed and that passed, kept apart for each combination of bypass, outputs and edits."""

    def __init__(self) -> None:
        self._failing: list[frozenset[int]] = []
        self.forget()

    def forget(self) -> None:
        """Forgets all passes: they were not sure."""
        self._believed = True
        self._largest: dict[tuple[object, ...], list[frozenset[int]]] = {}
        self._passing: list[frozenset[int]] = []

    def implies(self, candidate: Candidate) -> bool:
        """Whether the candidate is known to pass: its atoms are a subset of a set that passed."""
        return self._believed and any(candidate.keep <= passed for passed in self._alike(candidate))

    def learn(self, candidate: Candidate, verdict: Ruling) -> Candidate | None:
        """Takes in one answer. Returns a candidate that passed although a subset of its atoms fails, or None; always
        None for a candidate with a bypass, edits or chosen outputs."""
        alike = self._alike(candidate)
        if verdict.accepted:
            self._believed = self._believed and not any(candidate.keep <= passed for passed in alike)
        elif verdict is Ruling.PASS:
            alike[:] = [*(passed for passed in alike if not passed <= candidate.keep), candidate.keep]
        if candidate.bypass or candidate.edits or candidate.returned is not None:
            return None
        if verdict.accepted:
            self._failing.append(candidate.keep)
            return next((candidate.keeping(passing) for passing in self._passing if candidate.keep < passing), None)
        self._passing.append(candidate.keep)
        return candidate if any(failing < candidate.keep for failing in self._failing) else None

    def _alike(self, candidate: Candidate) -> list[frozenset[int]]:
        return self._largest.setdefault((candidate.bypass, candidate.returned, candidate.edits), [])


T = TypeVar("T")

INFRA_ATTEMPTS = 3
DOUBTS = 3
"""How many contradictions are looked into where the failure seemed sure."""
DOUBT_RUNS = 4
"""How often a pass that contradicts a failure is asked again before it is believed: a failure of rate 0.6 then escapes
in 1 of 100."""
FLAKY_REPEATS = 9
"""How often a passing candidate is asked where no rate was measured: a failure that shows in half of the runs is missed
in 1 of 500."""
TURNS = (SkipAsked, RestartAsked, Cancelled)
"""Raised by orders of the user's: queries in flight are not waited for."""
UNSURE = (Ruling.PASS, Ruling.OTHER)
"""Verdicts that a flaky failure may give by chance."""


class FlakyError(Exception):
    """Raised inside the engine: passes turned out to be unsure, so the search begins again from the best case."""


def persistent(ask: Callable[[], Answer]) -> Answer:
    """Calls `ask` until its answer is not INFRA, at most INFRA_ATTEMPTS times; returns the last answer."""
    answer = ask()
    for _ in range(INFRA_ATTEMPTS - 1):
        answer = ask() if answer.verdict is Ruling.INFRA else answer
    return answer


Step = Callable[["Engine", Candidate], Candidate]
"""One step of the search: takes the case as it stands, returns a smaller one that fails or is assumed to."""


class Engine:
    """One minification of one problem.

    `repeats`: how often a candidate that does not fail is asked in all (flaky failures). `queries` counts oracle runs,
    those recalled from a log included; `queries` may start above 0 where the original was checked before. A pass
    that contradicts a failure is asked again; if it then fails, `measure` says how often passes must be asked, and the
    search begins again from the best case. `steering`: carries out what the user wants between two queries.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        budget: SearchLimits | None = None,
        log: Log | None = None,
        repeats: int = 1,
        jobs: int = 1,
        executor: Executor | None = None,
        queries: int = 0,
        tell: Follow = lambda event: None,
        measure: Callable[[Engine], int] = lambda engine: FLAKY_REPEATS,
        steering: Steering | None = None,
    ) -> None:
        self.problem = problem
        self.neighbours = Neighbours.of(problem)
        self.budget = budget or SearchLimits()
        self.repeats = max(1, repeats)
        self.jobs = jobs if executor is not None else 1
        self.queries = queries
        self.recalled = 0
        self.history: list[tuple[int, int, int]] = []
        self.verdicts: Counter[Ruling] = Counter()
        self.notes: list[str] = []
        self.step = ""
        self.stopped: str | None = None
        """Why the last run ended early."""
        self.monotone = True
        """False once a candidate passed although a subset of it fails: minimality then needs every single cut tried."""
        self.local = True
        """False once the windows found that no single neighbourhood holds the failure."""
        self.anchor: int | None = None
        """The last atom that the failure needs, once the windows found it."""
        self.best: Candidate | None = None
        self.bests: list[Candidate | None] = [None]
        """The original, then the case of each entry of `history`."""
        self.agenda = Agenda([], set())
        self.left_out: set[str] = set()
        """Steps that the user has disabled."""
        self.skipped: set[str] = set()
        """Steps of this round that the user has ended early."""
        self.steering = steering
        self._restarted: int | None = None
        self._taken = 0
        """The place in `bests` of the case that was taken last (see `take`)."""
        self._answers: dict[Candidate, Answer] = {}
        self._monotony = Monotony()
        self._others: dict[str, Other] = {}
        """Failures with another signature than the one looked for; of each the smallest candidate."""
        self._log = log
        self._executor = executor
        self._tell, self._measure = tell, measure
        self._runs: dict[Candidate, list[Answer]] = {}
        self._learnt: Counter[Candidate] = Counter()
        self._doubted: Candidate | None = None
        self._doubts = 0
        self._inspecting = False

    # -- questions that search functions ask

    def ask(self, candidate: Candidate, *, afresh: bool = False) -> bool:
        """Whether the candidate fails the same way. `afresh`: asks even where earlier passes imply the answer."""
        return self.first([candidate], afresh=afresh) is not None

    def first(self, candidates: Iterable[Candidate], *, afresh: bool = False) -> int | None:
        """The index of the first candidate that fails the same way; asks `jobs` of them at a time."""
        wave: list[tuple[int, Candidate]] = []
        for position, candidate in enumerate(candidates):
            if not afresh and self._implied(candidate):
                continue
            wave.append((position, candidate))
            if len(wave) == self.jobs or candidate in self._answers:
                if (failing := self._first_of(wave)) is not None:
                    return failing
                wave = []
        return self._first_of(wave)

    def smallest(
        self, low: int, high: int, make: Callable[[int], Candidate], chance: Callable[[int], float] | None = None
    ) -> int:
        """The least m in (low, high] for which make(m) fails: low is known to pass, high to fail.

        `chance(m)` is the weight of each m; without it all are alike. One round asks at `jobs` values of m, so that an
        m of chance p is found after about log(1 / p) rounds, to the base of jobs + 1.
        """
        total = list(accumulate((chance(m) if chance else 1.0 for m in range(low + 1, high + 1)), initial=0.0))
        first = low
        while high - low > 1:
            marks = [first + place for place in quantiles(total, low - first, high - first, self.jobs)]
            implied = {mark for mark in marks if self._implied(make(mark))}
            answers = iter(self._wave([make(mark) for mark in marks if mark not in implied]))
            for mark in marks:
                if mark not in implied and next(answers).verdict.accepted:
                    high = mark
                    break
                low = mark
        return high

    def inspect(self, candidates: Sequence[Candidate]) -> list[Answer]:
        """Returns the answers to all candidates, `jobs` at a time. They change nothing: none becomes the best case or
        another failure."""
        self._inspecting, starts = True, range(0, len(candidates), self.jobs)
        try:
            waves = (self._wave([*candidates[at : at + self.jobs]]) for at in starts)
            return [answer for answers in waves for answer in answers]
        finally:
            self._inspecting = False

    def known(self, candidate: Candidate) -> bool:
        """Whether the candidate was asked already (asking again costs nothing)."""
        return candidate in self._answers

    def fails(self, candidate: Candidate) -> bool:
        """Whether the candidate was asked already and fails the same way."""
        answer = self._answers.get(candidate)
        return answer is not None and answer.verdict.accepted

    @property
    def case(self) -> Candidate:
        """The best case, or all atoms where none could go."""
        return self.best or Candidate.of(range(self.problem.size))

    def unedited(self) -> Candidate | None:
        """The smallest failing case that has no edits but those of switches; else the best case.

        From there a search begins again: an edit may not apply to fewer atoms, which would then seem to be needed.
        """
        known = [best for best in self.bests if best is not None and self.fails(best)]
        plain = [best for best in known if all(edit.startswith("switches ") for edit in best.edits)]
        return plain[-1] if plain else self.best

    def answer(self, candidate: Candidate) -> Answer | None:
        """The answer for this candidate; None where it was not asked."""
        return self._answers.get(candidate)

    def answered(self) -> list[tuple[Candidate, Answer]]:
        """All that was asked so far, in order."""
        return list(self._answers.items())

    # -- the run

    def run(self, steps: Sequence[tuple[str, Step]], start: Candidate) -> Engine:
        """Applies the steps in order to `start`, which is taken to fail; returns the engine, which holds what was
        found. Raises Interrupted on Ctrl-C."""
        state, self.stopped = start, None
        try:
            while True:
                try:
                    self._round(steps, state, start)
                    break
                except FlakyError:
                    state = self.unedited() or start
                except RestartAsked as again:
                    self.restart(again.number)
                    state = self.best or start
        except SearchStopped as stop:
            self.stopped = str(stop)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            raise Interrupted(self.stopped) from None
        finally:
            self.step = ""
            self._take_smallest()
        return self

    def _round(self, steps: Sequence[tuple[str, Step]], state: Candidate, start: Candidate) -> None:
        """Runs each step once, except those that the user disables or skips."""
        self.agenda = Agenda([name for name, _ in steps], self.left_out)
        self.skipped.clear()
        while True:
            self.step = ""
            self.boundary()
            if (place := self.agenda.next()) is None:
                return
            self.step, step = steps[place]
            self._tell(Stepped(self.step, self.queries))
            try:
                state = step(self, state)
            except SkipAsked:
                self.skipped.add(self.step)
                state = self.best or start

    def may(self, name: str) -> bool:
        """Whether the user has neither disabled nor skipped a step; other steps do not use it then, either."""
        return name not in self.left_out and name not in self.skipped

    def boundary(self, *, again: bool = False) -> None:
        """Called between two queries: carries out the user's orders. Raises Skipped, Restarted or Cancelled."""
        if self.steering is not None:
            self.steering.boundary(self, again=again)

    def restart(self, number: int) -> None:
        """Makes the `number`-th case of the history the best one, whatever was found after it; answers stay known."""
        self.best = self.bests[number]
        self._restarted = number
        self.monotone = self.local = True
        self.anchor = None

    def step_back(self) -> bool:
        """Makes the case half way back in the history the best one; False where that is the original already."""
        if self.best is None:
            return False
        self.best = self.bests[self.bests.index(self.best) // 2]
        return True

    def take(self, candidate: Candidate) -> None:
        """Makes a case that failed the best one, though its inputs may take more bytes: edits made it plainer."""
        answer = self._answers[candidate]
        more = self.best is not None and answer.nodes > self._answers[self.best].nodes
        if candidate == self.best or more or not answer.verdict.accepted:
            return
        self._taken = len(self.bests)
        self._improve(candidate, answer)
        self._tell_best()

    def least(self) -> Candidate | None:
        """The smallest failing case since the last `take`, whatever the search was restarted from."""
        return min((best for best in self.bests[self._taken :] if best is not None), key=self._order, default=None)

    def _take_smallest(self) -> None:
        """Makes the smallest case the best one, also where it was found before the search was restarted from another
        one."""
        least = self.least()
        if self._restarted is None or least is None or (self.best and self._order(self.best) <= self._order(least)):
            return
        size = "nothing smaller" if self.best is None else counted(self._answers[self.best].nodes, "node")
        number = self.bests.index(least)
        self.notes.append(
            f"restarted from {self._restarted}, which led to {size}; number {number} of the history, with "
            f"{counted(self._answers[least].nodes, 'node')}, is the smallest and is kept"
        )
        self.best = least

    def _order(self, candidate: Candidate) -> tuple[tuple[int, int], int]:
        return self._answers[candidate].size, -len(candidate.edits)

    @property
    def others(self) -> list[Other]:
        """Failures with another signature than the one looked for, the most frequent first."""
        return sorted(self._others.values(), key=lambda other: -other.count)

    def minified(self, whole: tuple[int, int], signature: Signature | None = None, **more: Any) -> Minified:
        """What was found so far. `whole`: nodes and input bytes of the original; `more`: other fields of `Minified`."""
        return Minified(
            self.queries,
            [(1, *whole), *self.history],
            signature,
            *(whole if self.best is None else self._answers[self.best].size),
            others=self.others,
            stopped=self.stopped,
            verdicts={verdict.value: count for verdict, count in self.verdicts.items()},
            original=whole,
            **more,
        )

    # -- asking

    def _first_of(self, wave: list[tuple[int, Candidate]]) -> int | None:
        for (position, _), answer in zip(wave, self._wave([candidate for _, candidate in wave]), strict=False):
            if answer.verdict.accepted:
                return position
        return None

    def _implied(self, candidate: Candidate) -> bool:
        return candidate not in self._answers and self._monotony.implies(candidate)

    def _wave(self, candidates: list[Candidate]) -> list[Answer]:
        """Answers in order, up to the first that fails the same way; the rest is not needed, and not waited for.

        Where queries are limited all are waited for, since whatever was asked counts. New ones run at the same time
        where there is an executor and enough of the budget.
        """
        enough = (place + 1 for place, candidate in enumerate(candidates) if self._enough(candidate))
        candidates = candidates[: next(enough, None)]
        new = [candidate for candidate in dict.fromkeys(candidates) if candidate not in self._answers]
        left = self.budget.left(self.queries)
        scarce = left is not None and left < len(new) * self.repeats
        steering = self.steering
        replaying = steering is not None and steering.replaying(self.queries + len(new) * self.repeats)
        if self._executor is None or len(new) < 2 or scarce or replaying:
            for candidate in new:
                self.boundary()
                self.budget.check(self.queries)
                self._announce(candidate)
                self._settle(candidate, self.repeats)
                if self._enough(candidate):
                    break
        elif new:
            self._beside(new, self._executor)
        if self._doubted is not None:
            self._look_into_doubt()
        answers: list[Answer] = []
        for candidate in candidates:
            answer = self._answers[candidate]
            answers.append(answer)
            if answer.verdict.accepted and self._improves(candidate, answer):  # known from before a restart
                self._improve(candidate, answer)
                self._tell_best()
            if self._enough(candidate):
                break
        return answers

    def _enough(self, candidate: Candidate) -> bool:
        """Whether the candidates behind this one in a wave need not be waited for: this one fails, and nothing counts
        or inspects the others."""
        return self.fails(candidate) and self.budget.left(self.queries) is None and not self._inspecting

    def _beside(self, new: list[Candidate], executor: Executor) -> None:
        """Asks all candidates at the same time, and takes in the answers in order. Queries behind the first that fails,
        or after an order of the user's that ends the wave, are ended: they do not count, even where the log has their
        answers."""
        self.budget.check(self.queries)
        for ahead, candidate in enumerate(new):
            self._announce(candidate, ahead)
        with self.asking():
            futures = [executor.submit(self._query, candidate, self.repeats) for candidate in new]
            try:
                for candidate, future in zip(new, futures, strict=True):
                    self.boundary()
                    self._settle(candidate, self.repeats, future)
                    if self._enough(candidate):
                        self.leave(futures)
                        break
            except TURNS:
                self.leave(futures)
                raise
            finally:
                for future in futures:
                    future.cancel()

    def asking(self) -> AbstractContextManager[None]:
        """Marks, for the block, that queries are in flight which an order of the user's may end."""
        return nullcontext() if self.steering is None else self.steering.asking()

    def leave(self, futures: Sequence[Future[Any]]) -> None:
        """Ends queries that nobody waits for any more: no two threads may ever ask one candidate."""
        left = [future for future in futures if not future.cancel()]
        if self.steering is None:
            wait(left)
            return
        patience_s = 0.0
        while wait(left, patience_s).not_done:
            self.steering.abort()
            patience_s = 0.1

    def _settle(self, candidate: Candidate, repeats: int, future: Future[None] | None = None) -> None:
        """Asks a candidate, or waits for the `future` that asks it, and takes in its answers."""
        self.patient(partial(self._query, candidate, repeats), future)
        self._learn(candidate)

    def patient(self, ask: Callable[[], T], future: Future[T] | None = None) -> T:
        """Returns the result of `future`, else of `ask`. A query that was aborted is asked again, unless the order that
        aborted it raises at the boundary."""
        while True:
            try:
                with self.asking():
                    return ask() if future is None else future.result()
            except Aborted:
                future = None
                self.boundary(again=True)

    def _announce(self, candidate: Candidate, ahead: int = 0) -> None:
        """Emits QueryStarted for a candidate, unless the log has its answer."""
        if not (self._log and self._log.recall(candidate.text(), 0)):
            self._tell(QueryStarted(self.queries + ahead + 1, self._purpose, self.step, candidate.text()))

    def _query(self, candidate: Candidate, repeats: int) -> None:
        """Runs one candidate, a passing one `repeats` times in all; each answer is in the log before the next is
        asked.

        Infrastructure failures are retried and not counted. Stops where the budget is used up.
        """
        runs = self._runs.setdefault(candidate, [])
        text = candidate.text()
        left = self.budget.left(self.queries)
        while len(runs) < repeats and not (runs and runs[-1].verdict not in UNSURE):
            if (left is not None and len(runs) - self._learnt[candidate] >= left) or (runs and self.budget.late()):
                break
            ask = partial(persistent, partial(self.problem.test, candidate))
            runs.append(self._log.answer(text, len(runs), ask)[0] if self._log else ask())

    def _learn(self, candidate: Candidate) -> None:
        """Takes in the runs of a candidate that were not counted yet. Raises Stopped where the budget ended within
        them."""
        text = candidate.text()
        runs = self._runs[candidate]
        for run in range(self._learnt[candidate], len(runs)):
            answer = runs[run]
            if answer.verdict is Ruling.INFRA:
                del runs[run:]
                raise SearchStopped(f"the oracle does not work: {answer.detail}")
            recalled = self._log is not None and self._log.recall(text, run) is not None
            self._learnt[candidate] += 1
            self.queries += 1
            self.recalled += recalled
            if not self._inspecting:
                self.verdicts[answer.verdict] += 1
            if answer.verdict in (Ruling.OTHER, Ruling.TIMEOUT) and not self._inspecting:
                new = Other(answer.signature, 1, candidate, answer.nodes, answer.failure)
                if (known := self._others.setdefault(answer.signature, new)) is not new:
                    known.add(new)
            if answer.verdict not in UNSURE or run + 1 >= self.repeats:
                self._answers[candidate] = answer
            improved = answer.verdict.accepted and self._improves(candidate, answer)
            if improved:
                self._improve(candidate, answer)
            about = self.queries, self._purpose, self.step, improved, recalled
            self._tell(QueryAnswered(*about, case=text, **answer.to_json()))
            if improved:
                self._tell_best()
        if candidate not in self._answers:
            self.budget.check(self.queries)
            raise SearchStopped("the budget ended")
        if not self._inspecting:
            doubted = self._monotony.learn(candidate, self._answers[candidate].verdict)
            if doubted is not None:
                self.monotone, self._doubted = False, doubted

    def _look_into_doubt(self) -> None:
        """Asks a pass that contradicts a failure again. Raises FlakyError where it fails now."""
        candidate, self._doubted = self._doubted, None
        assert candidate is not None
        runs = self._runs.get(candidate, [])
        if self.repeats > 1 or self._doubts >= DOUBTS or len(runs) > 1:
            return
        self._doubts += 1
        self.boundary()
        self.budget.check(self.queries)
        self._settle(candidate, 1 + DOUBT_RUNS)
        if self._answers[candidate].verdict.accepted:
            self.distrust()

    def distrust(self) -> None:
        """The failure is flaky after all: measures it, forgets what passed too few times, and has the search begin
        again."""
        self.repeats = max(2, self._measure(self))
        for candidate in [asked for asked, answer in self._answers.items() if answer.verdict in UNSURE]:
            if len(self._runs.get(candidate, ())) < self.repeats:
                del self._answers[candidate]
        self._monotony.forget()
        self.monotone = self.local = True
        self.anchor = None
        raise FlakyError

    def _improves(self, candidate: Candidate, answer: Answer) -> bool:
        """Smaller, or as small with more edits (an edit makes a case plainer even where it does not make it
        smaller)."""
        if self.best is None or self._inspecting:
            return not self._inspecting
        old = self._answers[self.best].size
        return answer.size < old or (answer.size == old and len(candidate.edits) > len(self.best.edits))

    def _improve(self, candidate: Candidate, answer: Answer) -> None:
        self.best = candidate
        self.history.append((self.queries, answer.nodes, answer.input_bytes))
        self.bests.append(candidate)

    def _tell_best(self) -> None:
        assert self.best is not None
        self._tell(Best(self.queries, self.best.text(), *self._answers[self.best].size, len(self.history)))

    @property
    def _purpose(self) -> str:
        """What the current queries are for: the search, or the explanation of its result."""
        return "explanation" if self._inspecting else "search"
