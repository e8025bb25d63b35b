"""Runs one graph under every rung, each in a child of one fork server; eager and float64 are computed once and shared.

Stops at the first rung that fails, unless asked to go on: what is wrong below is wrong above. `torchscript` is not
below Inductor, and what `debug_nop` finds may be harmless, so neither stops it. Imports no torch here.

For example: `triage(load_graph("myrun/0_0/forward")).first_failing` gives `'inductor'`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import median, quantiles
from typing import Any, NamedTuple

import msgspec

from ...dumps.errors import GraphdbgError, RanksMissingError
from ...dumps.store import SavedGraph
from ..blame import bisect_asking
from ..blame.bisect import DECOMPOSED
from ..blame.bisect_narrowing import work_around
from ..blame.bisect_records import Off, Trial
from ..blame.partners import stages_of
from ..isolation import ForkServer, ask, opened
from ..isolation.imports import without_trust
from ..live.rung import LADDER
from ..node_values.at_node import node_values
from ..replaying.gate import gated, with_next
from ..replaying.replay import How, outcome_of, replay
from ..rungs import NAMES, warmth
from ..stages.asking import STAGES, judge_stages
from ..verdicts.ladder_records import RungResult, Triage, inputs_given, row_of
from ..verdicts.ladder_words import address, concluded
from ..verdicts.signature import RAISED_TOO
from ..verdicts.verdict import NO_TIME, ROUNDING, Verdict, abandoned, cannot_tell, skipped
from ..verdicts.verdict_words import EAGER, word

TASK = f"{__name__}:task"
ROUNDS, WARM, BUDGET_S = 30, 3, 10.0
FACTOR, LEAST_S = 1.2, 1e-3
"""Compiled code counts as slow when it takes FACTOR times eager's time, and at least LEAST_S longer."""


class Steady(NamedTuple):
    """Median seconds of an execution. `clear`: whether the faster quartile of the slower side is above the slower
    quartile of the other; `without_s`: compiled without the given work-around, None where that fails; `compile_s`: of
    the compile, with the backward's."""

    compiled_s: float
    eager_s: float
    rounds: int
    clear: bool
    without_s: float | None = None
    compile_s: float = 0.0

    @property
    def slow(self) -> bool:
        """Whether compiled code is slower than eager beyond chance."""
        return self.clear and self.compiled_s > FACTOR * self.eager_s and self.compiled_s - self.eager_s > LEAST_S


def steady(saved: SavedGraph, server: ForkServer, how: How, lines: str = "") -> Steady | None:
    """Measures a graph with its backward, if it has one; None where the measurement fails. `lines`: code of a
    work-around to run first."""
    answer = ask(TASK, {**how.payload(saved), "lines": lines}, how.limit_s, server=server).answer()
    return Steady(**answer.value) if answer.status == "done" else None


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The child's part: measures compiled and eager executions in turn."""
    from ..live.case import Case
    from ..live.eager import clone_inputs, copy_graph
    from ..live.entries import shared_fakes
    from ..live.execution import Attributes, execute, leaves
    from ..live.spec import FULL_STAGES, in_force, no_caches, settings
    from ..rungs import rung

    live = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    gm, spec = live.gm, live.spec
    backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
    attributes = Attributes(gm)
    inductor = rung("inductor")

    def timed(run: Any) -> float:
        parameters = [parameter for parameter in gm.parameters() if parameter.requires_grad] if backward else []
        inputs = clone_inputs(live.inputs)
        with attributes:
            began = time.perf_counter()
            execute(run, inputs, seed=0, backward=backward, parameters=parameters)
            return time.perf_counter() - began

    def built() -> Any:
        copied = copy_graph(gm)
        return inductor.build(copied, shared_fakes(copied, live.inputs, spec.dynamic, False)[0], spec)

    with settings(spec.config), no_caches(), in_force(spec), inductor.around(gm, spec):
        runs: list[Any] = [lambda inputs: leaves(gm(*inputs))]
        if payload["lines"]:
            with suppress(Exception):  # may fail: the work-around may be for just that
                timed(before := built())
                runs.append(before)
        exec(payload["lines"], {})
        began = time.perf_counter()
        runs.insert(0, built())
        compile_s = time.perf_counter() - began + timed(runs[0])
        for run in runs * WARM:
            timed(run)
        taken: list[list[float]] = [[] for _ in runs]
        until = time.monotonic() + BUDGET_S
        while len(taken[0]) < WARM or (len(taken[0]) < ROUNDS and time.monotonic() < until):
            for run, times in zip(runs, taken, strict=True):
                times.append(timed(run))
    (fast, _, slow), (fast_eager, _, slow_eager) = (quantiles(times, n=4) for times in taken[:2])
    clear, without_s = fast > slow_eager or fast_eager > slow, median(taken[2]) if len(taken) > 2 else None
    return Steady(median(taken[0]), median(taken[1]), len(taken[0]), clear, without_s, compile_s)._asdict()


