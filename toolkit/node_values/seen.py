"""The values of a graph's nodes as their lines come (`replay --values --json-lines`): rows, what is bad, what was found.

Plain data for a screen: no torch, no widget, no process.

>>> seen = ValuesSeen(); seen.take({"event": "value", "name": "exp", "min": 0.0, "max": 1.0, "nan": 0, "inf": 0, "error": 1e-7})
>>> seen.columns()["exp"]
(0.0, 1.0, 0, 0, 1e-07)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .words import size_text

Row = dict[str, Any]

STAGES = {
    "as it is": "judging it as it is", "eager": "running eager", "compile": "compiling with extra outputs", "run": "running",
    "compare": "comparing with float64",
}  # fmt: skip


@dataclass
class ValuesSeen:
    """What is known so far; `end` is the last line's data, `ended` how it ended where it did not say so itself."""

    rung: str = ""
    nodes: int = 0
    rows: list[Row] = field(default_factory=list)
    stage: str = ""
    plain: str = ""
    end: Row = field(default_factory=dict)
    ended: str = ""
    _places: dict[str, int] = field(default_factory=dict)

    def take(self, event: Row) -> None:
        """One line."""
        kind = event.get("event")
        if kind == "start":
            self.rung, self.nodes = str(event.get("rung", "")), int(event.get("nodes") or 0)
        elif kind == "stage":
            self.stage = STAGES.get(str(event.get("stage")), str(event.get("stage")))
        elif kind == "plain":
            self.plain = str(event.get("verdict", ""))
        elif kind == "value":
            self._places[str(event.get("name"))] = len(self.rows)
            self.rows.append(event)
        elif kind == "end":
            self.stage, self.end = "", event

    def lost(self, how: str) -> None:
        """Its process ended without a last line."""
        if not self.end:
            self.stage, self.ended = "", how

    @property
    def marked(self) -> bool:
        """Whether the values are those of the failure: not where extra outputs made it go away."""
        return self.end.get("relation") != "gone"

    @property
    def first_bad(self) -> int | None:
        """The place of the first bad node among the rows."""
        return self._places.get(str((self.end.get("first_bad") or {}).get("name")))

    @property
    def bad(self) -> list[int]:
        """The places of all that are bad by themselves, the first one first."""
        names = list(self.end.get("wrong") or ()) if self.marked else []
        found = sorted({self._places[name] for name in names if name in self._places})
        return found or ([] if self.first_bad is None else [self.first_bad])

    def place(self, name: str | None) -> int | None:
        """Where a node is among the rows."""
        return self._places.get(name or "")

    def sentence(self) -> str:
        """The finding, or how far it is."""
        if self.end:
            return str(self.end.get("sentence", ""))
        if self.ended:
            return f"reading the values {self.ended}; the {len(self.rows)} rows so far stand"
        far = f"{len(self.rows):,} of {self.nodes:,} nodes" if self.rows else ""
        return ", ".join(part for part in (self.stage, far) if part) + " ..." if self.stage or far else "starting ..."

    def mark(self, place: int) -> str:
        """What is said beside a row: "FIRST BAD", "bad", "NaN", or nothing."""
        if place == self.first_bad:
            return "FIRST BAD"
        row = self.rows[place]
        if self.marked and row.get("name") in (self.end.get("wrong") or ()):
            return "bad"
        return "NaN" if (row.get("nan") or 0) > (row.get("reference_nan") or 0) else ""

    def cells(self, place: int) -> tuple[str, str, str, str, str, str, str]:
        """min, max, nan, inf, error, eager's error, and why there are none."""
        row = self.rows[place]
        if "reason" in row:
            return "", "", "", "", "", "", str(row["reason"])
        nan, inf = (f"{row[key]:,}" if row.get(key) else "" for key in ("nan", "inf"))
        errors = size_text(row.get("error")), size_text(row.get("eager_error"))
        return _number(row.get("min")), _number(row.get("max")), nan, inf, *errors, ""

    def columns(self) -> dict[str, tuple[Any, ...]]:
        """min, max, nan, inf and error by node, for the columns of another screen."""
        keys = ("min", "max", "nan", "inf", "error")
        return {str(row["name"]): tuple(row.get(key) for key in keys) for row in self.rows if "reason" not in row}


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return text if len(text := f"{value:.4g}") <= 9 else f"{value:.2e}"
