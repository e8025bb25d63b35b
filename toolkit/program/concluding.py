"""Draws the conclusion from all calls of a program: one record, with its sentences, notes and tables.

Also: runs the repro that was written for a call several times, in fresh processes that see packages installed by pip,
in a folder of PYTHONPATH or for the user, too, and no module of the program's own. Imports no torch.

Also: the drift over steps: how far each step's values are from eager's, from the same start, beside what rounding alone
does to them.

For example: `concluded(program, folder, Judged(), ["python", "train.py"]).verdict.verdict` gives `'ok'`.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.atomic import free_path
from ...dumps.store import open_run
from ...dumps.wording import counted
from ..isolation import launch
from ..isolation.cache import known_seed
from ..isolation.fresh import BUG, GONE, FreshRun, run_many
from ..node_values.seen import size_text
from ..verdicts.ladder_words import kernel_check
from ..verdicts.mismatches import NodeMismatch, next_step, sentence
from ..verdicts.verdict import OK, Verdict, Where, backend_layer, cannot_tell, worst
from ..verdicts.verdict_words import DRAWS, word
from . import records
from .judging import MEANS, JudgedCall

TIMES, LIMIT_S, LEAST_S = 3, 600.0, 60.0
"""LEAST_S: how much of a long limit is kept for the graphs of a call that departs, and for its repro."""
WITHOUT = "--without-fault"
_OVER = "the time was over before all of its runs ended (see --max-time)"


class Repro(msgspec.Struct, frozen=True):
    """The result of running a repro. `says`: "shows" (the failure), "passes" or "none" (not written); `codes`: exit
    codes of all runs (None: over the time limit); `without`: the exit code with --without-fault; `printed`: its
    output."""

    says: str = "none"
    path: str = ""
    codes: tuple[int | None, ...] = ()
    without: int | None = None
    printed: str = ""
    why: str = ""
    modules: bool = False
    interrupted: bool = False

    @property
    def rate(self) -> str:
        """How many runs show the failure, as text: `3 of 3`."""
        return f"{self.codes.count(BUG)} of {len(self.codes)}"

    @property
    def sentence(self) -> str:
        """The sentence about the repro for people."""
        if self.interrupted:
            return f"A repro was written, and interrupted before it was seen to fail: {self.path}."
        if self.says == "none":
            return f"No repro was written: {self.why}."
        modules = " that needs the program's own modules" if self.modules else " that needs torch alone"
        seen = f"{self.path} (fails in fresh processes: {self.rate}"
        if self.says == "shows":
            return f"A repro{modules}: {seen}); {WITHOUT} it passes."
        return f"The repro that was written is no proof: {seen}; {self.why})."

    def plain(self) -> dict[str, Any]:
        """The fields for JSON, flat."""
        return {
            "repro": self.says,
            "repro_path": self.path or None,
            "repro_rate": self.rate,
            "without_fault": self.without,
            "repro_told": self.printed,
            "repro_why": self.why,
        }


def verified(call: records.Call, python: str, until: float = math.inf) -> Repro:
    """Runs the repros that were written for a call, and keeps the one that shows the failure. They run until the time
    `until`."""
    if not call.repro:
        return Repro(why=call.unsaid or "the process ended before it")
    written, folder = Path(call.repro), Path(call.repro).parent
    parts = [part.rename(folder / part.name) for part in written.iterdir()]
    written.rmdir()
    alone, other, modules = folder / records.ALONE, folder / records.WITH_MODULES, folder / records.MODULES
    repro = shown(alone, python, until)
    if repro.says != "shows" and not repro.interrupted and modules.exists():
        repro = shown(other, python, until)
        if repro.says == "shows":
            other.replace(alone)
            return msgspec.structs.replace(repro, path=str(alone), modules=True)
    if repro.says != "shows" and not repro.interrupted and call.unsaid:
        for part in parts:
            shutil.rmtree(part) if part.is_dir() else part.unlink()
        return Repro(why=call.unsaid)
    other.unlink()
    if f'HERE / "{records.MODULES}"' not in alone.read_text(encoding="utf-8"):
        shutil.rmtree(modules, ignore_errors=True)
    return msgspec.structs.replace(repro, path=str(alone))


def shown(program: Path, python: str, until: float = math.inf) -> Repro:
    """Runs the repro once; where it shows the failure, runs it again TIMES - 1 times, and once with nothing compiled.
    An interrupt, or the time `until`, ends all runs."""
    began = time.monotonic()
    user = {name: os.environ[name] for name in os.environ if not name.startswith("GRAPHDBG")}
    folders = user.get("PYTHONPATH", "").split(os.pathsep)
    installed = [folder for folder in folders if folder and any(Path(folder).glob("*.dist-info"))]
    user |= {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(installed)}  # an empty PYTHONPATH counts as unset

    def run(times: int, *flags: str) -> list[FreshRun]:
        limit_s = min(LIMIT_S, max(1.0, until - time.monotonic()))
        return run_many(program, times, *flags, limit_s=limit_s, python=python, seed=known_seed(), user=user)

    try:
        (first,) = run(1)
        if first.code != BUG:
            over = f"{_OVER}: {time.monotonic() - began:.0f} s were left"
            ends = f"it ends with {first.code}" if first.code is not None else over
            last = first.output.strip().splitlines()[-1:] or [ends]
            return Repro("passes", str(program), (first.code,), printed=first.output, why=last[0][:300])
        codes = (first.code, *(other.code for other in run(TIMES - 1)))
        off = run(1, WITHOUT)[0].code
    except KeyboardInterrupt:
        return Repro(path=str(program), why="interrupted", interrupted=True)
    says = "shows" if codes == (BUG,) * TIMES and off == GONE else "passes"
    why = "" if says == "shows" else f"{WITHOUT} it ends with {off}" if off != GONE else "not every run shows it"
    if None in (off, *codes):
        why = _OVER
    return Repro(says, str(program), codes, off, first.output, why)


BLOCKS = "▁▂▃▄▅▆▇█"
FACTOR = 16.0
"""A difference of more than FACTOR times the rounding, at most of the steps, is a fault that acts at every step."""
_SHOWN = 8


class CallSeries(msgspec.Struct):
    """One value of a function over its calls. `differences`: of the last rung from eager, relative; `rounding`: what
    rounding alone does."""

    function: str
    value: str
    calls: list[int]
    differences: list[float]
    rounding: list[float]

    @property
    def beyond(self) -> int:
        """How many steps are far beyond rounding."""
        pairs = zip(self.differences, self.rounding, strict=True)
        return sum(difference > FACTOR * max(noise, 1e-7) for difference, noise in pairs)

    @property
    def acts(self) -> bool:
        """Whether most steps are far beyond rounding."""
        return self.beyond * 2 > len(self.differences)


class Drift(msgspec.Struct):
    """All series, the worst first, and the sentence about them."""

    series: list[CallSeries]
    sentence: str

    @property
    def lines(self) -> list[str]:
        """One line for each of the worst series, with a bar chart: one block per step, one height per factor of ten."""
        shown = {f"{series.function}(): {series.value}": series for series in self.series[:_SHOWN]}
        width = max(map(len, shown), default=0)
        return [f"{name:<{width}}  {_series_line(series)}" for name, series in shown.items()]


def _series_line(series: CallSeries) -> str:
    picture = "".join(map(_block, series.differences))
    return f"{picture}  at most {max(series.differences):.1e}; rounding alone {max(series.rounding):.1e}"


def _block(value: float) -> str:
    at = 0 if value <= 0.0 else round(math.log10(value)) + 8
    return BLOCKS[min(max(at, 0), len(BLOCKS) - 1)]


def drift(calls: Sequence[records.Call]) -> Drift | None:
    """The drift over the calls that were looked at; None where no function has three of them."""
    by_value: dict[tuple[str, str], CallSeries] = {}
    for call in calls:
        for part in ("", "backward"):
            rows: list[Any] = [row for row in call.rows if row.part == part]
            if len(rows) < 2:
                continue
            for value, far in rows[-1].differences.items():
                curve = by_value.setdefault((call.function, value), CallSeries(call.function, value, [], [], []))
                curve.calls.append(call.number)
                curve.differences.append(far)
                curve.rounding.append(rows[0].differences.get(value, 0.0))
    long = [curve for curve in by_value.values() if len(curve.calls) > 2]
    series = sorted(long, key=lambda curve: -statistics.median(curve.differences))
    if not series:
        return None
    series.sort(key=lambda curve: -curve.beyond)
    worst, steps = series[0], counted(max(len(curve.calls) for curve in series), "step")
    if worst.acts or (worst.beyond and any(call.failed for call in calls)):
        off, at = (statistics.median, "most") if worst.acts else (max, worst.beyond)
        text = f"{worst.value} of {worst.function}() is {off(worst.differences):.1e} off at {at} of {steps}"
        text += f", where rounding alone does {max(worst.rounding):.1e}"
        return Drift(series, text + worst.acts * ": a fault that acts at every step")
    most = max(max(curve.differences) for curve in series)
    text = f"over {steps} no value differs by more than rounding alone makes two builds differ (at most {most:.1e})"
    return Drift(series, text)


_ENDED = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that somebody sends to end a program."""
_STALE = "compiled again it agrees, so this call ran code compiled for an earlier call: a guard is missing"
_UNSTEADY = (
    "compiled again it agrees, and nothing was compiled before: what its code leaves changes from run to run (a kernel "
    "that races, say), or the code is from a cache on disk"
)
_OLD = (
    "compiled again it agrees: this call ran code compiled for an earlier call, or code from a cache of torch's, in "
    "memory or on disk, which {without} leaves out"
)
_WITHOUT = "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
_CONSTANTS = (
    "compiled again it agrees: this call ran code compiled for an earlier call, where freezing made constants of the "
    "parameters as they were (torch.compiler.reset() after they change, or no freezing)"
)
_NO_GRAPHS = "options={'triton.cudagraphs': False} in place of the mode"
_OVERWRITTEN = (
    "it reads a result or a gradient of a call that a later one has overwritten, as CUDA graphs do (clone what has to "
    "last; where gradients are summed up, begin with a zeroed .grad and zero_grad(set_to_none=False); or compile with "
    f"{_NO_GRAPHS})"
)
ABOUT = 10.0
"""The factor by which two measures of one difference may disagree."""
_OWN_PATH = "the program's own code gives other results where torch.compiler.is_compiling() is true"
_SHORT = 3
"""How many sentences of a finding go into the verdict's reason."""


