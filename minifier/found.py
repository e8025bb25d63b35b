"""What the search found so far, as plain records: the result, other failures that were met, one answered query.

Must not ask, judge or print anything.

>>> others = Others()
>>> others.note(candidate, answer)
>>> [(other.signature, other.count) for other in others.listed()]
[('crash in compile: RuntimeError', 1)]
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from .problem import Answer, Candidate, Verdict


@dataclass
class Other:
    """Failures with one other signature: how often they were seen, and the smallest candidate that shows them."""

    signature: str
    detail: str
    count: int
    candidate: Candidate
    nodes: int
    failure: Any = None


@dataclass
class Result:
    """What a minification found. `best` is None while nothing smaller than the original was confirmed."""

    best: Candidate | None
    answer: Answer | None
    queries: int
    recalled: int
    history: list[tuple[int, int, int]]
    verdicts: Counter[Verdict]
    others: list[Other]
    stopped: str | None
    monotone: bool
    notes: list[str]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while minifying; `result` holds the best case so far."""

    def __init__(self, result: Result) -> None:
        super().__init__("interrupted")
        self.result = result
        self.minified: Any = None
        """The same as a `Minified`, once its case is on the disk."""


@dataclass(frozen=True)
class Event:
    """One answered query, for progress displays. `number`: how many improvements there were so far."""

    queries: int
    step: str
    candidate: Candidate
    answer: Answer
    improved: bool
    recalled: bool
    number: int = 0


class Others:
    """The bucket of failures with another signature than the one looked for."""

    def __init__(self) -> None:
        self._known: dict[str, Other] = {}

    def note(self, candidate: Candidate, answer: Answer) -> None:
        """Counts one; the smallest candidate of each signature is kept."""
        other = self._known.get(answer.signature)
        if other is None:
            self._known[answer.signature] = Other(
                answer.signature, answer.detail, 1, candidate, answer.nodes, answer.failure
            )
            return
        other.count += 1
        if answer.nodes < other.nodes:
            other.candidate, other.nodes, other.failure = candidate, answer.nodes, answer.failure

    def listed(self) -> list[Other]:
        """Those seen most often first."""
        return sorted(self._known.values(), key=lambda other: -other.count)
