"""The conclusion from all calls of a program: one record, and the sentences, notes and tables about it. Imports no
torch.

For example: `concluded(program, folder, Judged(), ["python", "train.py"]).verdict.verdict` gives `'ok'`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...dumps.wording import counted
from ..isolation import launch
from ..node_values.words import size_text
from ..verdicts.verdict import OK, Layer, Verdict, Where, cannot_tell, worst
from ..verdicts.verdict_words import word
from .drift import Drift, drift
from .judging import MEANS, JudgedCall
from .records import PROGRAM, RUNGS, Call, Program, departing
from .showing import Repro

LAYERS: dict[str, Layer] = {
    "dynamo": "dynamo",
    "aot_eager": "aot_autograd",
    "decomposed": "decomposition",
    "inductor": "inductor",
}
_ENDED = ("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that somebody sends to end a program."""
_STALE = "recompiled it agrees, so what was compiled for an earlier call is taken for this one: a guard is missing"
_OLD = "recompiled it agrees: what it took was compiled for an earlier call, or came from a cache on disk"
_SHORT = 3
"""Sentences of a finding that go into the verdict's own."""


class ProgramTriage(msgspec.Struct):
    """`calls`: what was looked at, in order; `counts`: how often each function was called; `exit_code`: the program's
    own. `folder`: what is kept."""

    verdict: Verdict
    calls: list[Call]
    counts: dict[str, int]
    command: list[str]
    folder: str
    exit_code: int = 0
    summary: str = ""
    notes: list[str] = []
    seconds: float = 0.0
    at: Call | None = None
    drift: Drift | None = None
    repro: Repro = Repro()
    interrupted: bool = False

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        rows = [[msgspec.to_builtins(row) | row.verdict.flat(row=True) for row in call.rows] for call in self.calls]
        calls = [msgspec.to_builtins(call) | {"rows": of} for call, of in zip(self.calls, rows, strict=True)]
        record = (
            msgspec.structs.asdict(self) | {"calls": calls, "at": self.at.key if self.at else None} | self.repro.plain()
        )
        failed = self.at.failed if self.at is not None else None
        record |= {
            "rows": next((call["rows"] for call in calls if self.at is not None and call["key"] == self.at.key), [])
        }
        return record | {"first_failing": failed.rung if failed is not None else None} | self.verdict.flat()


def concluded(
    program: Program, folder: Path, graphs: JudgedCall, command: list[str], code: int = 0, hung: str = ""
) -> ProgramTriage:
    """The conclusion from all calls, in one record. `command`: empty for a block of a program."""
    seen = max((call.number for call in program.calls), default=0) + 1
    more = max(program.counts.values(), default=0)
    later = ["graphdbg", "triage", "--calls", f"{seen}:{min(more, seen + 10)}", "--", *command]
    recording = f"graphdbg dump -- {shlex.join(command)}" if command else ""
    triaged = ProgramTriage(OK, program.calls, program.counts, command, str(folder), code)
    triaged.notes = list(dict.fromkeys(program.notes))
    triaged.at = call = departing(program)
    died = next((candidate for candidate in program.calls if candidate.in_flight), None)
    by_somebody = code > 128 and launch.signal_text(code).removeprefix("signal ") in _ENDED
    if call is not None:
        triaged.verdict = departs(call, graphs, command)
    elif died is not None and (hung or (code > 128 and not by_somebody)) and died.in_flight != "eager":
        triaged.at = died
        triaged.verdict = _died(died, hung, code).then(recording)
    elif not program.calls:
        triaged.verdict = cannot_tell(_why_none(program, code)).then("" if code else recording)
    else:
        triaged.verdict = _agrees(program).then(shlex.join(later) if command and more > seen else "")
    if code and (triaged.at is None or triaged.at is call):
        triaged.notes.append(
            f"the program itself ended with {launch.signal_text(code) if code > 128 else f'code {code}'}"
        )
    triaged.drift = drift(program.calls)
    triaged.summary = _summary(triaged, graphs)
    return triaged


def _why_none(program: Program, code: int) -> str:
    none = "no call of something given to torch.compile was seen"
    if code:
        return f"{none} before the program ended with code {code}"
    if program.ended:
        return f"{none}: torch.compile was never used, or what it returned was never called"
    return f"{none}: no process that imports torch lived to say so, or its Python has no graphdbg"


def _died(call: Call, hung: str, code: int) -> Verdict:
    layer = LAYERS.get(call.in_flight)
    where = Where(line=_line(call))
    if hung:
        return Verdict("fails", "hang", "compiler", layer, f"{call.place}: {hung}", where)
    text = f"{call.place}: {call.in_flight} ended the process by {launch.signal_text(code)}"
    return Verdict("fails", "signal", "compiler", layer, text, where)


def _line(call: Call) -> str:
    return f"{Path(call.file).name}:{call.line}"


