"""The ladder of one graph, built up from the lines of `triage --json-lines`: a row per rung, which one is running, the
finding.

Plain data for a screen: no torch, no widget, no process. What ends without a last line is reported by `lost`.

>>> ladder = LadderSeen(); ladder.take({"event": "rung", "rung": "inductor", "verdict": "ok", "error": 1e-7})
>>> ladder.cells("inductor").verdict
'ok'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...dumps.wording import size_text
from ..rungs import NAMES
from ..verdicts import verdict_words
from ..verdicts.ladder_records import number
from ..verdicts.verdict import LOST, OK, cannot_tell, read
from ..verdicts.verdict_words import Tone

KILLED = "SIGKILL comes from outside (somebody, a limit, the kernel for memory): run it again"


@dataclass(frozen=True)
class RungCells:
    """One row of the ladder as texts. `failed`: the rung is wrong where eager is right."""

    rung: str
    verdict: str = ""
    error: str = ""
    eager: str = ""
    seconds: str = ""
    peak: str = ""
    said: str = ""
    tone: Tone = ""

    @property
    def failed(self) -> bool:
        return self.tone == "bad"


@dataclass
class LadderSeen:
    """The ladder so far. `end`: the data of the last line."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: str = ""
    ended: str = ""
    """How the process ended, if it wrote no last line."""
    asked: tuple[str, ...] = ()
    end: dict[str, Any] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        """Takes in one line."""
        kind = event.get("event")
        if kind == "start":
            self.asked = tuple(str(name) for name in event.get("rungs", ()))
        elif kind == "running":
            self.running = str(event.get("rung", ""))
        elif kind == "rung":
            self.running = ""
            self.rows[str(event.get("rung"))] = event
        elif kind == "end":
            self.running, self.end = "", event

    def lost(self, how: str, stopped: bool = False) -> None:
        """Records that the process ended without a last line; the running rung counts as lost, unless the user stopped
        it."""
        if not self.end:
            if self.running and not stopped:
                self.rows[self.running] = cannot_tell(how, LOST).flat(row=True)
            self.running, self.ended = "", how

    @property
    def first_failing(self) -> str | None:
        """The failing rung to look at: the first that failed so far, else the finding's."""
        known = next((name for name in NAMES if self.cells(name).failed), None)
        return known or str(self.end.get("first_failing") or "") or None

    def sentence(self) -> str:
        """The finding, or the progress so far."""
        if self.end:
            return str(self.end.get("summary", ""))
        if self.ended:
            return f"the ladder {self.ended}; the rungs so far stand"
        return f"{self.running} runs ..." if self.running else "starting ..." if self.asked or not self.rows else ""

    def cells(self, rung: str) -> RungCells:
        """The row of a rung; empty cells where nothing is known yet."""
        if rung == self.running:
            return RungCells(rung, "runs ...", tone="running")
        row = self.rows.get(rung)
        if row is None:
            return RungCells(rung, "not run", tone="dim") if self.end else RungCells(rung)
        record, reason = read(row) or OK, str(row.get("reason") or "")
        notes = [str(note) for note in row.get("notes") or ()]
        outside = KILLED if (row.get("signature") or {}).get("detail") == "SIGKILL" else ""
        said = "; ".join(part for part in (verdict_words.said(record, reason), outside, *notes) if part)
        seconds, peak = row.get("seconds"), row.get("peak_bytes")
        return RungCells(
            rung,
            verdict_words.word(record),
            number(row.get("error")),
            number(row.get("eager_error")),
            f"{seconds:.2f}" if seconds and peak else "",
            size_text(peak) if peak else "",
            " ".join(said.split()),
            verdict_words.tone(record),
        )
