"""What a replay found, as a record that crosses processes. No torch is imported.

>>> Outcome().verdict.verdict, Outcome().text
('ok', 'ok')
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...dumps.displayed import Displayed
from ...dumps.tables import one_line
from . import verdict_words
from .signature import Signature
from .verdict import OK, Verdict


class OutputError(msgspec.Struct, omit_defaults=True):
    """How far one output is from the float64 reference: relative RMS errors of the rung and of eager, the largest
    difference, the largest distance in ulp and the cosine between the two.
    """

    name: str
    rung: float | None = None
    eager: float | None = None
    largest: float | None = None
    ulp: int | None = None
    cosine: float | None = None


class Outcome(Displayed, msgspec.Struct, omit_defaults=True):
    """The result of running one graph under one rung.

    `verdict` is the record of the judgement, `verdict.verdict` its word; `ok` is True for ok and rounding. `outputs` is
    the list of output tensors when they were asked for. `seconds` is the time of compile and run of the rung alone;
    sizes (`peak_bytes` and the like) are in bytes. `fidelity`: "same", or the diff between the recorded compile and
    this one, or None when it was not compared; `unlike`: why it was not the run's program, in a sentence, where that is
    known and not asked for (see `gate`). `nan` and `eager_nan` name the results that hold a NaN under the rung and in
    eager ("logits", "grad of emb.weight"); they are no failure where both have them.

    >>> Outcome().ok, Outcome().verdict.verdict, Outcome().text
    (True, 'ok', 'ok')
    """

    verdict: Verdict = OK
    signature: Signature | None = None
    outputs: list[Any] | None = None
    seconds: float = 0.0
    fidelity: str | None = None
    unlike: str = ""
    rung: str = ""
    errors: list[OutputError] = []
    notes: list[str] = []
    nan: list[str] = []
    eager_nan: list[str] = []
    output: str = ""
    peak_bytes: int = 0
    needed_bytes: int = 0
    eager_bytes: int = 0
    control_bytes: int = 0
    signature_id: str = ""
    """Which failure it is (see `identity`), where it fails."""

    def __repr__(self) -> str:
        return f"<Outcome{f' of {self.rung}' if self.rung else ''}: {one_line(verdict_words.first_line(self.verdict))}>"

    @property
    def text(self) -> str:
        """The verdict with its reason: "ok", "crash: ...", "skipped, because ..."."""
        return verdict_words.text(self.verdict)

    @property
    def ok(self) -> bool:
        """Whether it was judged, and compiled and eager agree but for rounding."""
        return not self.verdict.exit_code