def departs(call: Call, graphs: JudgedCall, command: Sequence[str]) -> Verdict:
    """The verdict on a call that departs, with the verdict on its graphs."""
    row = call.failed
    assert row is not None
    own = row.rung == PROGRAM
    judged, minify = graphs.verdict, shlex.join(["graphdbg", "minify", "--", *command])
    reason = f"{call.place}: {row.verdict.reason}, " + (
        "in the program's own call alone" if own else f"from {row.rung} on"
    )
    where = Where(line=_line(call), name=row.value)
    verdict = msgspec.structs.replace(row.verdict, reason=reason, where=where)
    if judged is not None and judged.failed and not own and row.rung != "dynamo":
        at = judged.where or Where()
        graph = at.graph.rpartition("/run-")[2].partition("/")[2] or at.graph
        detail = _shortened(graphs.op or judged.reason)
        around = f"; it is {MEANS[row.rung]}, and its graph {graph} shows it: {detail}" if row.rung in MEANS else ""
        reason += around or f"; its graph {graph} fails: {detail}"
        where = Where(at.node, at.graph, at.line or _line(call), row.value)
        layer = row.verdict.layer if row.rung != "inductor" else judged.layer or row.verdict.layer
        verdict = msgspec.structs.replace(
            verdict,
            reason=reason,
            where=where,
            layer=layer,
            fault=judged.fault or verdict.fault,
            workaround=judged.workaround,
        )
        return msgspec.structs.replace(verdict, next=judged.next)
    minify = minify if command and (own or row.rung in LAYERS) else ""
    if call.anew == "agrees" and (own or row.rung in MEANS):
        reason += f"; {_STALE}"
    elif row.rung in MEANS:
        right = judged is not None and judged.verdict in ("ok", "rounding")
        reason += f"; it is {MEANS[row.rung]}" + (" (its saved graphs are right by themselves)" if right else "")
    elif row.rung not in LAYERS and not own:
        right = [other.rung for other in call.rows if other.part == row.part and other.rung in LAYERS]
        reason += f"; it is the backend {row.rung} itself, {' and '.join(right)} agree with eager"
    elif call.anew == "agrees":
        reason += f"; {_OLD}"
    elif judged is not None:
        state = "were judged right" if judged.verdict in ("ok", "rounding") else f"could not be judged: {judged.reason}"
        state += " (in a process without what the program's own script changes in torch)" if graphs.apart else ""
        reason += f"; recompiled it departs, too; its saved graphs {state}"
    elif call.recorded:
        reason += f"; {call.recorded}"
    return msgspec.structs.replace(verdict, reason=reason).then(minify)


def _shortened(sentence: str) -> str:
    """The sentence on what is to blame, without the counts and the time."""
    parts = re.split(r"\. (?=[A-Z0-9])", sentence.strip().rstrip("."))
    kept = [part for part in parts if not part.startswith("Work around") and not re.match(r"\d+ compiles? \(", part)]
    return ". ".join(kept[:_SHORT])


def _agrees(program: Program) -> Verdict:
    """The verdict on a program where no call departs: that of the worst function."""
    verdicts: list[Verdict] = []
    for function in dict.fromkeys((call.function, call.file, call.line) for call in program.calls):
        calls = [call for call in program.calls if (call.function, call.file, call.line) == function]
        judged = [row.verdict for call in calls for row in call.rows if call.judged]
        if judged:
            verdicts.append(worst(judged))
            continue
        unsteady = [row.verdict for call in calls for row in call.rows if row.verdict.verdict == "nondeterministic"]
        why = next((call.why for call in calls if call.why), "nothing of it could be compared")
        reason = f"{calls[0].place}: {unsteady[0].reason if unsteady else why}"
        verdicts.append(msgspec.structs.replace(unsteady[0], reason=reason) if unsteady else cannot_tell(reason))
    return worst(verdicts)


def _summary(triaged: ProgramTriage, graphs: JudgedCall) -> str:
    judged = [call for call in triaged.calls if call.judged]
    functions = counted(len({(call.function, call.file, call.line) for call in triaged.calls}), "function")
    of = f"{len(judged)} of {counted(len(triaged.calls), 'call')} looked at of {functions} were judged"
    seen = ", ".join(f"{name.rpartition(' ')[0]}() {count}" for name, count in triaged.counts.items())
    calls = f" (calls in all: {seen})" if seen else ""
    if triaged.verdict.failed:
        steps = f" Step by step: {triaged.drift.sentence}." if triaged.drift is not None else ""
        return f"{triaged.verdict.reason}.{steps} {of}{calls}."
    if triaged.verdict.verdict in ("ok", "rounding"):
        rest = "Other calls, and what is not compiled, were not looked at"
        rest += f". Step by step: {triaged.drift.sentence}" if triaged.drift is not None else ""
        return f"Results, gradients and what is written agree with eager: {of}{calls}. {rest}."
    return f"Not told: {triaged.verdict.reason}. {of}{calls}."


def table_rows(triaged: ProgramTriage) -> list[tuple[str, ...]]:
    """For people: of the call that departs each rung, else of each function its largest differences."""
    if triaged.at is not None:
        part = triaged.at.failed.part if triaged.at.failed else ""
        rows = [row for row in triaged.at.rows if row.part == part]
        return [
            (row.rung, word(row.verdict), size_text(row.error), size_text(row.tolerance), row.value, row.size)
            for row in rows
        ]
    rows = []
    for call in triaged.calls:
        rungs = [row for row in call.rows if row.rung in RUNGS and row.rung != "eager"]
        largest = {row.rung: max(other.error or 0.0 for other in rungs if other.rung == row.rung) for row in rungs}
        errors = " ".join(f"{rung} {size_text(value)}" for rung, value in largest.items())
        verdict = cannot_tell(call.why) if call.why else worst(row.verdict for row in call.rows)
        rows.append(
            (
                f"{call.function}()",
                word(verdict),
                str(call.number),
                _line(call),
                call.why or errors,
                "; ".join(call.notes),
            )
        )
    return rows