class ProgramTriage(msgspec.Struct):
    """The result of `triage -- CMD`. `calls`: those looked at, in order; `counts`: how often each function was called;
    `exit_code`: the program's; `folder`: where the records and recorded graphs are."""

    verdict: Verdict
    calls: list[records.Call]
    counts: dict[str, int]
    command: list[str]
    folder: str
    exit_code: int = 0
    summary: str = ""
    notes: list[str] = []
    seconds: float = 0.0
    at: records.Call | None = None
    drift: Drift | None = None
    repro: Repro = Repro()
    interrupted: bool = False

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        rows = {
            call.key: [msgspec.to_builtins(row) | row.verdict.flat(row=True) for row in call.rows]
            for call in self.calls
        }
        calls = [msgspec.to_builtins(call) | {"rows": rows[call.key]} for call in self.calls]
        record = msgspec.structs.asdict(self) | {"calls": calls, "at": self.at and self.at.key} | self.repro.plain()
        record |= {"rows": rows[self.at.key] if self.at else []}
        return record | {"first_failing": self.at and self.at.failed and self.at.failed.rung} | self.verdict.flat()


def concluded(
    program: records.Program,
    folder: Path,
    graphs: JudgedCall,
    command: list[str],
    code: int = 0,
    hung: str = "",
    late: str = "",
) -> ProgramTriage:
    """The conclusion from all calls, in one record. `command`: empty for a `with` block of a program; `hung`, `late`:
    why the program was ended: a rung over its limit, or the time for everything used up."""
    seen = max((call.number for call in program.calls), default=0) + 1
    recording = recorded(command)
    triaged = ProgramTriage(OK, program.calls, program.counts, command, str(folder), code)
    triaged.notes = list(dict.fromkeys(program.notes))
    if program.missed and program.calls:
        missed = counted(program.missed, "more call that was", "more calls that were")
        triaged.notes.append(f"the time was over (--max-time) before {missed} asked for could be looked at")
    triaged.at = call = records.departing(program)
    rounds = _as_graphs(call, graphs)
    if call is not None and rounds is not None:
        said = "differs as its graphs do" if rounds.verdict == "rounding" else "differs, and its graphs by themselves"
        for row in call.rows:
            as_graphs = Verdict(rounds.verdict, reason=f"{row.value} {said}: {rounds.reason}")
            row.verdict = as_graphs if row.verdict.failed else row.verdict
        triaged.at = call = None
    died = next((candidate for candidate in program.calls if candidate.in_flight), None)
    by_somebody = launch.signal_text(code).removeprefix("signal ") in _ENDED
    later = with_program("triage", command, "--calls", f"{seen}:{min(program.most, seen + 10)}")
    going_on = later if program.most > seen else []
    script = command and (command[0] in ("-m", "-c") or command[0].endswith(".py"))
    plain = ["python", *command] if script else command
    lost = any(candidate.lost for candidate in program.calls)
    blocking = "CUDA_LAUNCH_BLOCKING=1 " if lost else ""  # the line of the program is then that of the kernel
    alone = [f"env {blocking}TORCHDYNAMO_DISABLE=1 {shlex.join(plain)}"] if command else []
    if call is not None:
        triaged.verdict = departs(call, graphs, command)
    elif (
        died is not None
        and (hung or (code > 128 and not by_somebody and not late))
        and died.in_flight not in (("eager", "decomposed") if hung else ("eager",))  # no program runs "decomposed"
    ):
        triaged.at = died
        triaged.verdict = _died(died, folder, hung, code).then(*recording)
    elif not program.calls:
        again = with_program("triage", command) if program.most and not program.missed else []
        steps = alone * (not by_somebody) if code else [*again, *recording[:1]]
        triaged.verdict = cannot_tell(_why_none(program, code)).then(*steps)
    elif code:
        triaged.verdict = _ended(program, died, folder, hung or late, code)
        if not by_somebody or hung or late:
            own = program.raised_in or (hung and died is not None and died.in_flight == "eager")
            with_inputs = [*alone, *recorded(command, "--when", "error")]
            after = with_inputs if lost else recording if died else going_on or alone
            at_limit = program.raised.startswith("FailOnRecompileLimitHit")
            triaged.verdict = triaged.verdict.then(*(recording if at_limit else alone if own else after))
    else:
        agrees, nan = worst(map(_of_call, program.calls)), next((each for each in program.calls if each.nan), None)
        if nan is not None and not agrees.exit_code:
            agrees = agrees.said_too(f"{nan.nan} of {nan.place} holds NaN in eager itself")
            going_on = [*(alone if nan.graphless else recorded(command, "--when", "nan")), *going_on]
        agrees = agrees.said_too(_OWN_PATH) if _path(program.calls) else agrees
        judged = any(call.judged for call in program.calls)
        triaged.verdict = agrees.then(*(recording if agrees.exit_code or not judged else going_on))
        if rounds is not None:
            triaged.verdict = msgspec.structs.replace(triaged.verdict, workaround=rounds.workaround, next=rounds.next)
    if code and call is not None:
        ours = hung or late
        triaged.notes.append(f"the program was ended: {ours}" if ours else f"the program itself ended with {_by(code)}")
    triaged.drift = drift(program.calls)
    triaged.summary = _summary(triaged, graphs)
    return triaged


