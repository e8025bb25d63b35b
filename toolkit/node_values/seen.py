"""The values of a graph's nodes as their lines come (`replay --values --json-lines`): rows, what is bad, what was
found.

Plain data for a screen: no torch, no widget, no process.

>>> seen = ValuesSeen()
>>> seen.take({"event": "value", "name": "exp", "min": 0.0, "max": 1.0, "nan": 0, "inf": 0, "error": 1e-7})
>>> seen.columns()["exp"]
(0.0, 1.0, 0, 0, 1e-07, None)
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...dumps.wording import counted
from .words import size_text

Row = dict[str, Any]

STAGES = {
    "as it is": "judging it as it is",
    "eager": "running eager",
    "compile": "compiling with extra outputs",
    "run": "running",
    "compare": "comparing with float64",
}


SPLIT, SMALL = 10.0, 1e-3
"""Two rungs split where the errors differ by so many times, and by so much."""


class NodeValue(msgspec.Struct, gc=False):
    """What is kept of a "value" line: a graph may have 100,000 of them."""

    index: int = 0
    name: str = ""
    line: str = ""
    reason: str = ""
    min: float | None = None
    max: float | None = None
    nan: int = 0
    inf: int = 0
    reference_nan: int = 0
    error: float | None = None
    eager_error: float | None = None

    @classmethod
    def of(cls, event: Row) -> NodeValue:
        """The known fields of a "value" line."""
        row = cls(**{name: event[name] for name in cls.__struct_fields__ if event.get(name) is not None})
        row.line, row.reason = sys.intern(row.line), sys.intern(row.reason)
        return row


@dataclass
class ValuesSeen:
    """What is known so far; `end` is the last line's data, `ended` how it ended where it did not say so itself."""

    rung: str = ""
    nodes: int = 0
    rows: list[NodeValue] = field(default_factory=list)
    stage: str = ""
    plain: str = ""
    end: Row = field(default_factory=dict)
    ended: str = ""
    _places: dict[str, int] = field(default_factory=dict)
    _wrong: set[int] = field(default_factory=set)

    def take(self, event: Row) -> None:
        """Reads one line."""
        kind = event.get("event")
        if kind == "start":
            self.rung, self.nodes = str(event.get("rung", "")), int(event.get("nodes") or 0)
        elif kind == "stage":
            self.stage = STAGES.get(str(event.get("stage")), str(event.get("stage")))
        elif kind == "plain":
            self.plain = str(event.get("text", ""))
        elif kind == "value":
            row = NodeValue.of(event)
            self._places[row.name] = len(self.rows)
            self.rows.append(row)
        elif kind == "end":
            self.stage, self.end = "", event
            self._wrong = {self._places[name] for name in event.get("wrong") or () if name in self._places}

    def lost(self, how: str) -> None:
        """Records that the process ended without a last line."""
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
        """The places of all nodes that are bad by themselves, in order."""
        places = sorted(self._wrong) if self.marked else []
        return places or ([] if self.first_bad is None else [self.first_bad])

    def place(self, name: str | None) -> int | None:
        """The place of a node among the rows."""
        return self._places.get(name or "")

    def sentence(self) -> str:
        """The finding, or the progress so far."""
        if self.end:
            return str(self.end.get("sentence", ""))
        if self.ended:
            return (
                f"reading the values {self.ended}; the "
                f"{counted(len(self.rows), 'row so far stands', 'rows so far stand')}"
            )
        far = f"{len(self.rows):,} of {counted(self.nodes, 'node', form=',')}" if self.rows else ""
        return ", ".join(part for part in (self.stage, far) if part) + " ..." if self.stage or far else "starting ..."

    def mark(self, place: int) -> str:
        """The mark beside a row: "FIRST BAD", "bad", "NaN", or nothing."""
        if place == self.first_bad:
            return "FIRST BAD"
        row = self.rows[place]
        if self.marked and place in self._wrong:
            return "bad"
        return "NaN" if row.nan > row.reference_nan else ""

    def cells(self, place: int) -> tuple[str, str, str, str, str, str, str]:
        """min, max, nan, inf, error, eager's error, and why there are none."""
        row = self.rows[place]
        if row.reason:
            return "", "", "", "", "", "", row.reason
        nan, inf = (f"{count:,}" if count else "" for count in (row.nan, row.inf))
        return _number(row.min), _number(row.max), nan, inf, size_text(row.error), size_text(row.eager_error), ""

    def columns(self, other: ValuesSeen | None = None) -> dict[str, tuple[Any, ...]]:
        """min, max, nan, inf and error by node, and the error under another rung (eager's own where none is given)."""
        errors = None if other is None else {row.name: row.error for row in other.rows}
        return {
            row.name: (
                row.min,
                row.max,
                row.nan,
                row.inf,
                row.error,
                row.eager_error if errors is None else errors.get(row.name),
            )
            for row in self.rows
            if not row.reason
        }

    def split(self, other: ValuesSeen | None = None) -> tuple[str, float, float] | None:
        """The first node whose error is SPLIT times that of another rung (eager's own where none is given) and not
        small, with both errors; None where they go together."""
        for name, (_, _, _, _, error, beside) in self.columns(other).items():
            if error is None or beside is None or abs(error - beside) <= SMALL:
                continue
            if max(error, beside) > SPLIT * min(error, beside):
                return name, error, beside
        return None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return text if len(text := f"{value:.4g}") <= 9 else f"{value:.2e}"
