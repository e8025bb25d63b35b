"""Collects the values of a graph's nodes from the lines of `replay --values --json-lines`: rows, bad nodes, the
finding.

Also: the conclusions from them: the first bad node, the largest error, whether extra outputs changed the failure.

Plain data for a screen: no torch, no widget, no process.

>>> seen = ValuesSeen()
>>> seen.take({"event": "value", "name": "exp", "min": 0.0, "max": 1.0, "nan": 0, "inf": 0, "error": 1e-7})
>>> seen.columns()["exp"]
(0.0, 1.0, 0, 0, 1e-07, None)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from ...dumps.wording import counted
from ..verdicts.signature import Signature
from ..verdicts.verdict_words import RELATIONS

Relation = Literal["right", "same", "other", "gone", "new", "unknown"]

NO_PROGRAM = ("crash", "signal", "hang", "memory")
"""Failures after which there is no compiled program to read values from."""
THE_MODELS = "the fault is in the model"
"""Where the fault is for a NaN that eager gives, too."""


def relation(plain: Signature | None, tapped: Signature | None) -> Relation:
    """Compares the failure of a program with extra outputs with that of the program itself."""
    if plain is None:
        return "right" if tapped is None else "new"
    if plain.undecided:
        return "unknown"
    if tapped is None:
        return "gone"
    return "same" if plain.same_as(tapped) else "other"


def first_bad_of_eager(rows: Iterable[Row]) -> Row | None:
    """The first node with more NaN or Inf than in float64; else the first with a NaN."""
    nan: Row | None = None
    for row in rows:
        if "reason" in row:
            continue
        for kind in ("inf", "nan"):
            if row.get(f"reference_{kind}") is not None and row[kind] > row[f"reference_{kind}"]:
                too_many = f"{row[kind]} {kind.capitalize()} that float64 does not have ({row['dtype']})"
                return _bad(row, "overflow", too_many)
        if nan is None and row["nan"]:
            nan = row
    return None if nan is None else _bad(nan, "nan", f"{nan['nan']} NaN, in float64 as well: {THE_MODELS}")


def first_bad_of_rung(rows: Sequence[Row], wrong: Sequence[dict[str, Any]]) -> Row | None:
    """The first value that is wrong on right inputs; else the first NaN that eager has, too."""
    if not wrong:
        nan = next((row for row in rows if row.get("nan") and row.get("eager_nan")), None)
        return None if nan is None else _bad(nan, "nan", f"{nan['nan']} NaN, in eager as well: {THE_MODELS}")
    known, bad = {row["name"]: row for row in rows}, wrong[0]
    bad_row = _bad(known.get(bad["name"], {"name": bad["name"]}), bad["kind"], bad["text"])
    return bad_row | {"on_right_inputs": bad["error"]}


def largest(rows: Iterable[Row]) -> Row | None:
    """The node with the largest error to float64."""
    worst = max((row for row in rows if row.get("error")), key=lambda row: row["error"], default=None)
    return None if worst is None else {key: worst.get(key) for key in _NAMED}


_NAMED = ("name", "index", "line", "error", "eager_error")


def _bad(row: Row, kind: str, text: str) -> Row:
    return {**{key: row.get(key) for key in _NAMED}, "kind": kind, "text": text}


def finding(end: Row) -> str:
    """The last event as sentences: the first bad node, the largest error, how the values were read."""
    parts: list[str] = []
    bad, worst = end.get("first_bad"), end.get("largest")
    if bad is not None:
        size = "" if bad.get("on_right_inputs") is None else f"{bad['on_right_inputs']:.2g}"
        off = f", error {size} on right inputs" if size not in bad["text"] else ""
        parts.append(f"First bad node: {_place(bad)}, {bad['text']}{off}.")
    elif end.get("relation") in (None, "right", "same", "new", "other") and end["rows"]:
        parts.append("No value is bad by itself.")
    if worst is not None:
        own = "" if worst.get("eager_error") is None else f" (eager's own {worst['eager_error']:.1e})"
        parts.append(f"Largest error to float64: {worst['error']:.1e}{own} at {_place(worst)}.")
    if end.get("relation") is not None:
        read = f"Read with {counted(end['outputs'], 'extra output')}"
        parts.append(f"{read}, which change the compiled program; {RELATIONS[end['relation']]}.")
    if end.get("no_reference"):
        parts.append(f"No float64 values: {end['no_reference']}.")
    if end.get("stopped"):
        parts.append(f"{end['stopped'][:1].upper()}{end['stopped'][1:]}.")
    return " ".join(parts)


def _place(row: Row) -> str:
    return f"`{row['name']}`" + (f" ({row['line']})" if row.get("line") else "")


COLUMNS = ("node", "dtype", "min", "max", "mean", "nan", "inf", "error", "eager's")
_WIDTHS = (28, 9, 10, 10, 10, 6, 6, 8, 8)


def heading() -> str:
    """The first line of the table."""
    return _aligned(COLUMNS)


def line(row: Row) -> str:
    """A row of the table; every line can be written as soon as its row is there."""
    if "reason" in row:
        return f"{row['name']:<{_WIDTHS[0]}}  ({row['reason']})"
    numbers = [_short_number(row[key]) for key in ("min", "max", "mean")]
    errors = [size_text(row.get(key)) for key in ("error", "eager_error")]
    return _aligned([row["name"], row["dtype"], *numbers, *(str(row[key] or "") for key in ("nan", "inf")), *errors])


def _aligned(cells: Sequence[str]) -> str:
    return "  ".join(
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ).rstrip()


def _short_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def size_text(value: float | None) -> str:
    """An error as a table shows it."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"


Row = dict[str, Any]

STAGES = {
    "as it is": "judging the graph as it is",
    "eager": "running it eagerly",
    "compile": "compiling it with its values as outputs",
    "run": "running what was compiled",
    "compare": "comparing with float64",
}


SPLIT, SMALL = 10.0, 1e-3
"""Two rungs split at a node where one error is more than SPLIT times the other, and the difference more than SMALL."""


class NodeValue(msgspec.Struct, gc=False):
    """The fields kept of a "value" line; few, since a graph may have 100,000 nodes."""

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
    """The values so far. `end`: the data of the last line; `ended`: how the process ended, if it wrote none."""

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
        """Takes in one line."""
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
        """Whether the values belong to the failure: not where extra outputs made it disappear."""
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

    def sentence(self) -> str:
        """The finding, or the progress so far."""
        if self.end:
            return str(self.end.get("sentence", ""))
        if self.ended:
            stand = counted(len(self.rows), "row so far stands", "rows so far stand")
            return f"reading the values {self.ended}; the {stand}"
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
        errors = {row.name: row.eager_error for row in self.rows}
        if other is not None:
            errors = {row.name: row.error for row in other.rows}
        return {
            row.name: (row.min, row.max, row.nan, row.inf, row.error, errors.get(row.name))
            for row in self.rows
            if not row.reason
        }

    def split(self, other: ValuesSeen | None = None) -> tuple[str, float, float] | None:
        """The first node whose error differs from another rung's (default: eager's) by more than SPLIT and SMALL, with
        both errors; None where they go together."""
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