def _as_graphs(call: records.Call | None, graphs: JudgedCall) -> Verdict | None:
    """The verdict on the graphs of a departing call where it explains the departure: with the call's inputs and beside
    a float64 run (which the call itself lacks) they differ by rounding alone, and about as much as the call; or eager
    does not repeat them, though it repeated the call. Else None."""
    row, judged = call.failed if call is not None else None, graphs.verdict
    if call is None or row is None or judged is None or call.operator is not None:
        return None
    if judged.verdict not in ("rounding", "nondeterministic"):
        return None
    in_graphs = call.fresh == "departs" and row.rung in records.BACKENDS and row.rung not in MEANS
    numbers = row.verdict.kind in ("wrong_numbers", "nan")
    elements = graphs.decided and row.verdict.kind == "nan"  # a NaN row's error does not count elements
    as_much = elements or judged.verdict == "nondeterministic" or graphs.size >= (row.error or 0.0) / ABOUT
    return judged if in_graphs and numbers and as_much else None


def with_program(verb: str, command: Sequence[str], *flags: str) -> list[str]:
    """The graphdbg command that applies `verb` to the program; empty for a `with` block of a program."""
    return [shlex.join(["graphdbg", verb, *flags, "--", *command])] if command else []


def recorded(command: Sequence[str], *flags: str) -> list[str]:
    """The commands that record the program and judge its recorded graphs; empty for a `with` block of a program."""
    run = str(free_path("graphdbg-run", bare=False))
    record = with_program("dump", command, *flags, "-o", run)
    return [*record, f"graphdbg triage {run} --trust"] if record else []


