"""The symptoms of a run, and the engines that examine each: one table, used by `triage RUN --symptom S` and by a triage
that infers the symptom from the journals.

A step examines one thing, says what it examined, and returns a verdict or None. The run's verdict is the first failure
of a step, else the graphs' (which a step never improves), else a step's `cannot_tell`. Imports no torch.

>>> noticed(open_run("myrun")).symptom
'wrong'
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, NamedTuple

import msgspec

from ...dumps import deaths, why
from ...dumps.diff.pair import GraphGroup, pair_view, pairs
from ...dumps.diff.pair import ranks as rank_pairs
from ...dumps.errors import GraphdbgError
from ...dumps.journal import IN_FLIGHT
from ...dumps.kernels import WHOLE
from ...dumps.sidecar import Peak, peak
from ...dumps.store import Run, SavedGraph
from ...dumps.why.frequent import causes as causes_of
from ...dumps.why.model import Compile
from ...dumps.why.times import function_of, keep_steady, of_run
from ...dumps.why.wording import innermost
from ...dumps.wording import counted, error_line, shortened, size_text
from ..isolation import ForkServer, opened
from ..isolation.imports import option_words
from ..live.process_groups import groups_of
from ..replaying.after_failure import triggered
from ..replaying.replay import How, replay, slowed
from ..verdicts.ladder_records import REAL
from ..verdicts.ladder_words import address, record_again, run_address, whole_program
from ..verdicts.own_passes import HOOKS, left_out, passes
from ..verdicts.verdict import NOT_JUDGED, ROUNDING, Verdict, Where, cannot_tell
from ..verdicts.verdict_words import RANKS, memory_needed
from .apart import apart
from .ladder import DEFAULT_LIMIT_S, Steady
from .ladder import steady as measure
from .ranking import GraphRow, RunTriage
from .run import triage_run

Looked = tuple[str, Verdict | None]
HOW = How()

STEADY_S = 120.0
"""Seconds after which no further graph's steady state is measured."""
SLOW_S, NODE_S = 60.0, 0.5
"""A compile is slow that takes longer than SLOW_S, and than NODE_S per node, not counting other work of the machine."""
OFTEN = 3
"""From this many recompiles of a function on they count as what makes a program slow."""

MORE_MEMORY, FREE_BYTES = 1.5, 256 << 20
"""Compiled code that needs MORE_MEMORY times eager's memory plus FREE_BYTES is reported."""


