"""The page of the zoo: how many programs and verdicts, and every program with a verdict that is not `ok`, with its
reason.

>>> holds([{"program": "lstm", "verdicts": [{"verdict": "ok"}]}])
True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
MOST = {"fails": 0.0, "rounding": 2.0, "cannot_tell": 2.0, "nondeterministic": 0.0}
"""Verdict -> the percentage of all verdicts that may be so."""


def percentages(rows: Sequence[Row]) -> dict[str, float]:
    """Verdict -> how many of a hundred verdicts are so."""
    counts = Counter(verdict["verdict"] for row in rows for verdict in row["verdicts"])
    every = sum(counts.values())
    return {word: 100 * count / every for word, count in counts.items()}


def holds(rows: Sequence[Row]) -> bool:
    """Whether the healthy programs are said to be healthy."""
    result = percentages(rows)
    return not any(row.get("error") for row in rows) and all(
        result.get(word, 0.0) <= most for word, most in MOST.items()
    )


def page(rows: Sequence[Row], asked: int, torch: str) -> Iterator[str]:
    """Its lines."""
    judged = [row for row in rows if not row.get("left_out")]
    left_out = Counter(row["left_out"] for row in rows if row.get("left_out"))
    counts = Counter(verdict["verdict"] for row in judged for verdict in row["verdicts"])
    shares = percentages(judged)
    seconds = sum(row["seconds"] for row in judged)
    yield f"{len(judged)} of {asked} programs judged, torch {torch}: {'holds' if holds(rows) else 'DOES NOT HOLD'}"
    for reason, count in left_out.items():
        yield f"{count} left out: {reason}"
    words = [f"{count} {word} ({shares[word]:.2f} %)" for word, count in counts.most_common()]
    yield f"{sum(counts.values())} verdicts on graphs: {', '.join(words)}"
    commands: Counter[str] = Counter()
    for row in judged:
        commands.update(row.get("commands", {}))
    times = ", ".join(f"{name} {taken:.0f}" for name, taken in commands.most_common())
    yield f"{seconds:.0f} s of work, {seconds / max(len(judged), 1):.1f} s a program ({times})"
    for word in ("fails", "cannot_tell", "nondeterministic", "rounding"):
        bad = [(row, [verdict for verdict in row["verdicts"] if verdict["verdict"] == word]) for row in judged]
        bad = [(row, result) for row, result in bad if result]
        if bad:
            yield f"\n{word}: {len(bad)} programs"
        for row, result in bad:
            yield from _lines(row["program"], result)
    errors = [row for row in rows if row.get("error")]
    if errors:
        yield f"\nnot judged to the end: {len(errors)} programs"
    for row in errors:
        yield f"  {row['program']}: {' '.join(row['error'].split())[-700:]}"


def _lines(program: str, sequence: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A line for each reason, with the graphs and commands that gave it."""
    reasons: dict[str, list[str]] = {}
    for item in sequence:
        kind = f"{item['kind']} ({item['fault']}): " if item.get("kind") else ""
        reasons.setdefault(kind + " ".join((item["reason"] or "").split())[:300], []).append(
            f"{item['by']} {item['graph']}"
        )
    for reason, graphs in reasons.items():
        more = f" and {len(graphs) - 3} more" if len(graphs) > 3 else ""
        yield f"  {program}: {', '.join(graphs[:3])}{more}: {reason}"