QUICK_S, THOROUGH_S = 30.0, 600.0
"""Seconds for the search of a work-around: by default, and when it was asked for."""
CLOSE = 1e-6
"""Relative difference up to which two errors to float64 count as those of the same numbers."""
COMPILES = 2
"""How many compiles of the graph must fit into QUICK_S, for a search that was not asked for."""


def blames_compiler(verdict: Verdict) -> bool:
    """Whether a change of the compiler could remove the failure."""
    return verdict.verdict == ROUNDING or (verdict.failed and verdict.fault == "compiler")


def parted(saved: SavedGraph, server: ForkServer, how: How, limit_s: float) -> str:
    """The first node whose compiled value differs from eager's, with its line; "" where returning the values changes
    the failure."""
    if limit_s < 1.0:
        return ""
    events = list(node_values(saved, "inductor", How(how.seed, how.device, limit_s, how.imports), server=server))
    if events[-1].get("relation") not in ("same", "other"):
        return ""
    rows = (row for row in events if row.get("error") is not None and row.get("eager_error") is not None)
    first = next((row for row in rows if not math.isclose(row["error"], row["eager_error"], rel_tol=CLOSE)), None)
    return "" if first is None else f"{first['name']}{', ' + first['line'] if first['line'] else ''}"


def eased(
    saved: SavedGraph,
    server: ForkServer,
    how: How,
    verdict: Verdict,
    compile_s: float,
    left_s: float,
    *,
    thorough: bool = False,
    report: Callable[[str], object] = lambda text: None,
) -> Verdict:
    """Returns the verdict with a work-around, or with the command that searches for one longer, where compiling the
    graph (`compile_s`) takes too long for a search that was not asked for. Unchanged where the compiler is not at
    fault, or none was found in `left_s`.
    """
    if not blames_compiler(verdict) or verdict.workaround:
        return verdict
    if verdict.kind in ("hang", "memory") and not thorough:
        compile_s = QUICK_S
    command = verdict.then(f"graphdbg triage {address(saved)} --workaround").next
    unasked = msgspec.structs.replace(verdict, next=[*verdict.next, *command])
    if not thorough and COMPILES * compile_s > QUICK_S:
        return unasked
    report("looking for a work-around: settings, operators left to eager, functions left uncompiled")
    began = time.monotonic()
    limit = min(left_s, THOROUGH_S if thorough else QUICK_S)
    try:
        lines = work_around(saved, server, how, verdict, max_time_s=limit)
    except RanksMissingError:  # it communicates with other ranks
        return verdict
    except KeyboardInterrupt:  # the verdict counts more than its work-around
        report("interrupted")
        return unasked
    spent_s = time.monotonic() - began
    some = "; not all were tried" if lines is None and spent_s >= limit else ""
    report(f"found {'no such' if lines in (None, EAGER) else 'a'} work-around in {spent_s:.1f} s{some}")
    if verdict.verdict == ROUNDING and (place := parted(saved, server, how, limit - (time.monotonic() - began))):
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason}; compiled and eager part first at {place}")
    if lines is None and verdict.failed and not thorough:
        return unasked
    if lines and thorough and "torch.compiler." not in lines:  # the graph cannot show their cost
        lines += _cost(saved, server, how, lines)
    return msgspec.structs.replace(verdict, workaround=lines)


def _cost(saved: SavedGraph, server: ForkServer, how: How, lines: str) -> str:
    """A comment on the speed with and without the change; "" where it cannot be measured."""
    times = steady(saved, server, how, lines)
    if times is None:
        return ""
    without = f"{1000 * times.without_s:.3g} ms without, " if times.without_s is not None else ""
    beside = f"{without}{1000 * times.eager_s:.3g} ms in eager"
    return f"\n# an execution takes {1000 * times.compiled_s:.3g} ms with it, {beside}"


BEFORE = (DECOMPOSED, "inductor_nofuse")
"""Rungs before Inductor: what they compile has no recorded counterpart to compare with."""
DEFAULT_LIMIT_S = 300.0

Report = Callable[[RungResult], object]


