"""The graphs of a run in the order in which to look at them, and what that means in sentences. No torch is imported.

For example: `sorted(rows, key=rank)[0].verdict.kind` gives `'crash'`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ...dumps.store import Run
from ...dumps.why.times import CompileTime
from ...dumps.wording import counted
from ..isolation.imports import option_words, without_trust
from ..stages.asking import STAGES
from ..verdicts import verdict_words
from ..verdicts.ladder_records import REAL, RungResult, Triage, which
from ..verdicts.ladder_words import kernel_check, record_again, run_address, whole_program
from ..verdicts.own_passes import left_out
from ..verdicts.verdict import AT_RANDOM, OK, ROUNDING, SAME, Verdict, cannot_tell, worst

_OF_A_GRAPH = ("fidelity", "inputs", "signature", "status", "recorded", "address", "also")
"""Fields of a graph's row in JSON, after the numbers of its rung."""


class GraphRow(RungResult, kw_only=True):
    """One graph of a run under Inductor. `status`, `recorded`: its fate in the run, from the journal; `also`: graphs
    that fail alike.
    """

    id: str
    stage: str
    fidelity: str = ""
    inputs: str = ""
    status: str = ""
    recorded: str = ""
    address: str = ""
    also: list[str] = []

    TOLD: ClassVar[tuple[str, ...]] = ("id", "stage", *RungResult.TOLD[1:8], *_OF_A_GRAPH)

    @property
    def judged(self) -> bool:
        """Whether the graph itself was judged, not only an equal one."""
        return (self.verdict.differs or self.passed) and self.verdict.detail != SAME

    def event(self, graph: str = "") -> dict[str, Any]:
        """The line of `triage --json-lines` about a graph judged under Inductor."""
        return {"event": "graph", **self.plain()}


class RunTriage(msgspec.Struct):
    """The triage of a run. `graphs`: in the order in which to look at them; `ladders`: of the worst ones; `boundaries`:
    for each ladder, a sentence on which stages the fault is between; `abandoned`: how many graphs Dynamo abandoned;
    `verdict`: on the worst graph, with next commands; `summary`: the finding; `symptom`: what was examined; `noticed`:
    who or what named the symptom; `times`: where time went, for "slow".
    """

    graphs: list[GraphRow]
    ladders: list[Triage]
    boundaries: list[str]
    run: str = ""
    summary: str = ""
    seconds: float = 0.0
    interrupted: bool = False
    abandoned: str = ""
    symptom: str = ""
    noticed: str = ""
    verdict: Verdict = OK
    times: list[CompileTime] = []

    @property
    def failed(self) -> bool:
        """Whether any graph fails."""
        return any(row.failed for row in self.graphs)

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        graphs, ladders = ([row.plain() for row in rows] for rows in (self.graphs, self.ladders))
        parts = {"graphs": graphs, "ladders": ladders, "times": msgspec.to_builtins(self.times)}
        return msgspec.structs.asdict(self) | parts | self.verdict.flat() | which(self.blamed())

    def blamed(self) -> list[GraphRow]:
        """The row of the graph that the verdict is about, where that fails."""
        at = self.verdict.where.graph if self.verdict.where is not None else ""
        return [row for row in self.graphs if self.verdict.failed and row.address == at]

    @property
    def first_line(self) -> str:
        """The verdict with how many graphs have it."""
        alike = [row for row in self.graphs if row.verdict.verdict == self.verdict.verdict]
        if self.verdict.differs and self.verdict.kind not in [row.verdict.kind for row in alike]:
            alike = []  # the verdict is about the run, not a graph
        return verdict_words.first_line(self.verdict, len(alike), len(self.graphs) if alike else 1)

    def event(self) -> dict[str, Any]:
        """The last line of `triage --json-lines`: its failing graphs in the order in which to look at them."""
        failing = [row.address or row.id for row in self.graphs if row.failed]
        own = ("run", "summary", "seconds", "interrupted", "symptom", "noticed")
        return {
            "event": "end",
            **{name: getattr(self, name) for name in own},
            "graphs": len(self.graphs),
            "failing": failing,
            "first_failing": {ladder.graph: ladder.first_failing for ladder in self.ladders},
            **self.verdict.flat(),
        }


def rank(row: GraphRow) -> tuple[Any, ...]:
    """Sort key: failures first, crashes before wrong numbers, by size; then right graphs by their error over eager's,
    and by whether they were compiled as in the run.
    """
    size = row.signature.size if row.signature is not None and row.signature.size is not None else 0.0
    return verdict_words.rank(row.verdict), -size, -row.ratio, not row.fidelity.startswith("different")


