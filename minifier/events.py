"""What happens while minifying, as plain records: for progress displays, for --json, and for screens that follow a run.

Each has `to_json()`, one object per line under `graphdbg minify --json` (docs/minify-events.md). Must not print or count.

>>> Stepped("windows", 7).to_json()
{'event': 'step', 'step': 'windows', 'words': 'looking for the place: windows of neighbouring nodes', 'queries': 7}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .problem import Answer

VERSION = 1
"""Raised when a field changes its meaning or goes; new fields and events may come at any time."""

PURPOSES = ("sanity", "search", "verification")
"""What a query is for: does the original fail, does a candidate, does the saved result."""

WORDS = {
    "sanity": "checking that it fails",
    "hint": "looking near what the failure names",
    "switches": "turning off settings that are not needed",
    "windows": "looking for the place: windows of neighbouring nodes",
    "labels": "looking for the place: one kind of operation at a time",
    "grow": "finding what else is needed",
    "chunks": "reducing large parts",
    "atoms": "reducing node by node",
    "blocks": "dropping blocks of nodes",
    "polish": "bypassing nodes that are left",
    "outputs": "dropping outputs",
    "dims": "smaller shapes",
    "values": "simpler values",
    "strides": "plainer strides",
    "together": "smaller shapes, simpler values, plainer strides at once",
    "axes": "smaller shapes, simpler values, plainer strides",
    "explain": "checking that each part is needed",
    "measuring": "measuring how often it fails",
    "verification": "checking the saved case in fresh processes",
}
"""Step of the search -> plain words."""


def words(step: str) -> str:
    """A step in plain words; its own name where there are none."""
    return WORDS.get(step, step)


@dataclass(frozen=True)
class Started:
    """A minification begins or goes on; `known` answers come from an earlier process."""

    graph: str
    out: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    known: int = 0

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {
            "event": "start", "version": VERSION, "graph": self.graph, "out": self.out, "options": self.options,
            "known": self.known,
        }  # fmt: skip


@dataclass(frozen=True)
class Stepped:
    """A step of the search begins, after `queries` queries."""

    step: str
    queries: int

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {"event": "step", "step": self.step, "words": words(self.step), "queries": self.queries}


@dataclass(frozen=True)
class Asked:
    """One query was answered, the `queries`-th in all; `improved`: it is the smallest failing case so far."""

    queries: int
    purpose: str
    step: str
    case: str
    answer: Answer
    improved: bool = False
    recalled: bool = False

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        answer = self.answer
        return {
            "event": "query", "queries": self.queries, "purpose": self.purpose, "step": self.step, "case": self.case,
            "verdict": answer.verdict.value, "signature": answer.signature, "nodes": answer.nodes,
            "input_bytes": answer.input_bytes, "seconds": round(answer.seconds, 4), "improved": self.improved,
            "recalled": self.recalled,
        }  # fmt: skip


@dataclass(frozen=True)
class Best:
    """The smallest failing case so far has become smaller."""

    queries: int
    case: str
    nodes: int
    input_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {
            "event": "best", "queries": self.queries, "case": self.case, "nodes": self.nodes,
            "input_bytes": self.input_bytes,
        }  # fmt: skip


Happening = Started | Stepped | Asked | Best
Follow = Callable[[Happening], None]
"""Who is told; called in the thread that minifies, in order."""