def triage(
    saved: SavedGraph,
    *,
    seed: int = 0,
    device: str | None = None,
    limit_s: float = DEFAULT_LIMIT_S,
    all: bool = False,
    imports: Sequence[str] = (),
    server: ForkServer | None = None,
    max_time_s: float | None = None,
    report: Report | None = None,
    begun: Callable[[str], object] | None = None,
    rungs: Sequence[str] = (),
    workaround: bool = False,
) -> Triage:
    """Runs a saved graph up the ladder and says which rung fails first; returns a Triage.

    `limit_s`: seconds that one rung may take; `max_time_s`: all of them together; a rung that the time is too short for
    is skipped, never a hang. `all`: every rung, and on after the first that fails. `rungs`: only these, in the ladder's
    order; by default those that the run used. `workaround`: look for one also where that takes more than seconds.
    `seed`, `device`, `imports`, `server`: as for `replay`. `report` is called with each row, `begun` with the name of a
    rung that is about to be run. Raises GraphdbgError for a graph that cannot be loaded.

    >>> ladder = triage(saved, rungs=["eager", "inductor"])
    >>> [(row.rung, row.verdict.verdict) for row in ladder.rows], ladder.first_failing
    ([('eager', 'ok'), ('inductor', 'ok')], None)
    """
    if saved.status == "skipped":
        verdict = abandoned(saved.error)
        return Triage([], graph=address(saved), summary=f"Nothing was judged: {verdict.reason}.", verdict=verdict)
    began = time.monotonic()
    wanted = chosen(saved, rungs, all=all)
    with opened(server, warmth(*wanted)) as used:
        how = How(seed, device, limit_s, imports)
        if not (rungs or all) and (parted := judge_stages(stages_of(saved), how, used)) is not None:
            verdict, seconds, inputs = parted[1], time.monotonic() - began, inputs_given(saved)
            rows = [RungResult(STAGES, verdict, seconds=seconds)]
            eased_verdict = eased(stages_of(saved)[0], used, how, verdict, 0.0, limit_s, thorough=workaround)
            return Triage(rows, STAGES, address(saved), verdict.reason, inputs, seconds, eased_verdict)
        ladder = Ladder(saved, used, how, max_time_s=max_time_s)
        for rung in wanted:
            if begun is not None:
                begun(rung)
            row = ladder.climb(rung, all=all)
            if report is not None:
                report(row)
        result = ladder.found()
        if not rungs:
            slowest = max((row.seconds for row in result.rows), default=0.0)
            left = limit_s if max_time_s is None else began + max_time_s - time.monotonic()
            result.verdict = eased(saved, used, how, result.verdict, slowest, left, thorough=workaround)
        return result


def chosen(saved: SavedGraph, rungs: Sequence[str] = (), *, all: bool = False) -> list[str]:
    """The rungs to climb, in order: those asked for, all of them, or those that the run used."""
    if rungs or all:
        return [name for name in NAMES if name in (rungs or NAMES)]
    used = {name for name, facts in LADDER.items() if facts.is_usual}
    try:
        kwargs, config = saved.record.compile_kwargs, saved.record.config.get("inductor", {})
    except GraphdbgError:
        return [name for name in NAMES if name in used]
    on = {name for name, value in kwargs.items() if value is True} | {n for n, value in config.items() if value is True}
    used |= {name for name, facts in LADDER.items() if on.intersection(facts.used_by)}
    return [name for name in NAMES if name in used]