def run_concluded(result: RunTriage, run: Run, imports: Sequence[str] = ()) -> RunTriage:
    """Fills in `run`, `summary` and `verdict`."""
    given_up = [graph for graph in run.graphs() if graph.status == "skipped"]
    result.run, result.abandoned = run_address(run), counted(len(given_up), "graph") if given_up else ""
    convicted = next((row for row in result.graphs if row.rung == STAGES), None)
    result.verdict = _addressed(convicted) if convicted else _worst(result)
    go_on: list[str] = []
    if convicted:
        texts = [convicted.verdict.reason]
    elif result.ladders:
        first = result.ladders[0]
        if first.first_failing is not None:
            texts = [first.summary, result.boundaries[0]]
            go_on = first.verdict.next
        else:
            again = f"{first.graph} failed once and did not fail again; the failure may be random."
            texts = [again, result.boundaries[0]]
            go_on = [f"graphdbg replay {first.graph}"]
    elif result.failed:
        worst = result.graphs[0]
        texts = [f"{worst.address} {verdict_words.word(worst.verdict)}; there was no time for its ladder."]
        result.verdict = msgspec.structs.replace(result.verdict, layer=None)  # the layer at fault was not determined
        go_on = [f"graphdbg triage {worst.address}"]
    else:
        texts = [_all_right(result, imports)]
        unseen = "What Dynamo and AOTAutograd do around the graphs was not judged, nor was code that is not compiled"
        if result.verdict.exit_code == 0 and (program := whole_program(run)):
            itself = f": judge the whole program with {program}" if " -- " in program else ""
            texts.append(f"{unseen}{itself}.")
            go_on = [program]
        if any(verdict_words.DRAWS in row.notes for row in result.graphs):
            texts.append(f"{verdict_words.DRAWS}.")
        if result.verdict.exit_code == 0 and (other := _otherwise_strided(result)):
            row, note = other
            texts.insert(0, f"In {row.id} the {note}: the fake function of an operator may be wrong.")
            go_on.insert(0, shlex.join(["graphdbg", "check", row.address, *option_words(imports)]))
        if not result.verdict.next and any(row.judged and row.inputs != REAL for row in result.graphs):
            go_on.insert(0, record_again(run))
        if result.verdict.verdict == ROUNDING and result.verdict.where is not None:
            words = [result.verdict.where.graph, "--check", ROUNDING, *option_words(imports)]
            verbs = [*([["bisect", "--by", "node"]] if AT_RANDOM in result.verdict.reason else []), ["minify"]]
            go_on = [shlex.join(["graphdbg", *verb, *words]) for verb in verbs]
        flags = "" if imports or result.verdict.verdict != "cannot_tell" else left_out(run)[1]
        if "--trust" in result.verdict.reason:  # the dump has the definitions that the graph needs
            flags = "--trust"
        if result.verdict.exit_code and (checked := kernel_check(run.graphs())):
            go_on = [checked, *(go_on or result.verdict.next)]
        if flags:
            words = [word for word in option_words(imports) if word != flags]
            go_on = [shlex.join(["graphdbg", "triage", result.run, *words, *flags.split()])]
    result.summary = " ".join(text for text in [*texts, _counts(result)] if text)
    climbed = result.ladders[0].verdict if not convicted and result.ladders else None
    verdict = climbed if climbed and climbed.failed else result.verdict
    result.verdict = verdict.then(*(go_on or verdict.next))
    return result


def _worst(result: RunTriage) -> Verdict:
    """The verdict on the worst graph, with its address."""
    row = next((row for row in result.graphs if row.verdict == worst(other.verdict for other in result.graphs)), None)
    if row is None:
        why = f"; Dynamo abandoned {result.abandoned}" if result.abandoned else ""
        return cannot_tell(f"no graph was judged{'; it was interrupted' if result.interrupted else why}")
    return _addressed(row)


def _addressed(row: GraphRow) -> Verdict:
    where = row.verdict.where if row.verdict.differs else None
    return msgspec.structs.replace(row.verdict, where=where and msgspec.structs.replace(where, graph=row.address))


def _all_right(result: RunTriage, imports: Sequence[str]) -> str:
    judged = [row for row in result.graphs if row.judged]
    if not judged:
        reasons = [row.reason for row in result.graphs if row.reason]
        why = f": {max(reasons, key=reasons.count)}" if reasons else ""
        return f"Nothing was judged{why}."
    synthesised = [row for row in judged if row.inputs != REAL]
    text = "No graph fails. " if result.verdict.exit_code == 0 else "No graph that was judged fails. "
    text += f"Inputs: {synthesised[0].inputs}." if synthesised else "All inputs were those of the run."
    if judged[0].ratio > 1:
        text += f" Largest error over eager's: {judged[0].ratio:.1f} times at {judged[0].id}."
    other = [row.id for row in judged if row.fidelity.startswith("different")]
    if other:
        text += f" Compiled differently than in the run: {', '.join(other[:6])}."
    named = without_trust(imports)
    text += f" Imported first: {', '.join(named)}." if named else ""
    return text + (" The run's own ops and passes took part (--trust)." if len(named) < len(imports) else "")


def _otherwise_strided(result: RunTriage) -> tuple[GraphRow, str] | None:
    """The first graph whose result has other strides than eager's, but as promised by a fake function; with the note on
    it."""
    notes = ((row, note) for row in result.graphs if row.judged for note in row.notes)
    return next((pair for pair in notes if pair[1].endswith(verdict_words.AS_TRACED)), None)


def _counts(result: RunTriage) -> str:
    graphs = result.graphs
    failing = [row for row in graphs if row.failed]
    judged = [row for row in graphs if row.judged]
    text = f"{counted(len(judged), 'graph was', 'graphs were')} judged, {counted(len(failing), 'fails', 'fail')}"
    text += f" ({', '.join(row.id for row in failing[:8])})" if failing else ""
    for verdict, phrase in verdict_words.COUNTED.items():
        some = [row.id for row in graphs if row.verdict.verdict == verdict]
        if some:
            text += f"; {len(some)} {phrase} ({', '.join(some[:6])}{' ...' if len(some) > 6 else ''})"
    return f"{text}." + (f" Left out: {result.abandoned} that Dynamo abandoned." if result.abandoned else "")