def _by(code: int) -> str:
    return launch.signal_text(code) if code > 128 else f"code {code}"


def _ended(program: records.Program, died: records.Call | None, folder: Path, hung: str, code: int) -> Verdict:
    """The verdict on a program that ended with an error though no call departs: where it ended, and whether eager
    raises the same."""
    if (lost := next((call for call in program.calls if call.lost), None)) is not None:
        return cannot_tell(f"{lost.place}: {lost.why}; what the program did then says nothing")
    raising = next((call for call in program.calls if call.key == program.raised_in and call.said), None)
    if raising is not None:
        return cannot_tell(
            f"the program raises, and eager raises the same in {raising.place}, so the compiler is not at fault: "
            f"{raising.said.rstrip('.')}"
        )
    if died is not None and (hung or not program.raised):
        ended = f"{_by(code)} ended the program" if code > 128 else f"the program ended with {_by(code)}"
        how = hung or f"{died.in_flight} was at work when {ended}"
        how += ", which a compiled program does not run" if died.in_flight == "decomposed" else ""
        return cannot_tell(f"{died.place}: {how}{records.stopped_at(folder, died.pid)}")
    raised = f" ({program.raised})" if program.raised else ""
    if lacking := next((row.verdict.reason for call in program.calls for row in call.rows if row.verdict.skipped), ""):
        return cannot_tell(f"the program itself ended with {_by(code)}: {lacking}")
    rest = f"nothing that was compared departs from eager{_path(program.calls)}"
    if "of CUDAGraphs that has been overwritten" in raised:
        return cannot_tell(
            f"the program itself ended with {_by(code)}: {_OVERWRITTEN}; {rest}, with CUDA graphs off beside it"
        )
    if any(call.cuda_graphs for call in program.calls):
        rest += f", with CUDA graphs off beside it: see whether it ends so with {_NO_GRAPHS}, too"
    return cannot_tell(f"the program itself ended with {_by(code)}{raised}; {rest}")


