"""What a run suffers from, and which engines look into it: one table, read by `triage RUN --symptom S` and by a triage
that finds the symptom itself, in the journals.

A step looks at one thing, says what it looked at, and returns a verdict or None; the run's verdict is the first failure
of a step, else the graphs' (which a step never makes better), else what a step could not tell. Imports no torch.

>>> noticed(open_run("myrun")).symptom
'wrong'
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...dumps import deaths, why
from ...dumps.why.times import of_run
from ...dumps.wording import counted
from ..replaying.replay import How
from ..replaying.suspects import triggered
from ..verdicts.ladder_records import REAL
from ..verdicts.ladder_words import record_again, run_address
from ..verdicts.verdict import Verdict, cannot_tell
from .ranking import RunTriage
from .run import triage_run
from .symptom_steps import died, in_flight, memory, often, ranks, recompiles, slow, steady, waits

if TYPE_CHECKING:
    from ...dumps.store import Run

Step = Callable[["Run", RunTriage | None, How], tuple[str, Verdict | None]]
"""What was looked at, in a sentence, and what came of it (None: nothing). Given the graphs' triage where they were
judged before, and how to ask of a graph."""


class Sequence(NamedTuple):
    """What is done for a symptom: steps before the graphs are judged, whether they are, and steps that look at how that
    went."""

    before: tuple[Step, ...] = ()
    graphs: bool = True
    after: tuple[Step, ...] = ()


SYMPTOMS: dict[str, Sequence] = {
    "wrong": Sequence(),
    "nan": Sequence(),
    "slow": Sequence(before=(often, slow), after=(steady,)),
    "hangs": Sequence(before=(waits,), after=(in_flight,)),
    "recompiles": Sequence(before=(recompiles,), graphs=False),
    "memory": Sequence(after=(memory, died)),
    "crash": Sequence(after=(in_flight, died)),
    "ranks": Sequence(before=(ranks, waits)),
}


class Noticed(NamedTuple):
    """A symptom, and where it was found, in words."""

    symptom: str
    why: str


_CLEAR = ("SIGTERM", "SIGINT", "SIGHUP")
"""Signals by which people and schedulers end what did not fail."""


def noticed(run: Run) -> Noticed:
    """What the journals say that the run suffers from, the most telling first; "wrong" where they say nothing."""
    seen = why.first_found(run.processes)
    if "nan" in triggered(run.processes).values():
        return Noticed("nan", f"found in the journal: {seen[0].message}")
    failed = [row for row in run.rows if row.status == "failed" and "KeyboardInterrupt" not in (row.error or "")]
    if failed:
        error = (failed[0].error or "").partition("\n")[0][:120]
        out_of_memory = any(word in error.lower() for word in ("out of memory", "can't allocate memory", "bad_alloc"))
        return Noticed("memory" if out_of_memory else "crash", f"found in the journal: {failed[0].id} failed: {error}")
    ends = deaths.endings(run.processes)
    stopped = [end.signal for end in ends if end.status == "killed"]
    lost = [row for row in run.rows if row.lost or (row.status == "failed")]
    if lost:
        crashed = any(name not in (*_CLEAR, "SIGKILL") for name in stopped)
        how = f"{lost[0].id} was {lost[0].status if lost[0].lost else 'compiling'} when its process ended"
        return Noticed("crash" if crashed else "hangs", f"found in the journal: {how}")
    bad = [
        end
        for end in ends
        if end.status in ("failed", "killed")
        and end.signal not in _CLEAR
        and "KeyboardInterrupt" not in (end.process.uncaught or "")
    ]
    if bad:
        return Noticed("crash", f"found in the journal: {deaths.sentence(bad[0], run.processes)}")
    if len(run.processes) > 1 and len({process.rank for process in run.processes}) > 1:
        return Noticed("ranks", f"found in the journal: {counted(len(run.processes), 'process', 'processes')}")
    if why.limits(run):
        return Noticed("recompiles", f"found in the journal: {why.limits(run)[0]}")
    return Noticed("wrong", "nothing in the journal says otherwise: every graph is judged beside eager")


def triage_symptom(run: Run, symptom: str, found_by: str, *, asked: bool, max_time_s: float, **how: Any) -> RunTriage:
    """Runs the symptom's sequence within the time. `asked`: the user named it; one that was noticed never leaves the
    graphs out, and that ranks differ is then no failure but a note. `how`: what `triage_run` takes. Raises what that
    does.
    """
    began, sequence, looked, verdicts = time.monotonic(), SYMPTOMS[symptom], list[str](), list[Verdict]()
    asking = How(**{name: how[name] for name in How._fields if how.get(name) is not None})

    def take(steps: tuple[Step, ...], graphs: RunTriage | None) -> None:
        for step in steps:
            text, verdict = step(run, graphs, asking)
            looked.append(text)
            if verdict is not None and (asked or step is not ranks):
                verdicts.append(verdict)

    take(sequence.before, None)
    result = RunTriage([], [], [], run=run_address(run))
    if run.graphs() and (sequence.graphs or not asked):
        left = max_time_s - (time.monotonic() - began)
        result = triage_run(
            run, max_time_s=max(left, 1.0), own_nan=symptom == "nan", measured=symptom == "memory", **how
        )
        if symptom == "nan":
            result.verdict = _about_nan(run, result)
    if not result.verdict.failed:
        take(sequence.after, result)
    judged = result.verdict
    convicting = [verdict for verdict in verdicts if verdict.failed]
    if not judged.failed and (convicting or not judged.exit_code):
        judged = (convicting or verdicts or [judged])[0]
    if judged.verdict == "ok" and not run.rows:
        judged = cannot_tell("nothing was compiled in this run").then(record_again(run))
    elif asked and judged.verdict == "ok" and (looked or not result.summary):
        said = " ".join(looked[-1:] if symptom == "slow" else looked[:1])
        judged = msgspec.structs.replace(judged, reason=said.partition(": ")[2].removesuffix("."))
    result.verdict, result.symptom, result.noticed = judged, symptom, found_by
    result.summary = " ".join(text for text in [result.summary, *looked] if text)
    if symptom == "slow":
        result.times = of_run(run)
    result.seconds = time.monotonic() - began
    return result


def _about_nan(run: Run, result: RunTriage) -> Verdict:
    """The verdict on the graphs, with how to go on; right ones only say what they were judged on."""
    verdict = result.verdict
    again = record_again(run, "--when nan")
    if verdict.verdict == "cannot_tell" and not verdict.next:
        return verdict.then(again)
    if verdict.verdict != "ok":
        return verdict
    made_up = any(row.judged and row.inputs != REAL for row in result.graphs)
    on = "inputs that were made up" if made_up else "the recorded inputs"
    return msgspec.structs.replace(verdict, reason=f"no output of a graph is NaN on {on}").then(
        *([again] if made_up else [])
    )
