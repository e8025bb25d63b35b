"""What the values of a graph's nodes say: the first bad node, the largest error, whether extra outputs changed the
failure.

Plain data in, plain data and sentences out; imports no torch.

For example:

    first_bad_of_eager([{"name": "exp", "nan": 0, "inf": 3, "reference_inf": 0, ...}])["name"]  # -> 'exp'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from ...dumps.wording import counted
from ..verdicts.signature import Signature
from ..verdicts.verdict_words import RELATIONS

Row = dict[str, Any]
Relation = Literal["right", "same", "other", "gone", "new", "unknown"]

NO_PROGRAM = ("crash", "signal", "hang", "memory")
"""Failures that leave no program whose values could be read."""
THE_MODELS = "the model's own"
"""Whose a NaN is that eager gives, too, in a graph that no pass of the user's changed."""


def relation(plain: Signature | None, tapped: Signature | None) -> Relation:
    """How the failure of a program with extra outputs compares with the failure of the program itself."""
    if plain is None:
        return "right" if tapped is None else "new"
    if plain.undecided:
        return "unknown"
    if tapped is None:
        return "gone"
    return "same" if plain.same_as(tapped) else "other"


def first_bad_of_eager(rows: Iterable[Row]) -> Row | None:
    """The first node whose value holds a NaN or Inf that float64 does not have; else the first with a NaN at all."""
    nan: Row | None = None
    for row in rows:
        if "reason" in row:
            continue
        for kind in ("inf", "nan"):
            if row.get(f"reference_{kind}") is not None and row[kind] > row[f"reference_{kind}"]:
                return _bad(
                    row, "overflow", f"{row[kind]} {kind.capitalize()} that float64 does not have ({row['dtype']})"
                )
        if nan is None and row["nan"]:
            nan = row
    return None if nan is None else _bad(nan, "nan", f"{nan['nan']} NaN, in float64 as well: {THE_MODELS}")


def first_bad_of_rung(rows: Sequence[Row], wrong: Sequence[dict[str, Any]]) -> Row | None:
    """The first of the values that are wrong on right inputs, with where it is; else the first NaN, which eager has,
    too."""
    if not wrong:
        nan = next((row for row in rows if row.get("nan") and row.get("eager_nan")), None)
        return None if nan is None else _bad(nan, "nan", f"{nan['nan']} NaN, in eager as well: {THE_MODELS}")
    known = {row["name"]: row for row in rows}
    bad = wrong[0]
    return _bad(known.get(bad["name"], {"name": bad["name"]}), bad["kind"], bad["text"]) | {
        "on_right_inputs": bad["error"]
    }


def largest(rows: Iterable[Row]) -> Row | None:
    """The node with the largest error to float64."""
    worst = max((row for row in rows if row.get("error")), key=lambda row: row["error"], default=None)
    return None if worst is None else {key: worst.get(key) for key in ("name", "index", "line", "error", "eager_error")}


def _bad(row: Row, kind: str, text: str) -> Row:
    return {
        **{key: row.get(key) for key in ("name", "index", "line", "error", "eager_error")},
        "kind": kind,
        "text": text,
    }


def finding(end: Row) -> str:
    """The last event in sentences: the first bad node, the largest error, how the values were read."""
    parts: list[str] = []
    bad, worst = end.get("first_bad"), end.get("largest")
    if bad is not None:
        parts.append(f"First bad node: {_place(bad)}, {bad['text']}{_right_inputs(bad)}.")
    elif end.get("relation") in (None, "right", "same", "new", "other") and end["rows"]:
        parts.append("No value is bad by itself.")
    if worst is not None:
        own = "" if worst.get("eager_error") is None else f" (eager's own {worst['eager_error']:.1e})"
        parts.append(f"Largest error to float64: {worst['error']:.1e}{own} at {_place(worst)}.")
    if end.get("relation") is not None:
        read = f"Read with {counted(end['outputs'], 'extra output')}"
        parts.append(f"{read}: the compiled program differs; {RELATIONS[end['relation']]}.")
    if end.get("no_reference"):
        parts.append(f"No float64 values: {end['no_reference']}.")
    if end.get("stopped"):
        parts.append(f"{end['stopped'][:1].upper()}{end['stopped'][1:]}.")
    return " ".join(parts)


def _right_inputs(bad: Row) -> str:
    size = bad.get("on_right_inputs")
    return "" if size is None or f"{size:.2g}" in bad["text"] else f", error {size:.2g} on right inputs"


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
    numbers = [_number(row[key]) for key in ("min", "max", "mean")]
    errors = [size_text(row.get(key)) for key in ("error", "eager_error")]
    return _aligned([row["name"], row["dtype"], *numbers, *(str(row[key] or "") for key in ("nan", "inf")), *errors])


def _aligned(cells: Sequence[str]) -> str:
    return "  ".join(
        cell.ljust(width) if place < 2 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ).rstrip()


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def size_text(value: float | None) -> str:
    """An error as a table shows it."""
    return "" if value is None else "0" if value == 0 else f"{value:.1e}"
