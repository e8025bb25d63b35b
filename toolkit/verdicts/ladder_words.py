"""Sums the ladder up in a sentence: one finding, what it means, one command to go on with.

For example:

    concluded(found, saved).summary
    # '`inductor_nofuse` is right, `inductor` is wrong (error 0.03; eager\\'s own 4e-07) at myrun/0_0/dynamo, on
    # recorded inputs. ...'
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import msgspec

from ...dumps.deaths import ended_badly
from ...dumps.store import Run, SavedGraph
from ...dumps.user_kernels import UserKernel, of
from ...dumps.wording import shown_path
from ..isolation.imports import option_words, without_trust
from ..live.rung import LADDER, SIDE
from .ladder_records import PLAIN, REAL, RungResult, Triage
from .verdict import AT_RANDOM, NO_REFERENCE, NO_TIME, OPERATOR, UNLIKE, Verdict, Where, cannot_tell, worst
from .verdict_words import phrase

_PASSES = "The fault is in one of Inductor's passes, in fusion, or in the code made for what is fused."
_NEXT = {name: facts.command for name, facts in LADDER.items() if facts.command is not None}


_COMPILED = ("forward", "backward", "inference")


def address(saved: SavedGraph) -> str:
    """A graph's address, as to type it here."""
    return shown_path(saved.path) if saved.run is None else f"{run_address(saved.run)}/{saved.id}"


def run_address(run: Run) -> str:
    """A run's address, as to type it here."""
    return shown_path(run.path)


def concluded(triage: Triage, saved: SavedGraph, imports: Sequence[str] = (), eager_nan: Sequence[str] = ()) -> Triage:
    """Fills in `graph`, `summary` and `verdict`."""
    triage.graph = address(saved)
    verdict, command = _verdict(triage), _summed_up(triage, saved, imports, eager_nan)
    bisect, minify = "graphdbg bisect ", "graphdbg minify "
    smaller = command.replace(bisect, minify) if triage.first_failing and command.startswith(bisect) else ""
    short = " --check hang" if verdict.kind == "hang" else ""  # minify then waits no longer than a hang takes to show
    whole = whole_program(saved.run) if saved.run is not None and triage.rows[0].verdict.undecided else ""
    checked = kernel_check(compiled_from(saved)) if verdict.failed or triage.rows[0].verdict.undecided else ""
    steps = [f"{step}{short}" if step.startswith(minify) else step for step in (command, smaller, checked, whole)]
    triage.verdict = verdict if verdict.detail == UNLIKE else verdict.then(*steps)
    return triage


def compiled_from(saved: SavedGraph) -> list[SavedGraph]:
    """The graph itself where Inductor compiles its stage; else the graphs of its compile."""
    if saved.stage in _COMPILED or saved.run is None:
        return [saved]
    key = saved.process, saved.id.partition("/")[0]
    return [graph for graph in saved.run.graphs() if (graph.process, graph.id.partition("/")[0]) == key]


def kernel_check(graphs: Iterable[SavedGraph], named: str = "") -> str:
    """The command that checks the user's own Triton kernels (each access, and races), for the first of these graphs
    that Inductor compiled and that calls any; "" where none does. `named`: the graph's address in the command."""
    for graph in graphs:
        if graph.stage in _COMPILED and any(isinstance(kernel, UserKernel) for kernel in of(graph)):
            return f"graphdbg kernel {shlex.quote(named or address(graph))} --check --trust"
    return ""


def _summed_up(triage: Triage, saved: SavedGraph, imports: Sequence[str], eager_nan: Sequence[str]) -> str:
    """Fills in `summary`; returns the command to go on with."""
    with_imports = "".join(f" {word}" for word in option_words(imports))
    if triage.first_failing is not None:
        row = triage.row(triage.first_failing)
        triage.summary = " ".join([_failing(triage, row), _meaning(triage, row), _imported(imports)]).strip()
        wanted = {} if row.verdict.kind == "missing_error" else _NEXT
        if row.verdict.fault == "custom_op" and row.rung != "eager":
            wanted = {row.rung: "graphdbg check {graph}"}
        if (row.verdict.kind, row.rung) == ("nan", "eager"):
            wanted = {"eager": "graphdbg replay {graph} --values --rung eager"}
        if (row.verdict.kind, row.rung) == ("signal", "eager") and row.verdict.where is not None:
            wanted = {"eager": f"graphdbg show {{graph}} --node {row.verdict.where.node}"}
        above = next((other for other in triage.rows if other.rung == "inductor"), row)
        if (above.passed or above.failed) and above.verdict.kind != row.verdict.kind:
            wanted = {**wanted, "inductor_nofuse": "graphdbg minify {graph} --rung inductor_nofuse"}
        rung = "" if row.rung in ("inductor_nofuse", "inductor") else f" --rung {row.rung}"
        command = wanted.get(row.rung, f"graphdbg minify {{graph}}{rung}").format(graph=triage.graph)
        return command + (with_imports if command else "")
    eager = next((row for row in triage.rows if row.rung == "eager"), None)
    if eager is not None and eager.verdict.undecided:
        triage.summary = (
            f"Nothing can be judged: {eager.reason}. What compiles the graph is not at fault; what made it may be."
        )
        return f"graphdbg replay {triage.graph} --rung eager{with_imports}"
    if eager_nan:
        places = ", ".join(eager_nan[:6])
        triage.summary = (
            f"Eager itself gives NaN in {places}: the fault is in the model, not in the compiler. {_all_right(triage)}"
        )
        return f"graphdbg bisect {triage.graph} --by node{with_imports}"
    if other := next((row for row in triage.rows if row.verdict.detail == UNLIKE), None):
        triage.summary = f"Under `{other.rung}` {triage.graph} cannot be judged: {other.reason}."
        return ""
    triage.summary = _all_right(triage) if triage.judged else f"Nothing was judged: {_most_said(triage)}."
    rounded = [row.verdict.reason for row in triage.rows if row.verdict.verdict == "rounding"]
    if rounded:
        verb = "bisect --by node" if any(AT_RANDOM in reason for reason in rounded) else "minify"
        return f"graphdbg {verb} {triage.graph} --check rounding{with_imports}"
    return record_again(saved.run) if triage.inputs != REAL and saved.run is not None else ""


