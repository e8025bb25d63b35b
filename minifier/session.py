"""One minification from the first query to the last: does it fail, how surely, the search, the saved case judged again.

Knows no FX and no process: its subject is the oracle, a Problem that can also be judged as a whole and be written down;
tests drive the very same session over abstract problems with the same methods. Every judgement goes through the log;
what the log has is never asked again.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..dumps.errors import CannotResumeError, EnvironmentLackError
from ..dumps.wording import counted
from ..toolkit.verdicts import verdict
from .agenda import Cancelled, RestartAsked, SearchLimits, SkipAsked
from .casefile import CALIBRATION, FailureRate
from .engine import TURNS, Engine, FlakyError, Step, persistent
from .events import EXPLAINING, Cut, Follow, Happening, QueryAnswered, QueryStarted, Stepped
from .log import Log
from .minified import Interrupted, Minified
from .needs import MOST_EXPLAINED, Needs, base_of, certify, of_rows
from .options import HANG_LIMIT_S, MinifyOptions
from .passes import NAMES as PASS_NAMES
from .passes import NEUTRAL, PLAINER
from .results import Results, write_atoms
from .search.edits import drop_outputs, exhaust
from .search.problem import Answer, Candidate, CannotJudgeError, Ruling
from .search.tiers import TIERS
from .steering import Steering

if TYPE_CHECKING:
    from .oracle import Oracle

T = TypeVar("T")

UNSTEADY = (
    "the wrong numbers differ from run to run: compiled code races with itself, adds in any order, or reads memory "
    "that nobody wrote"
)
SANITY = 2
"""Runs of the original before anything else."""
UNDISTURBED = ("crash", "accuracy", "nan", "metadata")
"""Kinds of failure that do not depend on what else the machine does."""
RESTARTS = 2
"""How often the search begins again because the saved case did not fail every time."""


class Minification:
    """One minification. `tell` receives events, `narrate` sentences."""

    def __init__(
        self,
        subject: Oracle,
        log: Log,
        out: Path,
        options: MinifyOptions,
        *,
        narrate: Callable[[str], None] = lambda text: None,
        tell: Follow = lambda event: None,
        steering: Steering | None = None,
    ) -> None:
        self.steering = steering
        self.subject, self.log, self.options = subject, log, options
        self.results = Results(subject, out, options)
        self.narrate, self.tell = narrate, tell
        self.budget = SearchLimits(options.max_time, options.max_queries)
        self.notes: list[str] = []
        self.originals: list[Answer] = []
        self.asked: Counter[str] = Counter()
        self.pool: Executor | None = None
        self.left = set(PASS_NAMES)
        """The passes that still have something to propose."""
        self.together: Candidate | None = None
        """The case to which `left` applies."""
        self.rate = FailureRate(0, 0)
        self.of_saved = FailureRate(0, 0)
        self.needs: tuple[Candidate, Needs] | None = None
        """A finished case, and the questions about it."""
        self.shown: Answer | None = None
        """The last judgement of the saved case that showed the failure."""
        self.cut = ""
        """Why the verification ended early, where the user ended it."""

    @property
    def queries(self) -> int:
        """Queries that are no part of the search."""
        return self.asked["sanity"] + self.asked["explanation"] + self.asked["verification"]

    def run(self, pool: Executor) -> Minified:
        """Runs the whole minification. Raises NothingToReduceError, and Interrupted with the best case so far on
        disk."""
        self.pool = pool
        self.tell(Stepped("sanity", 0))
        prepared = pool.submit(self.subject.prepare)
        try:
            repeats = self._sanity(pool)
        finally:
            prepared.result()
        self.subject.find_hints()
        self._same_atoms()
        write_atoms(self.results.out, self.subject)
        options = self.options
        self.budget.reserved = options.verify

        engine = self.engine = Engine(
            self.subject,
            budget=self.budget,
            log=self.log,
            repeats=repeats,
            jobs=options.jobs,
            executor=pool if options.jobs > 1 else None,
            queries=self.queries,
            tell=self._hear,
            measure=self._measure,
            steering=self.steering,
        )
        if self.steering is not None:
            self.steering.searching, self.steering.whole = True, self.whole.size
        try:
            return self._search(engine)
        except Interrupted as interrupted:
            interrupted.minified = self._conclude(engine, (0, 0), brief=True)
            raise

    # -- how surely it fails

    def _sanity(self, pool: Executor) -> int:
        """Judges the original; returns how often a candidate is asked before it counts as passing."""
        count = min(SANITY, self.options.max_queries or SANITY)
        before = self.subject.before() if count > 1 else None
        for run in range(count if before is None else 1):
            self._announce("sanity", "original", run, run + 1)
        raw = self._in_time([pool.submit(self._original, run) for run in range(count if before is None else 1)])
        if before is not None:
            alike = raw[0].signature == before.signature
            raw.append(self._original(1, partial(replace, raw[0], seconds=before.seconds) if alike else None))
            done = f"one of the first {SANITY} runs of the original was done by an earlier command"
            self.notes += [done] if alike else []
        self._take(raw)
        broken = next((answer for answer in raw if answer.verdict is Ruling.INFRA), None)
        if broken is not None:
            record = verdict.cannot_tell(broken.detail)
            raise CannotJudgeError("cannot judge the case", broken.detail, "see graphdbg doctor", record)
        if any(answer.verdict is not Ruling.SAME for answer in self.originals):
            if self.rate.failing or any(answer.verdict is Ruling.PASS for answer in self.originals):
                self._calibrate()
            if self.rate.failing == 0:
                raise self.subject.refusal(self.originals)
        whole = self.whole
        kinds = {answer.signature for answer in self.originals if answer.verdict is Ruling.SAME}
        signature = self.subject.signature
        if len(kinds) > 1 and signature is not None and signature.kind == "accuracy":
            self.notes.append(UNSTEADY)
        self.narrate(f"it fails: {whole.signature} ({self.rate} runs of the original)")
        if place := self.subject.place():
            self.narrate(place)
        return self._flakiness()

    def _in_time(self, runs: Sequence[Future[Answer]]) -> list[Answer]:
        """Returns the answers of the runs of the original that end in time. Where none does, waits for the first: a
        minute, or as long as the run's own limit. Raises CannotJudgeError where there is none then."""
        done, late = wait(runs, self.budget.seconds_left())
        if not done:
            own = self.options.judged == "hang" or self.options.hangs or self.options.time_limit  # that ends it
            done, late = wait(runs, None if own else HANG_LIMIT_S, FIRST_COMPLETED)
        if not done:
            self.subject.abort()
            why = f"its first run did not end within the time (--max-time {self.budget.max_seconds:g})"
            fix = "if it hangs, minify it with --check hang; else give it more time"
            raise CannotJudgeError("cannot judge the case", why, fix, verdict.cannot_tell(why, verdict.NO_TIME))
        if late:
            self.subject.abort()
            times = counted(len(done), "time")
            self.notes.append(f"the original was run {times} only (--max-time {self.budget.max_seconds:g})")
        return [run.result() for run in runs if run in done]

    @property
    def whole(self) -> Answer:
        """The first run of the original that failed the way that is minified."""
        return next(answer for answer in self.originals if answer.verdict is Ruling.SAME)

    def _announce(self, purpose: str, case: str, run: int, number: int) -> None:
        """Emits QueryStarted for a query outside of the search, unless the log has its answer."""
        if self.log.recall(case, run) is None:
            self.tell(QueryStarted(number, purpose, purpose, case))

    def _answered(self, purpose: str, number: int, case: str, answer: Answer, recalled: bool) -> None:
        self.tell(QueryAnswered(number, purpose, purpose, recalled=recalled, case=case, **answer.to_json()))

    def _original(self, run: int, ask: Callable[[], Answer] | None = None) -> Answer:
        return self.log.answer("original", run, ask or partial(persistent, self.subject.whole))[0]

    def _take(self, raw: list[Answer]) -> None:
        settled = self.subject.settle(raw)
        for answer in settled:
            known = self.log.recall("original", len(self.originals)) is not None
            self.originals.append(answer)
            self.asked["sanity"] += 1
            self._answered("sanity", self.asked["sanity"], "original", answer, known)
        self.rate = FailureRate(sum(answer.verdict is Ruling.SAME for answer in self.originals), len(self.originals))

    def _calibrate(self, left: int | None = None) -> None:
        """Runs the original until its rate of failure is known well enough."""
        most = self.options.max_queries
        left = left if left is not None or most is None else most - len(self.originals)
        while len(self.originals) < CALIBRATION and (left is None or left > 0) and not self.budget.late():
            self._announce("sanity", "original", len(self.originals), len(self.originals) + 1)
            self._take([self._original(len(self.originals))])
            left = None if left is None else left - 1

    def _flakiness(self) -> int:
        """How often a candidate is asked before it counts as passing."""
        believed = self._believed()
        if believed.flaky:
            self.notes = [note for note in self.notes if not note.startswith("flaky:")]
            what = "the original" + (" and the reduced case" if self.of_saved.runs else "")
            times = counted(believed.repeats(), "time")
            self.notes.append(f"flaky: {believed} runs of {what} failed; what passes is asked {times}")
            self.narrate(self.notes[-1])
        return believed.repeats()

    def _believed(self) -> FailureRate:
        """The rate of failure, from the runs of the original and of the saved case.

        First runs that all failed are left out where there are others: the failure was taken for a sure one because of
        them, so they prove nothing.
        """
        chosen = SANITY if all(answer.verdict is Ruling.SAME for answer in self.originals[:SANITY]) else 0
        rest = self.originals[chosen:] or self.originals
        failing = sum(answer.verdict is Ruling.SAME for answer in rest)
        return FailureRate(failing + self.of_saved.failing, len(rest) + self.of_saved.runs)

    def _measure(self, engine: Engine) -> int:
        """Measures the rate of failure after a contradiction in the search; returns how often a passing candidate is
        asked from here on."""
        before = self.asked["sanity"]
        self.tell(Stepped("measuring", engine.queries))
        self._calibrate(self.budget.left(engine.queries))
        engine.queries += self.asked["sanity"] - before
        if self._believed().flaky:
            return self._flakiness()
        self.notes.append("flaky: one case both failed and passed, though the original failed every time")
        return FailureRate(2 * CALIBRATION // 3, CALIBRATION).repeats()

    # -- the search

    def _search(self, engine: Engine) -> Minified:
        state = Candidate.of(range(self.subject.size))
        left = RESTARTS
        while True:
            engine.run(self._steps(), state)
            needs = self._needs_of(engine)
            if needs is not None and not engine.stopped and (less := needs.less(engine)) is not None:
                engine.take(less)
                state, self.needs = less, None
                continue
            try:
                shown, times = self._verify(engine)
                while times and not shown and (engine.stopped or not left) and engine.step_back():
                    self.narrate("the saved case did not fail again: a larger one of before is taken")
                    shown, times = self._verify(engine)
            except RestartAsked as again:
                engine.restart(again.number)
                state = engine.case
                continue
            self.of_saved = FailureRate(self.of_saved.failing + shown, self.of_saved.runs + times)
            doubtful = shown < times if engine.repeats == 1 else self._believed().repeats() > engine.repeats
            if not doubtful or engine.stopped or not left:
                return self._conclude(engine, (shown, times))
            self.narrate(f"the reduced case failed in {shown} of {times} runs only: measuring how flaky it is")
            try:
                engine.distrust()
            except FlakyError:
                state = engine.unedited() or state
            left -= 1

    def _steps(self) -> list[tuple[str, Step]]:
        axes: list[tuple[str, Step]] = [(name, self._axis(name)) for name in PASS_NAMES]
        axes.insert(PASS_NAMES.index("values") + 1, ("dims", self._axis("dims", again=True)))
        small: list[tuple[str, Step]] = [("explain", certify), ("outputs", self._outputs), ("together", self._together)]
        return [*TIERS, *small, *axes, (EXPLAINING, self._needs)]

    def _hear(self, event: Happening) -> None:
        """Counts the engine's queries that explain, and passes its events on."""
        if isinstance(event, QueryAnswered) and event.purpose == "explanation":
            self.asked["explanation"] += 1
        self.tell(event)

    def _outputs(self, engine: Engine, state: Candidate) -> Candidate:
        state = engine.case
        returned, loose = self._asked("no outputs were dropped", lambda: self.subject.outputs(state)) or ((), ())
        return drop_outputs(engine, state, returned, loose)

    def _together(self, engine: Engine, state: Candidate) -> Candidate:
        state = engine.case
        self.left = set(PASS_NAMES)
        proposed = self._asked("axes were changed one by one only", lambda: self.subject.together(state))
        if proposed is None:
            return state
        edits, left = proposed
        kept = [edit for edit in edits if engine.may(edit.partition(" ")[0])]
        unsaid = {edit.partition(" ")[0] for edit in edits if edit not in kept}
        plain = replace(state, edits=(*state.edits, *kept))
        if not kept or engine.ask(plain):
            self.left, self.together = {*left, *unsaid}, plain
            return plain
        return state

    def _axis(self, name: str, *, again: bool = False) -> Step:
        """A pass as a step. `again`: a second time, where whole numbers became zeros: as indices the recorded ones
        forbade smaller sizes."""

        def step(engine: Engine, state: Candidate) -> Candidate:
            state = engine.case
            if name not in self.left and not (name in NEUTRAL and state != self.together):
                return state
            if again and not any(fnmatchcase(edit, "values * zeros") for edit in state.edits):
                return state
            return exhaust(engine, state, lambda case: self._proposed(name, case), plainer=name in PLAINER)

        return step

    def _proposed(self, name: str, state: Candidate) -> list[list[str]]:
        return self._asked(f"{name} were left as they are", lambda: self.subject.propose(name, state)) or []

    def _asked(self, otherwise: str, ask: Callable[[], T]) -> T | None:
        """Returns `ask()`; None, and a note that begins with `otherwise`, where the subject cannot be asked."""
        try:
            return ask()
        except EnvironmentLackError as error:
            self.notes.append(f"{otherwise}: {error}")
            return None

    def _needs(self, engine: Engine, state: Candidate) -> Candidate:
        """Asks what each part of a small case is needed for; the case stays as it is (see `_search`)."""
        case = engine.best
        if case is None or len(case.keep) > MOST_EXPLAINED:
            return state
        what = "nothing was asked about the parts that are left"
        if (rows := self._asked(what, lambda: self.subject.propose("probes", base_of(case)))) is None:
            return state
        needs = of_rows(rows, case)
        signature = self.subject.signature
        needs.kind, needs.stage = (signature.kind, signature.stage) if signature else ("", "")
        self.needs = case, needs
        needs.ask(engine)
        return state

    # -- the result

    def _verify(self, engine: Engine) -> tuple[int, int]:
        """Writes the best case and judges it from the disk in fresh children; returns how many of how many failed the
        same way."""
        self.tell(Stepped("verification", engine.queries))
        self.results.write_case(engine.best, self.whole, self.rate)
        times = self.options.verify if engine.repeats == 1 else max(self.options.verify, CALIBRATION)
        if self.options.max_queries is not None:
            times = min(times, max(0, self.options.max_queries - engine.queries))
        shown = 0
        key = f"verify {engine.best.text() if engine.best else 'original'}"
        for run in range(times):
            self._announce("verification", key, run, engine.queries + run + 1)
        judged, engine.step = 0, "verification"
        try:
            for answer, known in self._saved(engine, key, times):
                judged += 1
                shown += answer.verdict is Ruling.SAME
                self.shown = answer if answer.verdict is Ruling.SAME else self.shown
                engine.queries += 1
                self.asked["verification"] += 1
                self._answered("verification", engine.queries, key, answer, known)
        except (SkipAsked, Cancelled) as error:
            self.cut = str(error) or "skipped"
        finally:
            engine.step = ""
        return shown, judged

    def _saved(self, engine: Engine, key: str, times: int) -> Iterator[tuple[Answer, bool]]:
        """Judgements of the saved case, and whether the log had them; at the same time where none disturbs
        another."""

        def judge(number: int) -> tuple[Answer, bool]:
            return self.log.answer(key, number, partial(self.subject.saved, self.results.case))

        signature = self.subject.signature
        beside = self.pool is not None and signature is not None and signature.kind in UNDISTURBED
        if self.steering is not None and self.steering.replaying(engine.queries + times):
            beside = False
        with engine.asking():
            waiting = [self.pool.submit(judge, number) for number in range(times)] if self.pool and beside else []
            try:
                for number in range(times):
                    if number and self.budget.over():
                        engine.leave(waiting)
                        return
                    engine.boundary()
                    yield engine.patient(partial(judge, number), waiting[number] if waiting else None)
            except TURNS:
                engine.leave(waiting)
                raise

    def _conclude(self, engine: Engine, verified: tuple[int, int], *, brief: bool = False) -> Minified:
        """Writes everything else and returns the result. `brief`: interrupted, nothing was saved yet."""
        if brief:
            self.results.write_case(engine.best, self.whole, self.rate)
        shown, times = verified
        if shown < times:
            self.notes.append(f"the saved case failed the same way in {shown} of {counted(times, 'fresh process')}")
        if times < self.options.verify and not brief:
            limit = "time" if self.budget.over() else "queries"
            why = self.cut or f"--max-{limit} {getattr(self.options, f'max_{limit}'):g}"
            self.notes.append(f"verified {counted(times, 'time')} only ({why})")
        answer = self.shown or (engine.answer(engine.best) if engine.best else None) or self.whole
        signature = self.subject.signature
        assert signature is not None
        minified = engine.minified(
            self.whole.size,
            signature,
            verified=verified,
            notes=[*self.notes, *engine.notes, *self.subject.notes],
            path=self.results.case,
            asked={**self.asked, "search": engine.queries - self.queries},
            verdict=verdict.read(answer.record) or verdict.judged(signature, self.options.rung),
        )
        self.results.write_rest(minified, engine, self._needs_of(engine), brief=brief)
        return minified

    def _needs_of(self, engine: Engine) -> Needs | None:
        """What was asked about the best case."""
        return self.needs[1] if self.needs and self.needs[0] == engine.best else None

    def _same_atoms(self) -> None:
        """Checks that the log is about the same atoms, since their numbers name candidates. Raises
        CannotResumeError."""
        digest = self.results.digest()
        known = self.log.earlier.digest
        if not known:
            self.tell(Cut(digest))
        elif known != digest:
            why = "the graph is cut into other parts now than when it was written"
            raise CannotResumeError(f"cannot resume from {self.log.path}", why, "start again with another -o")