def _why_none(program: records.Program, code: int) -> str:
    if program.missed:
        return "the time was over (--max-time) before a call could be looked at"
    if program.most:
        return f"no call was looked at: --calls names later ones than the {program.most} that a function had at most"
    none = "no call of something given to torch.compile was seen"
    if code:
        return f"{none} before the program ended with code {code}"
    if program.ended:
        return f"{none}: torch.compile was never used, or what it returned was never called"
    return f"{none}: no process that imports torch lived to say so, or its Python has no graphdbg"


def _died(call: records.Call, folder: Path, hung: str, code: int) -> Verdict:
    layer = backend_layer(records.BACKENDS.get(call.in_flight, ""))
    how = hung or f"{call.in_flight} ended the process by {launch.signal_text(code)}"
    text = f"{call.place}: {how}{records.stopped_at(folder, call.pid)}"
    return Verdict("fails", "hang" if hung else "signal", "compiler", layer, text, Where(line=_line(call)))


def _line(call: records.Call) -> str:
    return f"{Path(call.file).name}:{call.line}"


def departs(call: records.Call, graphs: JudgedCall, command: Sequence[str]) -> Verdict:
    """The verdict on a departing call, combined with the verdict on its graphs."""
    row = call.failed
    assert row is not None
    own = row.rung == records.PROGRAM
    judged, again = graphs.verdict, with_program("triage", command)
    reason = f"{call.place}: {row.verdict.reason}, " + (
        "only in the program's own call" if own else f"from {row.rung} on"
    )
    last = next(other for other in reversed(call.rows) if other.part == row.part)
    if last.verdict.failed and last.verdict.kind != row.verdict.kind:  # the last rung's failure is what the user sees
        reason += f" (under {last.rung}: {last.verdict.reason})"
    where = Where(line=row.verdict.where.line if row.verdict.where else _line(call), name=row.value)
    verdict = msgspec.structs.replace(row.verdict, reason=reason, where=where)
    if call.operator is not None:
        reason += f". The fault is in an operator of the run's own: {sentence(call.operator)} {_advice(call.operator)}"
        where = Where(call.operator.name, line=call.operator.line or where.line, name=row.value)
        return msgspec.structs.replace(
            verdict, fault="custom_op", layer=None, reason=f"{reason}, then judge it again", where=where
        ).then(*again)
    if judged is not None and judged.failed and not own and row.rung != "dynamo":
        at = judged.where or Where()
        graph, detail = _of_graph(graphs, judged)
        around = (
            f"; the fault is in {MEANS[row.rung]}, and its graph {graph} shows it: {detail}"
            if row.rung in MEANS
            else ""
        )
        reason += around or "; " + " ".join(filter(None, ("its graph", graph, f"fails: {detail}")))
        where = Where(at.node, at.graph, at.line or _line(call), row.value)
        layer = row.verdict.layer if row.rung != "inductor" else judged.layer or row.verdict.layer
        steps = judged.next
        if not steps and judged.fault == "custom_pass" and again:  # graphdbg's own process lacks the pass
            reason += ". Correct it in the program, then judge it again"
            steps = again
        elif not steps and graphs.run:
            steps = [shlex.join(["graphdbg", "ls", os.path.relpath(graphs.run)])]
        known = {"fault": judged.fault or verdict.fault, "workaround": judged.workaround, "next": steps}
        return msgspec.structs.replace(verdict, reason=reason, where=where, layer=layer, **known)
    minify, further = with_program("minify", command) if own or row.rung in records.BACKENDS else [], list[str]()
    if call.lost:
        minify, further = [], recorded(command, "--when", "error")
    elif own and call.run and (check := kernel_check(open_run(call.run).graphs())):
        further = [check]
    if call.fresh == "agrees" and records.FROZEN in call.notes and not call.first and row.rung not in MEANS:
        reason += f"; {_CONSTANTS}"
    elif call.fresh == "agrees" and (own or row.rung in MEANS):
        reason += f"; {_UNSTEADY if own and call.first else _STALE}"
        by = [
            note.removesuffix(records.FILTERED).rpartition(" ")[2]
            for note in call.notes
            if note.endswith(records.FILTERED)
        ]
        reason += f", maybe one that {' or '.join(by)} leaves out: try without it" if by else ""
    elif row.rung in MEANS:
        right = judged is not None and judged.verdict in ("ok", "rounding")
        reason += f"; the fault is in {MEANS[row.rung]}" + (
            " (its saved graphs are right by themselves)" if right else ""
        )
        if judged is not None and judged.failed:
            reason += "; another failure, of its graph {}: {}".format(*_of_graph(graphs, judged))
            further = list(judged.next)
    elif row.rung not in records.BACKENDS and not own:
        right = [other.rung for other in call.rows if other.part == row.part and other.rung in records.BACKENDS]
        reason += f"; the fault is in the backend {row.rung} itself, {' and '.join(right)} agree with eager"
    elif call.fresh == "agrees":
        reason += f"; {_OLD.format(without=_WITHOUT)}"
        further = [f"{_WITHOUT} {line}" for line in again]
    elif judged is not None:
        state = "were judged right" if judged.verdict in ("ok", "rounding") else f"could not be judged: {judged.reason}"
        state += " (in a process without what the program's own script changes in torch)" if graphs.apart else ""
        reason += f"; compiled again it still differs; its saved graphs {state}"
    elif call.recorded:
        reason += f"; {call.recorded}"
    verdict = msgspec.structs.replace(verdict, reason=reason).then(*minify)
    return msgspec.structs.replace(verdict, next=[*verdict.next, *further])


