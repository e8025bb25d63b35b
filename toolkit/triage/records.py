"""What a triage found, as records that cross processes: one row per rung, and the first rung that fails. No torch is imported.

>>> Row("inductor", "wrong", error=0.03, seconds=1.2).failed
True
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..outcome import Outcome, OutputError
from ..signature import Signature

WORDS = {
    "crash": "crash", "signal": "signal", "hang": "hang", "memory": "memory", "nan": "NaN", "accuracy": "wrong",
    "metadata": "metadata", "missing_error": "missing error", "nondeterministic": "cannot judge", "error": "cannot judge",
}  # fmt: skip
"""Kind of a signature -> the verdict of a row. The others are "ok", "skipped" and "no reference"."""

FAILURES = frozenset({"crash", "signal", "hang", "memory", "NaN", "wrong", "metadata", "missing error"})

SIDE = frozenset({"torchscript"})
"""Rungs that are no step towards Inductor: one that fails is told, and is not the first failing rung."""


class Row(msgspec.Struct, omit_defaults=True):
    """One rung.

    `verdict`: ok, crash, wrong, NaN, metadata, missing error, hang, memory, signal, skipped, no reference, cannot judge.
    `error` and `eager_error` are the relative errors of rung and eager to float64, of the output where the rung's is largest
    (None: there are no numbers).
    `reason`: why it was skipped, or what the failure is, in a sentence. `seconds`: compile and first run; `peak_bytes`: of its
    process, the libraries included.
    """

    rung: str
    verdict: str
    error: float | None = None
    seconds: float = 0.0
    reason: str = ""
    eager_error: float | None = None
    peak_bytes: int = 0
    signature: Signature | None = None
    notes: list[str] = []

    @property
    def failed(self) -> bool:
        """Whether the rung went wrong where eager is right."""
        return self.verdict in FAILURES

    @property
    def blames(self) -> bool:
        """Whether that failure is a step towards Inductor's: a crash of the checker itself is not, nor is a side rung's."""
        return self.failed and self.rung not in SIDE and not (self.rung == "debug_nop" and self.verdict != "metadata")

    @property
    def passed(self) -> bool:
        """Whether it was run and seen to be right."""
        return self.verdict == "ok"

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for JSON."""
        return {**_DEFAULTS, **msgspec.to_builtins(self)}


class Triage(msgspec.Struct, omit_defaults=True):
    """The ladder of one graph: a row for each rung in order of trust, and the first rung that fails (None: none does).

    `summary` is the finding in a sentence, `next` the command to go on with. `inputs` says which of them were real.
    """

    rows: list[Row]
    first_failing: str | None = None
    graph: str = ""
    summary: str = ""
    next: str = ""
    inputs: str = ""
    seconds: float = 0.0

    @property
    def judged(self) -> bool:
        """Whether anything but eager was judged at all."""
        return any(row.failed or row.passed for row in self.rows if row.rung != "eager")

    def row(self, rung: str) -> Row:
        """The row of that rung; KeyError for a name that is no rung."""
        for row in self.rows:
            if row.rung == rung:
                return row
        raise KeyError(rung)

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, every field of every row present, for JSON."""
        rows = [row.plain() for row in self.rows]
        return {
            "graph": self.graph, "first_failing": self.first_failing, "rows": rows, "summary": self.summary, "next": self.next,
            "inputs": self.inputs, "seconds": self.seconds,
        }  # fmt: skip


_DEFAULTS: dict[str, Any] = {
    "rung": "", "verdict": "", "error": None, "eager_error": None, "seconds": 0.0, "peak_bytes": 0, "reason": "",
    "signature": None, "notes": [],
}  # fmt: skip


def row_of(outcome: Outcome, rung: str) -> Row:
    """The row that an outcome makes."""
    signature = outcome.signature
    words, _, rest = outcome.verdict.partition(": ")
    if signature is not None:
        verdict = "cannot judge" if outcome.verdict.startswith("cannot judge") else WORDS[signature.kind]
        reason = signature.text() if signature.stage != "compare" else rest
    elif words.startswith("skipped, because "):
        verdict, reason = "skipped", outcome.verdict.partition("because ")[2]
    else:
        verdict, reason = (words, rest) if outcome.ok else ("cannot judge", outcome.verdict)
    row = Row(rung, verdict, None, outcome.seconds, reason.strip(), None, outcome.peak_bytes, signature, outcome.notes)
    if worst := max(outcome.errors, key=_size, default=None):
        row.error, row.eager_error = worst.rung, worst.eager
    return row


def _size(error: OutputError) -> float:
    size = error.rung
    return float("inf") if size is not None and size != size else size or 0.0


def skipped(rung: str, reason: str) -> Row:
    """The row of a rung that was not run."""
    return Row(rung, "skipped", reason=reason)