def _verdict(triage: Triage) -> Verdict:
    """The verdict on the graph: the first failing rung's; eager's where it allows none; else the worst of the compiled
    rungs."""
    if triage.first_failing is not None:
        verdict = triage.row(triage.first_failing).verdict
    elif triage.rows[0].rung == "eager" and triage.rows[0].verdict.undecided:
        verdict = triage.rows[0].verdict
    else:
        asked = [row for row in triage.rows if row.rung not in PLAIN | SIDE] or triage.rows
        judged = [row.verdict for row in asked if not row.verdict.skipped]
        verdict = worst(judged) if judged else cannot_tell(f"no compiled rung was judged: {_most_said(triage)}")
    where = msgspec.structs.replace(verdict.where or Where(), graph=triage.graph) if verdict.differs else None
    return msgspec.structs.replace(verdict, where=where)


def record_again(run: Run, options: str = "--inputs last") -> str:
    """The command that records a run with its inputs."""
    return f"graphdbg dump {options} -- {shlex.join(run.record.command)}"


def whole_program(run: Run) -> str:
    """The command that runs the whole program under each backend; for several ranks of which some ended badly, and
    would hang again, the command that compares them; "" where the run has no command.
    """
    if len({process.rank for process in run.processes}) > 1 and ended_badly(run.processes):
        return shlex.join(["graphdbg", "diff", run_address(run)])
    command = run.record.command
    python = ["python"] if command and command[0].endswith(".py") else []
    return shlex.join(["graphdbg", "triage", "--", *python, *command]) if command else ""


def _phrase(row: RungResult) -> str:
    """How a rung fails, in words."""
    return phrase(row.verdict, row.signature, row.reason.partition(f"; {OPERATOR}")[0], row.error, row.eager_error)


def _failing(triage: Triage, row: RungResult) -> str:
    before = [other for other in triage.rows[: triage.rows.index(row)] if other.passed and other.rung not in SIDE]
    right = f"`{before[-1].rung}` is right, " if before else ""
    sides = [f"`{other.rung}`" for other in triage.rows if other.failed and not other.blames]
    aside = f" ({' and '.join(sides)} fails too; that rung is beside the ladder)" if sides else ""
    return f"{right}`{row.rung}` {_phrase(row)} at {triage.graph}, on {triage.inputs}.{aside}"


def _meaning(triage: Triage, row: RungResult) -> str:
    if row.verdict.kind == "missing_error":
        return "The compiled graph computes a result where eager raises an error."
    if row.verdict.fault == "custom_pass":
        at = row.verdict.where or Where()
        place = f" ({at.line})" if at.line else ""
        return f"Without the run's own pass {at.node or at.name}{place} it is right: the fault is there."
    if said := row.verdict.reason.partition(OPERATOR)[2]:
        return f"The fault is in an operator of the run's own: {said}."
    if row.verdict.layer == "decomposition":
        return "With no operator decomposed the graph is right: the fault is in a decomposition."
    if row.rung != "inductor":
        return LADDER[row.rung].meaning if row.rung in LADDER else ""
    plain = next((other for other in triage.rows if other.rung == "inductor_nofuse"), None)
    return _PASSES if plain is not None and plain.passed else "The fault is in Inductor's passes or code."


def _all_right(triage: Triage) -> str:
    right = [row for row in triage.rows if row.passed]
    worst = max(right, key=lambda row: row.ratio, default=None)
    text = f"No rung fails: {', '.join(row.rung for row in right)} are right, on {triage.inputs}."
    if worst is not None and worst.ratio > 1:
        text += f" The largest error is {worst.ratio:.1f} times eager's, under {worst.rung}."
    unjudged = [f"{row.rung} ({row.reason})" for row in triage.rows if row.verdict.detail == NO_REFERENCE]
    if unjudged:
        text += f" Numbers could not be judged under {', '.join(unjudged[:2])}."
    late = [row.rung for row in triage.rows if row.verdict.detail == NO_TIME]
    if late:
        text += f" Not judged for lack of time: {', '.join(late)}."
    for row in triage.rows:
        if row.failed and not row.blames:
            text += f" `{row.rung}` {_phrase(row)}; that rung is beside the ladder."
    return text


def _most_said(triage: Triage) -> str:
    reasons = [row.reason for row in triage.rows if row.reason and row.rung != "lazy"]
    return max(reasons, key=reasons.count) if reasons else "no rung could run"


def _imported(imports: Sequence[str]) -> str:
    named = without_trust(imports)
    return f"Imported first: {', '.join(named)}." if named else ""