class Ladder:
    """The ladder of one graph in progress. A rung already judged is not run again."""

    def __init__(self, saved: SavedGraph, server: ForkServer, how: How, *, max_time_s: float | None = None) -> None:
        self.saved, self.server, self.how, self.max_time_s = saved, server, how, max_time_s
        self.rows: dict[str, RungResult] = {}
        self.fidelity: str | None = None
        self.unlike = ""
        self.eager_nan: list[str] = []
        self._shared = server.scratch_file(".pt")
        self.began = time.monotonic()

    def climb(self, rung: str, *, all: bool) -> RungResult:
        """The row of the next rung: run it, unless an earlier row makes it unnecessary."""
        if rung not in self.rows:
            stop = self._stopped(rung, all)
            self.rows[rung] = RungResult(rung, skipped(stop)) if stop else self.run(rung)
        return self.rows[rung]

    def run(self, rung: str) -> RungResult:
        """Judges the graph under a rung, whatever the other rungs showed."""
        left = self._left_s()
        if left < 1.0:
            had = f"{self.max_time_s:.0f} s, " if (self.max_time_s or 0.0) >= 1.0 else ""
            over = f"the time was over ({had}see --max-time)"
            self.rows[rung] = RungResult(rung, cannot_tell(over, NO_TIME))
            return self.rows[rung]
        how = self.how._replace(limit_s=min(self.how.limit_s, left))
        given = {"server": self.server, "shared": self._shared, "patient": left >= self.how.limit_s}
        outcome = replay(self.saved, rung, **how._asdict(), outputs=False, **given)
        row = row_of(outcome, rung)
        if row.verdict.kind == "hang" and left < self.how.limit_s:
            short = f"the {left:.0f} s that were left were not enough (see --max-time)"
            longer = f"graphdbg triage {self.saved.name} --max-time {4 * self.how.limit_s:.0f}"
            row = RungResult(rung, cannot_tell(short, NO_TIME).then(longer))
        self.fidelity = outcome.fidelity or self.fidelity
        self.unlike = outcome.unlike or self.unlike
        self.eager_nan = outcome.eager_nan or self.eager_nan
        self.rows[rung] = row
        return row

    def found(self) -> Triage:
        """The rows in order, with the conclusion."""
        rows = [self.rows[name] for name in NAMES if name in self.rows]
        first = next((row.rung for row in rows if row.blames), None)
        if first in BEFORE and self.saved.run is not None and not (self.how.anyway or without_trust(self.how.imports)):
            if not self.fidelity and self.how.device is None:  # is it the run's program that Inductor compiles here?
                kept = dict(self.rows)
                self.run("inductor")
                self.rows = kept
            for row in (other for other in rows if other.blames):  # else their failures are not the run's, either
                row.verdict = with_next(self.saved, gated(self.saved, row, self.unlike, self.how.imports))
            first = next((row.rung for row in rows if row.blames), None)
        if first == DECOMPOSED:
            self._in_its_layer(self.rows[first])
        if first == "triton_interpret" and any(row.rung == "inductor" and row.blames for row in rows):
            first = "inductor"  # the fault is in what GPU and CPU code have in common
        if first is not None and self.rows[first].verdict.kind == "missing_error":
            rows = [_as_eager(row) for row in rows]
        self.forget()
        result = Triage(rows, first, inputs=inputs_given(self.saved), seconds=time.monotonic() - self.began)
        return concluded(result, self.saved, self.how.imports, self.eager_nan)

    def _in_its_layer(self, row: RungResult) -> None:
        """Attributes the failure of the decomposed graph to the layer of decompositions, where it is right without
        any."""
        left = min(self.how.limit_s, self._left_s())
        if left < 1.0 or row.verdict.fault != "compiler":
            return
        trial = Trial("no operator decomposed", [Off("decomposition", keep=[])], rung=row.rung)
        payload = {"trial": msgspec.to_builtins(trial), "check": "auto", "shared": str(self._shared)}
        asked = ask(bisect_asking.TASK, {**self.how.payload(self.saved), **payload}, left, server=self.server)
        if _as_eager(row_of(outcome_of(asked.end(), row.rung), row.rung)).verdict.exit_code == 0:
            row.verdict = row.verdict.in_layer("decomposition")

    def forget(self) -> None:
        """Removes eager's and float64's results, which the rungs shared and which can be large."""
        self._shared.unlink(missing_ok=True)

    def _left_s(self) -> float:
        return float("inf") if self.max_time_s is None else self.began + self.max_time_s - time.monotonic()

    def _stopped(self, rung: str, all: bool) -> str:
        eager = self.rows.get("eager")
        raises = eager is not None and eager.signature is not None and eager.signature.kind == "error"
        if eager is not None and eager.verdict.undecided and not raises:
            return "eager itself cannot be judged"
        if eager is not None and eager.failed:
            return f"eager itself {word(eager.verdict)}"
        if all:
            return ""
        order = [self.rows[name] for name in NAMES[: NAMES.index(rung)] if name in self.rows]
        ends = {name for name, facts in LADDER.items() if not facts.is_side and not facts.goes_on}
        first = next((row for row in order if row.failed and row.rung in ends), None)
        return f"{first.rung} failed (--all runs this rung as well)" if first else ""


def _as_eager(row: RungResult) -> RungResult:
    """A row that eager's error left unjudged: ok where the rung raises the same error as eager, since that is
    expected."""
    if not row.verdict.undecided or row.signature is None or row.signature.detail != RAISED_TOO:
        return row
    reason = f"raises {row.signature.error}" + ("" if row.rung == "eager" else ", as eager does")
    return RungResult(row.rung, Verdict("ok", reason=reason), seconds=row.seconds, peak_bytes=row.peak_bytes)
