"""The graphs of a run in the order in which to look at them, and what that means in sentences. No torch is imported.

>>> sorted(rows, key=rank)[0].verdict
'crash'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.wording import counted
from .. import verdict_words
from ..signature import Signature
from ..verdict import OK, Verdict, cannot_tell
from .given import REAL
from .records import Triage
from .words import record_again, run_address

if TYPE_CHECKING:
    from ...dumps.store import Run


class GraphRow(msgspec.Struct):
    """One graph of a run under Inductor; as `records.Row`. `status` and `recorded` are what the journal says became of it,
    `also` the graphs that fail alike.
    """

    id: str
    stage: str
    record: Verdict = OK
    error: float | None = None
    eager_error: float | None = None
    seconds: float = 0.0
    reason: str = ""
    peak_bytes: int = 0
    fidelity: str = ""
    inputs: str = ""
    signature: Signature | None = None
    status: str = ""
    recorded: str = ""
    address: str = ""
    also: list[str] = msgspec.field(default_factory=list)

    @property
    def verdict(self) -> str:
        """The verdict in a word, as of `records.Row`; further ones are "same" (as another graph) and "not judged"."""
        return verdict_words.word(self.record)

    @property
    def failed(self) -> bool:
        """Whether Inductor goes wrong where eager is right."""
        return self.record.failed

    @property
    def judged(self) -> bool:
        """Whether there is a verdict."""
        return self.failed or self.record.verdict == "ok"

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for JSON."""
        fields = msgspec.structs.asdict(self) | {"record": self.record.plain()}
        return msgspec.to_builtins({"id": self.id, "stage": self.stage, "verdict": self.verdict, **fields})

    @property
    def ratio(self) -> float:
        """The rung's error over eager's; 0 where there are none."""
        return self.error / self.eager_error if self.error and self.eager_error else 0.0


class RunTriage(msgspec.Struct):
    """`graphs` in the order in which to look at them; `ladders` of the worst, `boundaries` beside them say what is between which
    graphs. `record`, `summary` and `next`: the verdict on the run, the finding, and how to go on.
    """

    graphs: list[GraphRow]
    ladders: list[Triage]
    boundaries: list[str]
    run: str = ""
    summary: str = ""
    next: str = ""
    seconds: float = 0.0
    interrupted: bool = False
    record: Verdict = OK

    @property
    def failed(self) -> bool:
        """Whether any graph fails."""
        return any(row.failed for row in self.graphs)

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {
            "run": self.run, "graphs": [row.plain() for row in self.graphs], "ladders": [one.plain() for one in self.ladders],
            "boundaries": self.boundaries, "summary": self.summary, "next": self.next, "seconds": self.seconds,
            "interrupted": self.interrupted, "record": self.record.plain(),
        }  # fmt: skip


def rank(row: GraphRow) -> tuple[Any, ...]:
    """Failures first, crashes before wrong numbers by size; then what is right by its error over eager's, and by whether it was
    compiled as in the run.
    """
    size = row.signature.size if row.signature is not None and row.signature.size is not None else 0.0
    return verdict_words.rank(row.record), -size, -row.ratio, not row.fidelity.startswith("different")


def run_concluded(found: RunTriage, run: Run, imports: Sequence[str] = ()) -> RunTriage:
    """Fills in `run`, `summary`, `next` and `record`."""
    found.run = run_address(run)
    if found.ladders:
        first = found.ladders[0]
        if first.first_failing is not None:
            texts = [first.summary, found.boundaries[0]]
            found.next = first.next
        else:
            texts = [f"{first.graph} failed once and not again; it may depend on chance.", found.boundaries[0]]
            found.next = f"graphdbg replay {first.graph}"
    elif found.failed:
        worst = found.graphs[0]
        texts = [f"{worst.address} fails ({worst.verdict}); there was no time for its ladder."]
        found.next = f"graphdbg triage {worst.address}"
    else:
        texts = [_all_right(found, imports)]
        if any(row.judged and row.inputs != REAL for row in found.graphs):
            found.next = record_again(run)
    found.summary = " ".join(text for text in [*texts, _counts(found)] if text)
    found.record = _worst(found).then(found.next)
    return found


def _worst(found: RunTriage) -> Verdict:
    """The verdict on the graph to look at first: as its ladder says, where it has one."""
    if found.failed:
        first = found.ladders[0] if found.ladders else None
        return first.record if first is not None and first.record.failed else found.graphs[0].record
    return OK if any(row.judged for row in found.graphs) else cannot_tell(found.summary)


def _all_right(found: RunTriage, imports: Sequence[str]) -> str:
    judged = [row for row in found.graphs if row.judged]
    if not judged:
        reasons = [row.reason for row in found.graphs if row.reason]
        return f"Nothing was judged: {max(reasons, key=reasons.count)}." if reasons else "Nothing was judged."
    made_up = [row for row in judged if row.inputs != REAL]
    text = "No graph fails. " + (f"Inputs: {made_up[0].inputs}." if made_up else "All inputs were those of the run.")
    if judged[0].ratio > 1:
        text += f" Largest error over eager's: {judged[0].ratio:.1f} times at {judged[0].id}."
    other = [row.id for row in judged if row.fidelity.startswith("different")]
    if other:
        text += f" Compiled otherwise than in the run: {', '.join(other[:6])}."
    return text + (f" Imported first: {', '.join(imports)}." if imports else "")


def _counts(found: RunTriage) -> str:
    graphs = found.graphs
    failing = [row for row in graphs if row.failed]
    judged = [row for row in graphs if row.judged]
    text = f"{counted(len(judged), 'graph was', 'graphs were')} judged, {counted(len(failing), 'fails', 'fail')}" + (
        f" ({', '.join(row.id for row in failing[:8])})" if failing else ""
    )
    for verdict, words in verdict_words.UNJUDGED.items():
        some = [row.id for row in graphs if row.verdict == verdict]
        if some:
            text += f"; {len(some)} {words} ({', '.join(some[:6])}{' ...' if len(some) > 6 else ''})"
    return text + "."