def recompiles(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Finds the guard that failed most often. A single recompile that makes a size dynamic is normal, and not
    counted."""
    causes, compiles = why.repeated(run), _compiles(run)
    if not causes:
        again = sum(compiled.kind == "recompile" for compiled in compiles)
        sizes = f"compiled again for a size that became variable: {again}" if again else "none was compiled again"
        return f"Looked at: {counted(len(compiles), 'compile')} of functions; {sizes}.", None
    worst = causes[0]
    place = worst.place and f"{PurePath(worst.place.file).name}:{worst.place.line}"
    text = f"{worst.function} was compiled again {counted(worst.count, 'time')}: {worst.text}"
    if worst.limit:
        text += f"; {worst.limit} is reached there: calls that fit no compiled version run uncompiled"
        text += ", and raise with fullgraph=True"
    where = Where(graph=f"{run_address(run)}/{worst.id}" if worst.id else "", line=place or "", name=worst.guard)
    verdict = Verdict("fails", "slow_compile", "model", reason=text, where=where)
    others = f" {counted(len(causes) - 1, 'other cause')}." if len(causes) > 1 else ""
    return f"{text}.{others}", verdict.then(_of_run(run, "ls", "--why"))


def _compiles(run: Run) -> list[Compile]:
    functions = [function for process in why.of_run(run).processes for function in process.functions]
    return [compiled for function in functions for compiled in function.compiles]


def often(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """As `recompiles`, but with a verdict only where they are frequent enough to slow a program down."""
    text, verdict = recompiles(run)
    worst = next(iter(why.repeated(run)), None)
    return text, verdict if worst is not None and (worst.limit or worst.count >= OFTEN) else None


def steady(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Measures executions of Dynamo's graphs beside eager; the verdict is on a graph slower than eager, else on a slow
    compile.
    """
    recorded = {row.id: row.seconds or 0.0 for row in run.rows}
    times: dict[str, Steady] = {}
    began = time.monotonic()
    with opened(None) as server:
        for name in sorted(_runnable(run, graphs), key=lambda name: -recorded[name]):
            if time.monotonic() - began < STEADY_S and (measured := measure(run.graph(name), server, how)) is not None:
                times[name] = measured
        compiled = _slow_compile(run, times, server)
    keep_steady(run, {name: (timing.compiled_s, timing.eager_s) for name, timing in times.items()})
    if not times:
        return "No graph's steady state was measured.", None
    name, worst = max(times.items(), key=lambda item: item[1].compiled_s - item[1].eager_s)
    both = f"{1000 * worst.compiled_s:.2f} ms compiled, {1000 * worst.eager_s:.2f} ms in eager"
    unsure = "" if worst.clear else ", which vary too much to say which is faster"
    text = f"Measured: one execution of {counted(len(times), 'graph')} in the steady state"
    text += f"; the slowest beside eager is {name}: {both}{unsure}."
    if not worst.slow:
        return text, compiled
    reason = f"{name} takes {both} (medians of {worst.rounds} alternating runs)"
    where = _at(run, name)
    verdict = Verdict("fails", "slow", "compiler", "inductor", reason, where).then(_of_run(run, "ls", "--time"))

    def quick(saved: SavedGraph, plain: How) -> str:
        with opened(None) as server:
            without = measure(saved, server, plain)
        return f"takes {1000 * without.compiled_s:.2f} ms" if without is not None and not without.slow else ""

    return _own_pass(run, name, text, verdict, how, quick)


def _runnable(run: Run, graphs: RunTriage | None) -> list[str]:
    """Ids of the Dynamo graphs of compiles that were judged, and that do not crash, die or hang."""
    judged = [row for row in (graphs.graphs if graphs else []) if row.judged]
    compiles = {row.id.rpartition("/")[0] for row in judged}
    compiles -= {row.id.rpartition("/")[0] for row in judged if row.verdict.kind in ("hang", "signal", "crash")}
    outermost = [row.id for row in run.rows if row.saved and row.stage in _OUTERMOST]
    return [name for name in outermost if name.rpartition("/")[0] in compiles]


_AROUND_PASSES = (
    ("pre_grad", "dynamo", "pre_grad"),
    ("joint_passed", "joint", "joint_passed"),
    ("post_grad", "forward", "post_grad_forward"),
    ("post_grad", "inference", "post_grad_inference"),
    ("post_grad", "backward", "post_grad_backward"),
)
"""Stage of a pass setting -> the stages before and after its passes."""


def _own_pass(
    run: Run, name: str, text: str, verdict: Verdict, how: How, right: Callable[[SavedGraph, How], str]
) -> tuple[str, Verdict]:
    """Text and verdict, with a user's pass at fault where the graph is right without the imports that bring it in; the
    next command then shows the pass that changed most. `right`: measures the graph, and returns words, or "" where it
    is still wrong.
    """
    saved = run.graph(name)
    users = passes(saved, all=True) if how.imports else []
    without = right(saved, how._replace(imports=(), anyway=True)) if users else ""
    if not without:
        return text, verdict
    without = f"{name} {without} without the run's own pass {' and '.join(user.text for user in users)}"
    text = f"{text.removesuffix('.')}; {without}."
    compiled, hooks = name.rpartition("/")[0], {user.hook for user in users}
    nodes = {row.stage: row.nodes or 0 for row in run.rows if row.saved and row.id.rpartition("/")[0] == compiled}
    sides = [both for stage, *both in _AROUND_PASSES if hooks.intersection(HOOKS[stage]) and nodes.keys() >= {*both}]
    sides.sort(key=lambda side: abs(nodes[side[1]] - nodes[side[0]]))
    commands = list(verdict.next)
    if sides:
        before, after = sides[-1]
        shown = shlex.join(["graphdbg", "diff", *(f"{run_address(run)}/{compiled}/{stage}" for stage in sides[-1])])
        commands.insert(0 if nodes[before] != nodes[after] else len(commands), shown)
    reason = f"{verdict.reason}; {without}"
    blamed = msgspec.structs.replace(verdict, fault="custom_pass", layer=None, reason=reason)
    return text, blamed.then(*commands)


def _slow_compile(run: Run, times: dict[str, Steady], server: ForkServer) -> Verdict | None:
    """Whether the longest compile, here or in the run, is slow, or the machine was; None where neither."""
    rows = [row for row in run.rows if row.stage in _OUTERMOST and row.saved]
    here = {name: item.compile_s for name, item in times.items()}
    longest = max(rows, key=lambda row: max(row.seconds or 0.0, here.get(row.id, 0.0)), default=None)
    if longest is None:
        return None
    then, address = longest.seconds or 0.0, f"{run_address(run)}/{longest.id}"

    def faster(seconds: float) -> str:
        return shlex.join(["graphdbg", "minify", address, "--slower-than", f"{seconds / 2:.0f}"])

    if longest.id not in times:
        if then < SLOW_S:
            return None
        unmeasured = f"{longest.id} took {then:.0f} s to compile in the run, and was not measured here"
        return cannot_tell(unmeasured).then(faster(then))
    took, nodes = times[longest.id].compile_s, len(run.graph(longest.id).record.graph.nodes)
    if took < SLOW_S or (own := took / slowed(server, nodes)) < max(SLOW_S, NODE_S * nodes):
        return None
    reason = f"{longest.id} takes {own:.0f} s to compile for {counted(nodes, 'node')} ({then:.0f} s in the run)"
    verdict = Verdict("fails", "slow_compile", "compiler", "inductor", reason, Where(graph=address))
    return verdict.then(faster(own))


def slow(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Sums up compile seconds from the journal."""
    rows = [row for row in run.rows if row.seconds is not None and row.stage in _OUTERMOST]
    longest = max(rows, key=lambda row: row.seconds or 0.0, default=None)
    breaks = sum(len(compiled.breaks) for compiled in _compiles(run))
    total = sum(row.seconds or 0.0 for row in rows)
    text = f"Looked at: {total:.1f} s in AOTAutograd and Inductor in {counted(len(rows), 'compile')}"
    text += f" (the longest {longest.seconds or 0.0:.1f} s, {longest.id})" if longest is not None else ""
    return f"{text}, {counted(breaks, 'graph break')}.", None


_OUTERMOST = ("dynamo", "compiled_autograd")


def _at(run: Run, name: str) -> Where:
    """The place of a graph: its function and line, or those of its compile."""
    function, _, line = function_of(run, name).rpartition(", ")
    return Where(function, f"{run_address(run)}/{name}", line)


def waits(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Whether a rank runs a graph that no other rank runs: it waits for ranks that got further, ended, or recorded
    nothing."""
    waiting = [row for row in run.rows if row.status == "running" and (row.lost or row.since)]
    others = {row.process for row in run.rows} - {row.process for row in waiting}
    if waiting and not others and (absent := _absent(run, waiting[0].id)):
        text = f"rank {waiting[0].rank} was running {waiting[0].id} when it ended, and waits for {absent}"
        return f"{text}.", cannot_tell(f"{text}, and the run holds no graph of it").then(_of_run(run, "ls"))
    if not waiting or not others or len(run.processes) < 2:
        text = "Looked at: at the end no rank was alone in the first execution of a graph"
        return f"{text}; later executions are not in the journal.", None
    row = waiting[0]
    rest = counted(len(others), "other process was", "other processes were")
    text = f"rank {row.rank} was running {row.id} when it ended, and {rest} not"
    reason = f"{text}: it waits for work that the others do not do"
    verdict = Verdict("fails", "hang", "model", reason=reason, where=_at(run, row.id))
    return f"{text}.", verdict.then(_of_run(run, "diff"))


def _absent(run: Run, name: str) -> str:
    """The ranks that a graph communicates with but that recorded nothing, in words; "" where all are present."""
    wanted = {int(rank) for group in groups_of(run.graph(name).record).values() for rank in group["ranks"]}
    missing = sorted(wanted - {process.rank for process in run.processes})
    return f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing))}" if missing else ""


