"""The result of a triage, as records that cross processes: one row per rung, and the first rung that fails. Imports no
torch.

>>> RungResult("inductor", seconds=0.4).rung
'inductor'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from ...dumps.displayed import Displayed
from ...dumps.errors import GraphdbgError
from ...dumps.schema import SequenceValue, TensorValue, Value
from ...dumps.store import SavedGraph
from ...dumps.tables import one_line
from ...dumps.walk import bodies
from ...dumps.wording import counted
from ..live.rung import LADDER, SIDE
from .outcome import Outcome, OutputError
from .signature import Signature
from .verdict import OK, WHOLE, Verdict
from .verdict_words import first_line

PLAIN = frozenset(name for name, facts in LADDER.items() if facts.is_plain)
"""Rungs that compile nothing: their success proves nothing about a compiler."""


class RungResult(msgspec.Struct, omit_defaults=True):
    """One rung.

    `error` and `eager_error` are the relative errors of rung and eager to float64, of the output where the rung's is
    largest (None: there are no numbers). `seconds`: compile and first run; `peak_bytes`: of its process, the libraries
    included; `needed_bytes`: compile and first run alone, beside eager's first run (`eager_bytes`) and compile and run
    of a harmless graph of as many nodes (`control_bytes`).
    """

    rung: str
    verdict: Verdict = OK
    error: float | None = None
    seconds: float = 0.0
    eager_error: float | None = None
    peak_bytes: int = 0
    needed_bytes: int = 0
    eager_bytes: int = 0
    control_bytes: int = 0
    signature: Signature | None = None
    notes: list[str] = []
    signature_id: str = ""

    @property
    def reason(self) -> str:
        """Why it was skipped, or what the failure is, in a sentence."""
        seen = self.signature
        if seen is None or seen.stage == "compare" or seen.kind == "nan" or self.verdict.detail == WHOLE:
            return self.verdict.reason
        return seen.text().rstrip(".")

    @property
    def failed(self) -> bool:
        """Whether the rung went wrong where eager is right."""
        return self.verdict.failed

    @property
    def blames(self) -> bool:
        """Whether the failure counts for the ladder: not a crash of the metadata checker itself, nor a failure of a
        side rung."""
        return (
            self.failed and self.rung not in SIDE and not (self.rung == "debug_nop" and self.verdict.kind != "metadata")
        )

    @property
    def passed(self) -> bool:
        """Whether it was run and seen to be right."""
        return self.verdict.verdict == "ok"

    @property
    def ratio(self) -> float:
        """The rung's error divided by eager's; 0 where there are no errors."""
        return self.error / self.eager_error if self.error and self.eager_error else 0.0

    TOLD: ClassVar[tuple[str, ...]] = (
        "rung",
        "error",
        "eager_error",
        "seconds",
        "peak_bytes",
        "needed_bytes",
        "eager_bytes",
        "control_bytes",
        "signature",
        "notes",
    )
    """Fields that the JSON has besides those of the verdict."""

    def plain(self) -> dict[str, Any]:
        """Every field as a plain value, for JSON."""
        plain = {name: getattr(self, name) for name in self.TOLD}
        return msgspec.to_builtins(plain) | self.verdict.flat(row=True) | {"reason": self.reason} | which([self])

    def event(self, graph: str = "") -> dict[str, Any]:
        """The line of `triage --json-lines` about a rung that was judged or skipped; in a run with the graph of its
        ladder."""
        return {"event": "rung", **self.plain(), **({"graph": graph} if graph else {})}


class Triage(Displayed, msgspec.Struct, omit_defaults=True):
    """The ladder of one graph: a row for each rung in order of trust, and the first rung that fails (None: none does).

    `verdict` is that on the graph, with how to go on. `summary` is the finding in a few sentences. `inputs` says which
    of them were real. `seconds`: what all rows took together.

    >>> ladder = Triage(rows=[])
    >>> ladder.first_failing is None, ladder.verdict.verdict
    (True, 'ok')
    """

    rows: list[RungResult]
    first_failing: str | None = None
    graph: str = ""
    summary: str = ""
    inputs: str = ""
    seconds: float = 0.0
    verdict: Verdict = OK

    def __repr__(self) -> str:
        return f"<Triage{f' of {self.graph}' if self.graph else ''}: {one_line(self.first_line)}>"

    @property
    def first_line(self) -> str:
        """The verdict and where."""
        return first_line(self.verdict)

    @property
    def judged(self) -> bool:
        """Whether anything but eager was judged at all."""
        return any(row.failed or row.passed for row in self.rows if row.rung != "eager")

    def row(self, rung: str) -> RungResult:
        """The row of that rung; KeyError for a name that is no rung."""
        for row in self.rows:
            if row.rung == rung:
                return row
        raise KeyError(rung)

    def blamed(self) -> list[RungResult]:
        """The row that the verdict is that of, where one fails."""
        return [row for row in self.rows if row.rung == self.first_failing] if self.verdict.failed else []

    def plain(self) -> dict[str, Any]:
        """Everything as plain values, every field of every row present, for JSON."""
        rows = [row.plain() for row in self.rows]
        return msgspec.structs.asdict(self) | {"rows": rows} | self.verdict.flat() | which(self.blamed())

    def event(self) -> dict[str, Any]:
        """The finding of one graph, as the last line of `triage --json-lines`."""
        return {"event": "end", **{key: value for key, value in self.plain().items() if key != "rows"}}


def which(rows: Sequence[RungResult]) -> dict[str, str]:
    """`signature_id` for JSON: that of the first row, where it failed and has one."""
    return {"signature_id": rows[0].signature_id} if rows and rows[0].failed and rows[0].signature_id else {}


def number(value: float | None) -> str:
    """An error for a table."""
    return "" if value is None else f"{value:.1e}"


def row_of(outcome: Outcome, rung: str) -> RungResult:
    """The row for an outcome."""
    row = RungResult(rung)
    for name in RungResult.__struct_fields__[1:]:
        if hasattr(outcome, name):
            setattr(row, name, getattr(outcome, name))
    named = outcome.verdict.where.name if outcome.verdict.where is not None else ""
    about = next((error for error in outcome.errors if error.name == named), None)
    seen = outcome.signature
    if about is None and outcome.verdict.kind == "wrong_numbers" and seen is not None and seen.size is not None:
        row.error = seen.size
    elif worst := about or max(outcome.errors, key=_size, default=None):
        row.error, row.eager_error = worst.rung, worst.eager
    return row


def _size(error: OutputError) -> float:
    size = error.rung
    return float("inf") if size is not None and size != size else size or 0.0


REAL = "recorded inputs"


def inputs_given(saved: SavedGraph) -> str:
    """ "recorded inputs" where every tensor's bytes were kept; else how many tensors were synthesised, and the policy
    that left them out."""
    try:
        record = saved.inputs_record
        seen = {} if record is None else {entry.name: entry for entry in record.inputs}
        placeholders = [node for node in saved.record.graph.nodes if node.op == "placeholder"]
        held = {
            f"{id(body)} {name}": entry for body in bodies(saved.record.graph) for name, entry in body.attrs.items()
        }
    except GraphdbgError:
        return "inputs that cannot be read"
    values = {node.name: seen[node.name].value if node.name in seen else node.value for node in placeholders}
    values |= {name: entry.value for name, entry in held.items()}
    tensors = [name for name, value in values.items() if _is_filled(value)]
    kept = {name for name, entry in seen.items() if entry.stored is not None and entry.stored.storage}
    kept |= {name for name, entry in held.items() if entry.storage}
    synthesised = [name for name in tensors if name not in kept]
    if not synthesised:
        return REAL
    unseen = "a trace tells their layout alone" if saved.run and saved.run.of_a_trace else "it was never seen to run"
    policy = f"recorded with --inputs {record.policy}" if record is not None else unseen
    count = len(synthesised)
    which = "all tensors" if count == len(tensors) else f"{count} of {counted(len(tensors), 'tensor')}"
    return f"synthesised inputs ({which}; {policy})"


def _is_filled(value: Value | None) -> bool:
    """Whether a value has elements, which a record may lack."""
    if isinstance(value, SequenceValue):
        return any(map(_is_filled, value.items))
    return isinstance(value, TensorValue) and 0 not in value.shape