def _of_graph(graphs: JudgedCall, judged: Verdict) -> tuple[str, str]:
    """The id of the failing graph, and a sentence how it fails."""
    at = judged.where.graph if judged.where is not None else ""
    return at.rpartition("/run-")[2].partition("/")[2] or at, _shortened(graphs.op or judged.reason)


def _advice(finding: NodeMismatch) -> str:
    step = next_step(finding)
    return step[:1].upper() + step[1:].partition(";")[0].removesuffix(", then check again")


def _shortened(sentence: str) -> str:
    """The sentence on what is to blame, without compile counts, workarounds and times; at most _SHORT parts."""
    parts = re.split(r"\. (?=[A-Z0-9])", sentence.strip().rstrip("."))
    kept = [part for part in parts if not part.startswith("Work around") and not re.match(r"\d+ compiles? \(", part)]
    return ". ".join(kept[:_SHORT])


def _of_call(call: records.Call) -> Verdict:
    verdict = worst(row.verdict for row in call.rows)
    if call.judged:
        return verdict
    if call.why or verdict.verdict != "nondeterministic":
        lacking = next((row.verdict.reason for row in call.rows if row.verdict.skipped), "")
        verdict = cannot_tell(call.why or lacking or "none of its results could be compared")
    return msgspec.structs.replace(verdict, reason=f"{call.place}: {verdict.reason}")