_ITS_OWN = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
"""Signals caused by a process itself."""


def in_flight(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Finds the graph that was being compiled or run at the end, for a run in which judging it again shows no
    failure."""
    rows = [row for row in run.rows if row.lost or row.status in IN_FLIGHT or "KeyboardInterrupt" in (row.error or "")]
    if not rows and (compile := _ending_compile(run)):
        return f"Looked at: {compile}.", None
    if not rows:
        text = "Looked at: no graph was being compiled, or run for the first time, when the program ended."
        return text, _outside(run)
    row = rows[0]
    state = row.status if row.lost or row.status in IN_FLIGHT else "compiling"
    text = f"{row.id} was {state} when its process ended" if row.lost or row.error else f"{row.id} is {state}"
    end = next((end for end in deaths.endings(run.processes) if end.process.name == row.process), None)
    why = "it was slow, or what it waited for is outside the graph"
    if end is not None and end.signal in _ITS_OWN:
        text += f" by {end.signal}"
        why = "the inputs of the run, or what is outside the graph, made it fail there"
    verdict = cannot_tell(f"{text}, but here it ends and is right: {why}")
    return f"{text}.", verdict.then(whole_program(run))


def _ending_compile(run: Run) -> str:
    """The function whose compile raised the error that ended a process, in words; "" where none did."""
    ends = [(process.uncaught or "").partition(" raised:\n") for process in run.processes]
    raised = tuple(error for first, _, inner in ends for error in (first, inner) if error)
    for compiled in reversed(_compiles(run)):
        if compiled.failure is None or not any(error.startswith(compiled.error) for error in raised):
            continue
        if compiled.graphs:
            return f"the compile of {compiled.function} ({compiled.id}) raised the error that ended the program"
        inner = innermost(compiled.failure.stack)
        place = f" at {PurePath(inner.file).name}:{inner.line}" if inner else ""
        traced = f"as it traced {compiled.function} ({compiled.id}), before there was a graph"
        return f"Dynamo raised the error{place}, {traced}"
    return ""


def _outside(run: Run) -> Verdict | None:
    """The verdict on a program that was killed while no graph was in flight: it hung outside graphs, or in a later
    execution of one, which the journal does not record.
    """
    killed = [end for end in deaths.endings(run.processes) if end.status in ("killed", "died")]
    if not killed:
        return None
    reason = f"{deaths.sentence(killed[0], run.processes)}, and no graph was being compiled or run for the first time: "
    reason += "the program was outside of graphs, or in a later execution of a graph"
    return cannot_tell(reason).then(whole_program(run))


def died(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Finds processes that ended badly, for a run in which no graph fails by itself."""
    bad = [end for end in deaths.endings(run.processes) if end.status in ("failed", "killed", "died")]
    if not bad:
        return f"Looked at: {counted(len(run.processes), 'process', 'processes')}, which ended well.", None
    text = deaths.sentence(bad[0], run.processes)
    outside = _ending_compile(run) or "the cause is outside of them, or in a later execution of one"
    reason = f"{text}; no graph fails by itself: {outside}"
    return f"{text}.", cannot_tell(reason).then(whole_program(run))


def memory(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Finds the graph whose compile and first run need most memory beyond eager's."""
    rows = [row for row in (graphs.graphs if graphs else []) if row.needed_bytes]
    known, began = {row.id.rpartition("/")[0] for row in rows}, time.monotonic()
    for name in _runnable(run, graphs):  # compiles whose stages differed were not compiled
        if name.rpartition("/")[0] not in known and time.monotonic() - began < STEADY_S:
            rows += _needed(run.graph(name), how)
    if not rows:
        return "Looked at: no graph's memory was measured.", None
    worst = max(rows, key=lambda row: row.needed_bytes - row.eager_bytes)
    eagers = size_text(worst.eager_bytes) if worst.eager_bytes else "too little to measure"
    both = memory_needed(worst.needed_bytes, worst.eager_bytes, worst.id)
    text = f"Looked at: the memory of {counted(len(rows), 'graph')}; at most {both}."
    inner, planned = _planned(run, worst.id)
    buffer, largest = "", planned.largest
    if largest is not None:
        buffer = f"{largest.name} ({size_text(largest.bytes)}, written by {largest.by or 'nothing'})"
        held = f"at least {size_text(planned.bytes)} of buffers at once, the largest {buffer}"
        text += f" The code of {inner} holds {held}."
    most = MORE_MEMORY * worst.eager_bytes + FREE_BYTES
    if max(worst.needed_bytes, planned.bytes) <= most:
        return text, None
    if largest is not None and planned.bytes > most:
        reason = f"the generated code of {inner} holds {size_text(planned.bytes)} at once, the largest buffer {buffer}"
        reason += f"; eager needs {eagers} in all"
        where = Where(largest.name, f"{run_address(run)}/{inner}")
        verdict = Verdict("fails", "memory", "compiler", "inductor", reason, where).then(_smaller(worst))
        mine, flags = left_out(run) if not how.imports and passes(run.graph(worst.id), all=True) else ("", "")
        if mine:
            reason += f"; {mine} ran when this code was made, and runs here only with {flags}"
            verdict = msgspec.structs.replace(verdict, fault=None, layer=None, reason=reason, next=[])
            return text, verdict.then(_of_run(run, "triage", *flags.split()))
        return _own_pass(run, worst.id, text, verdict, how, _enough)
    if _too_much(worst):
        reason = f"{both}, {size_text(worst.control_bytes)} for those of a harmless graph with as many nodes"
        where = _at(run, worst.id)
        verdict = Verdict("fails", "memory", "compiler", "inductor", reason, where).then(_smaller(worst))
        return _own_pass(run, worst.id, text, verdict, how, _enough)
    return text, cannot_tell(f"{both}: a harmless graph of as many nodes needs as much here").then(_smaller(worst))


def _needed(saved: SavedGraph, how: How) -> list[GraphRow]:
    """Measures a graph's memory: a list with its row, empty where it cannot be run."""
    try:
        outcome = replay(saved, **how._replace(measured=True, anyway=True)._asdict(), outputs=False)
    except GraphdbgError:
        return []
    sizes = {name: getattr(outcome, name) for name in ("needed_bytes", "eager_bytes", "control_bytes")}
    row = GraphRow("inductor", outcome.verdict, id=saved.id, stage=saved.stage, address=address(saved), **sizes)
    return [row] if row.needed_bytes else []


def _too_much(row: GraphRow) -> bool:
    return row.needed_bytes > MORE_MEMORY * (row.eager_bytes + row.control_bytes) + FREE_BYTES


def _enough(saved: SavedGraph, how: How) -> str:
    """A phrase with what the graph needs, where that is not too much; else ""."""
    return next((f"needs {size_text(row.needed_bytes)}" for row in _needed(saved, how) if not _too_much(row)), "")


def _planned(run: Run, name: str) -> tuple[str, Peak]:
    """Of the graphs of a compile, the one whose generated code holds most buffers at once, and how much."""
    compiled = name.rpartition("/")[0]
    peaks: list[tuple[str, Peak]] = []
    for row in run.rows:
        if row.saved and row.id.rpartition("/")[0] == compiled:
            codes = [file for file in run.graph(row.id).code_files() if file.name == WHOLE]
            peaks += [(row.id, peak(file.read_text())) for file in codes]
    return max(peaks, key=lambda item: item[1].bytes, default=("", Peak(0, [])))


def _smaller(worst: GraphRow) -> str:
    """The command that minifies the graph with the highest memory need."""
    half = (worst.needed_bytes + worst.eager_bytes) // 2
    return shlex.join(["graphdbg", "minify", worst.address, "--memory-over", f"{half >> 20}M"])


def ranks(run: Run, graphs: RunTriage | None = None, how: How = HOW) -> Looked:
    """Finds the first graph that differs between the first rank and another one."""
    part = GraphGroup(run_address(run), run, run.rows, "run")
    if len(part.processes()) < 2:
        return "Looked at: only one process recorded graphs, so there are no ranks to compare.", None
    compared = [(pair_view(pair, rank=True), *both) for both in rank_pairs(part) for pair in pairs(*both)]
    differs = [item for item in compared if item[0].verdict in ("differs", "only_a", "only_b")]
    unread = [view for view, _, _ in compared if view.verdict == "unreadable"]
    processes = counted(len(part.processes()), "process", "processes")
    text = f"Looked at: {counted(len(compared), 'pair')} of graphs of {processes}"
    if unread and not differs:
        return f"{text}.", cannot_tell(f"graphs cannot be read: {unread[0].notes[0]}").then(_of_run(run, "diff"))
    if not differs:
        return f"{text}, which are equal.", None
    difference = apart(run, *differs[0])
    kind = "hang" if difference.collective and deaths.ended_badly(run.processes) else "metadata"
    detail = RANKS if kind == "metadata" else ""
    verdict = Verdict("fails", kind, "model", reason=difference.reason, where=difference.where, detail=detail)
    return f"{text}; {len(differs)} differ: {difference.reason}.", verdict.then(difference.command)


def _uncompiled(run: Run) -> Verdict:
    """The verdict on a run without graphs: what kept its functions from being compiled, from the journal."""
    known = [cause for process in why.of_run(run).processes for cause in causes_of(process)]
    if not known:
        return cannot_tell("nothing was compiled in this run").then(record_again(run))
    place = known[0].place
    at = f" ({PurePath(place.file).name}:{place.line})" if place is not None else ""
    return cannot_tell(f"nothing was compiled in this run: {known[0].text}{at}").then(_of_run(run, "ls", "--why"))


def _of_run(run: Run, *words: str) -> str:
    """A graphdbg command applied to the run."""
    return shlex.join(["graphdbg", words[0], run_address(run), *words[1:]])


Step = Callable[["Run", RunTriage | None, How], tuple[str, Verdict | None]]
"""Examines a run, given the triage of its graphs (None before they are judged) and the settings; returns a sentence on
what was examined, and a verdict or None."""


class Sequence(NamedTuple):
    """The steps for a symptom: those before the graphs are judged, whether graphs are judged, and those after."""

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


_HANGS_S = 60.0
"""Seconds below which no compile is said to hang."""
_CLEAR = ("SIGTERM", "SIGINT", "SIGHUP")
"""Signals by which users and schedulers end programs that did not fail."""


def _at_limit(uncaught: str | None) -> bool:
    """Whether a process's uncaught error is the one that torch raises at the recompile limit with `fullgraph=True`."""
    return (uncaught or "").startswith("FailOnRecompileLimitHit")


def noticed(run: Run) -> Noticed:
    """The symptom that the journals show, the most telling one; "wrong" where they show none."""
    seen = why.first_found(run.processes)
    if "nan" in triggered(run.processes).values():
        return Noticed("nan", f"found in the journal: {seen[0].message}")
    failed = [row for row in run.rows if row.status == "failed" and "KeyboardInterrupt" not in (row.error or "")]
    if failed:
        error = error_line(failed[0].error) if failed[0].error else ""
        out_of_memory = any(word in error.lower() for word in ("out of memory", "can't allocate memory", "bad_alloc"))
        why_so = f"found in the journal: {failed[0].id} failed: {shortened(error, 120)}"
        return Noticed("memory" if out_of_memory else "crash", why_so)
    ends = deaths.endings(run.processes)
    stopped = [end.signal for end in ends if end.status == "killed"]
    lost = [row for row in run.rows if row.lost or (row.status == "failed")]
    if lost:
        crashed = any(name not in (*_CLEAR, "SIGKILL") for name in stopped)
        how = f"{lost[0].id} was {lost[0].status if lost[0].lost else 'compiling'} when its process ended"
        return Noticed("crash" if crashed else "hangs", f"found in the journal: {how}")
    own = [end for end in ends if end.signal not in _CLEAR and "KeyboardInterrupt" not in (end.process.uncaught or "")]
    if bad := [end for end in own if end.status in ("failed", "killed") and not _at_limit(end.process.uncaught)]:
        return Noticed("crash", f"found in the journal: {deaths.sentence(bad[0], run.processes)}")
    if len(run.processes) > 1 and len({process.rank for process in run.processes}) > 1:
        return Noticed("ranks", f"found in the journal: {counted(len(run.processes), 'process', 'processes')}")
    if why.limits(run):
        return Noticed("recompiles", f"found in the journal: {why.limits(run)[0]}")
    return Noticed("wrong", "the journal shows no other symptom: every graph is compared with eager")


def hang_limit_s(max_time_s: float) -> float:
    """The limit in seconds for one rung where the run hung and the time is set: a quarter, so that time for a ladder is
    left.

    >>> hang_limit_s(600), hang_limit_s(60), hang_limit_s(3600)
    (150.0, 60.0, 300.0)
    """
    return min(DEFAULT_LIMIT_S, max(_HANGS_S, max_time_s / 4))


def triage_symptom(run: Run, symptom: str, found_by: str, *, asked: bool, max_time_s: float, **how: Any) -> RunTriage:
    """Runs a symptom's sequence within the time. `asked`: the user named the symptom; otherwise graphs are always
    judged, and a difference of ranks is a note, no failure, unless the run ended badly. `how`: arguments of
    `triage_run`. Raises what that raises.
    """
    began, sequence, looked, verdicts = time.monotonic(), SYMPTOMS[symptom], list[str](), list[Verdict]()
    no_failure: list[str] = []  # next commands for what was noticed but is no failure
    asking = How(**{name: how[name] for name in How._fields if how.get(name) is not None})

    def take(steps: tuple[Step, ...], graphs: RunTriage | None) -> None:
        for step in steps:
            text, verdict = step(run, graphs, asking)
            looked.append(text)
            if verdict is not None and step is ranks and not asked and verdict.kind != "hang":
                unknown = f"{verdict.reason}; it is not known whether this ended the run"
                no_failure.extend(verdict.next)
                verdict = cannot_tell(unknown).then(*verdict.next) if deaths.ended_badly(run.processes) else None
            if verdict is not None:
                verdicts.append(verdict)

    take(sequence.before, None)
    early = list(verdicts)
    result = RunTriage([], [], [], run=run_address(run))
    if run.graphs() and (sequence.graphs or not asked):
        left = max_time_s - (time.monotonic() - began)
        result = triage_run(
            run, max_time_s=max(left, 1.0), own_nan=symptom == "nan", measured=symptom == "memory", **how
        )
        if symptom == "nan":
            result.verdict = _about_nan(run, result)
    if asked or not result.verdict.failed:
        take(sequence.after, result)
    judged = result.verdict
    convicting = [verdict for verdict in verdicts if verdict.failed]
    if convicting and (asked or not judged.failed):
        judged = convicting[0]
    elif verdicts and not judged.exit_code:
        judged = verdicts[0]
    elif early and judged.verdict == "cannot_tell":
        judged = early[0]
    if judged.verdict == "ok" and not run.rows:
        judged = _uncompiled(run)
    elif asked and judged.verdict == "ok" and (looked or not result.summary):
        said = " ".join(looked[-1:] if symptom == "slow" else looked[:1])
        judged = msgspec.structs.replace(judged, reason=said.partition(": ")[2].removesuffix("."))
    if judged.verdict == "cannot_tell" and judged.detail != NOT_JUDGED:
        go_on = [*(command for verdict in verdicts for command in verdict.next), *judged.next] or [whole_program(run)]
        judged = judged.then(*dict.fromkeys(go_on))
    elif judged.verdict == "cannot_tell" and not result.interrupted:  # the time was too short
        words = [*option_words(asking.imports), *(("--symptom", symptom) if asked else ())]
        judged = judged.then(_of_run(run, "triage", *words, "--max-time", f"{4 * max_time_s:.0f}"))
    elif not judged.exit_code:
        judged = judged.then(*dict.fromkeys([*no_failure, *judged.next]))
    result.summary = _summed_up(result, judged, looked, asked=asked)
    result.verdict, result.symptom, result.noticed = judged, symptom, found_by
    if symptom == "slow":
        result.times = of_run(run)
    result.seconds = time.monotonic() - began
    return result


def _summed_up(result: RunTriage, judged: Verdict, looked: list[str], *, asked: bool) -> str:
    """The summary: the finding on the graphs and what was examined; the latter first, where a symptom was asked for but
    graphs fail.
    """
    said, summary = " ".join(looked), result.summary
    said = said[:1] + said[1:].replace("Looked at: ", "Looked at as well: ")
    if result.verdict.failed and asked and said:
        return f"{said} Besides: {summary}"
    if judged.failed and not result.verdict.failed:  # the failure is the run's, the graphs are right
        summary = summary.replace("No graph fails.", "No graph's results are wrong.")
        summary = summary.replace(", 0 fail", ", 0 are wrong")
        summary = summary.replace("No graph that was judged fails.", "No graph that was judged has wrong results.")
    return " ".join(text for text in (summary, said) if text)


def _about_nan(run: Run, result: RunTriage) -> Verdict:
    """The verdict on the graphs with next commands; where they are right, only that no output was NaN, and on which
    inputs."""
    verdict = result.verdict
    again = record_again(run, "--when nan")
    if verdict.verdict == "cannot_tell" and not verdict.next:
        return verdict.then(again)
    synthesised = any(row.judged and row.inputs != REAL for row in result.graphs)
    if verdict.verdict not in ("ok", ROUNDING):
        return verdict
    rounds, following = verdict.verdict == ROUNDING, [again] if synthesised else []
    reason = f"no output of a graph is NaN on {'synthesised inputs' if synthesised else 'the recorded inputs'}"
    reason += f"; {verdict.reason}" if rounds else ""
    return msgspec.structs.replace(verdict, reason=reason, next=[*following, *(verdict.next if rounds else [])])