def _path(calls: Sequence[records.Call]) -> str:
    """A suffix to "eager": that eager was made to take the path of compiled code; "" where it was not."""
    as_compiled = any(records.AS_COMPILED in call.notes for call in calls)
    return as_compiled * " on the path of torch.compiler.is_compiling(), but its results differ without"


def _summary(triaged: ProgramTriage, graphs: JudgedCall) -> str:
    judged = [call for call in triaged.calls if call.judged]
    functions = counted(len({(call.function, call.file, call.line) for call in triaged.calls}), "function")
    looked = counted(len(triaged.calls), "call")
    if len(judged) == len(triaged.calls):
        of = f"{looked} of {functions} {'was' if len(judged) == 1 else 'were'} judged"
    else:
        of = f"{len(judged)} of the {looked} looked at, of {functions}, {'was' if len(judged) == 1 else 'were'} judged"
    seen = ", ".join(f"{name.rpartition(' ')[0]}() {count}" for name, count in triaged.counts.items() if count)
    calls = f" (calls in all: {seen})" if seen else ""
    if triaged.verdict.failed:
        steps = f" Step by step: {triaged.drift.sentence}." if triaged.drift is not None else ""
        return f"{triaged.verdict.reason}.{steps} {of}{calls}."
    if triaged.verdict.verdict in ("ok", "rounding"):
        replicas = any(records.REPLICA in call.notes for call in judged)
        between = ", and what DistributedDataParallel does between processes" if replicas else ""
        rest = f"Other calls, and code that is not compiled{between}, were not judged"
        rest += f". Step by step: {triaged.drift.sentence}" if triaged.drift is not None else ""
        drawn = [row for call in judged if records.DRAWN in call.notes for row in call.rows if row.rung == "inductor"]
        rest += f". {DRAWS}" if drawn else ""
        but = ", except for what rounding may do" if triaged.verdict.verdict == "rounding" else ""
        but += _path(judged)
        backward = any(row.part for call in judged for row in call.rows)
        what = "Results, gradients and what is written" if backward else "Results and what is written (no gradients)"
        return f"{what} agree with eager{but}: {of}{calls}. {rest}."
    return f"Cannot tell: {triaged.verdict.reason}. {of}{calls}."


def table_rows(triaged: ProgramTriage) -> list[tuple[str, ...]]:
    """Table rows for people: each rung of the departing call; without one, of each call looked at its largest
    difference per rung."""
    if triaged.at is not None:
        part = triaged.at.failed.part if triaged.at.failed else ""
        rows = [row for row in triaged.at.rows if row.part == part]
        return [
            (row.rung, word(row.verdict), size_text(row.error), size_text(row.tolerance), row.value, row.size)
            for row in rows
        ]
    rows = []
    for call in triaged.calls:
        rungs = [row for row in call.rows if row.rung in records.BACKENDS and not row.verdict.skipped]
        largest = {row.rung: max(other.error or 0.0 for other in rungs if other.rung == row.rung) for row in rungs}
        errors = " ".join(f"{rung} {size_text(value)}" for rung, value in largest.items())
        raises = f"eager raises {call.raises}" if call.raises else ""
        number = str(call.number) + (f" (rank {call.rank})" if call.rank >= 0 else "")
        most = max(rungs, key=lambda row: row.error or 0.0, default=None)
        moved = size_text(most.rounding) if most is not None else ""
        beside = [f"{most.value}, which rounding alone may move by {moved}"] if most is not None and moved else []
        said, notes = call.why or raises or errors, "; ".join(dict.fromkeys([*beside, *call.notes]))
        rows.append((f"{call.function}()", word(_of_call(call)), number, _line(call), said, notes))
    return rows
