"""What happens while minifying, as plain records: for progress displays, for --json, and for screens that follow a run.

Each has `to_json()`, one object per line under `graphdbg minify --json` and in OUT/events.jsonl (docs/minify-events.md);
`from_json` is the way back. Must not print or count.

>>> Stepped("windows", 7).to_json()
{'event': 'step', 'step': 'windows', 'words': 'looking for the place: windows of neighbouring nodes', 'queries': 7}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..dumps.wording import counted
from .problem import Answer, Verdict

VERSION = 1
"""Raised when a field changes its meaning or goes; new fields and events may come at any time."""

DETAIL = 2000
"""Characters of an answer's text that are told."""

PURPOSES = ("sanity", "search", "explanation", "verification")
"""What a query is for: does the original fail, does a candidate, what is each part needed for, does the saved result."""
EXPLAINING = "needs"
"""The step whose queries are no part of the search."""

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
    "symbols": "symbolic sizes made numbers",
    "bodies": "smaller graphs inside higher-order operators",
    "operands": "what nobody reads of higher-order operators",
    "ranks": "fewer dimensions",
    "dtypes": "plainer dtypes",
    "operators": "simpler operators and numbers",
    "program": "entering through torch.compile, as a plain program",
    "names": "plain names",
    "inputs": "one input in place of several",
    "together": "smaller shapes, simpler values, plainer strides at once",
    "axes": "smaller shapes, simpler values, plainer strides",
    "explain": "checking that each part is needed",
    "needs": "asking what each part that is left is needed for",
    "measuring": "measuring how often it fails",
    "verification": "checking the saved case in fresh processes",
    "report": "writing repro.py and issue.md, and trying the repro",
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
            "recalled": self.recalled, "detail": answer.detail[:DETAIL],
            "failure": None if answer.verdict is Verdict.SAME else answer.failure, "record": answer.record,
        }  # fmt: skip


@dataclass(frozen=True)
class Best:
    """The smallest failing case so far has become smaller. `number`: its place in the history, 1 for the first one."""

    queries: int
    case: str
    nodes: int
    input_bytes: int
    number: int = 0

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {
            "event": "best", "queries": self.queries, "case": self.case, "nodes": self.nodes,
            "input_bytes": self.input_bytes, "number": self.number,
        }  # fmt: skip


@dataclass(frozen=True)
class Asking:
    """A query starts; it will be the `number`-th, unless one of those that run beside it makes it needless."""

    number: int
    purpose: str
    step: str
    case: str

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {"event": "asking", "number": self.number, "purpose": self.purpose, "step": self.step, "case": self.case}


@dataclass(frozen=True)
class Said:
    """A sentence for people."""

    text: str

    def to_json(self) -> dict[str, Any]:
        """The line of OUT/events.jsonl; --json has sentences on stderr."""
        return {"event": "say", "text": self.text}


@dataclass(frozen=True)
class Steered:
    """What became of an order of the user's (see `control`): `state` is "applied" or "refused", then with the reason."""

    id: str
    what: str
    state: str
    why: str = ""
    step: str = ""
    number: int | None = None
    queries: int = 0

    @property
    def sentence(self) -> str:
        """For people."""
        about = self.step if self.step and self.what != "skip" else "" if self.number is None else str(self.number)
        order = f"{self.what} {about}".strip()
        if self.state == "refused":
            return f"{order}: refused, {self.why}"
        return f"{order}: done, after {counted(self.queries, 'query')}" + (f" ({words(self.step)})" if self.step else "")

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {
            "event": "steered", "id": self.id, "what": self.what, "state": self.state, "why": self.why, "step": self.step,
            "number": self.number, "queries": self.queries,
        }  # fmt: skip


@dataclass(frozen=True)
class Restarted:
    """The search goes on from the `number`-th case of its history; 0 is the original. What was found stays in the history."""

    number: int
    queries: int
    case: str
    nodes: int
    input_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The line of --json."""
        return {
            "event": "restarted", "number": self.number, "queries": self.queries, "case": self.case, "nodes": self.nodes,
            "input_bytes": self.input_bytes,
        }  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """The process that minifies is done with OUT. `verdict`: "reduced", "interrupted" or "failed"; `why` it ended early."""

    verdict: str
    why: str = ""
    case: str = ""
    nodes: int = 0
    input_bytes: int = 0
    queries: int = 0

    def to_json(self) -> dict[str, Any]:
        """The line of OUT/events.jsonl."""
        return {
            "event": "end", "verdict": self.verdict, "why": self.why, "case": self.case, "nodes": self.nodes,
            "input_bytes": self.input_bytes, "queries": self.queries,
        }  # fmt: skip


Happening = Started | Stepped | Asked | Best | Asking | Said | Steered | Restarted | Ended
Follow = Callable[[Happening], None]
"""Who is told; called in the thread that minifies, in order."""

_KINDS: dict[str, type[Happening]] = {
    "start": Started, "step": Stepped, "best": Best, "asking": Asking, "say": Said, "steered": Steered,
    "restarted": Restarted, "end": Ended,
}  # fmt: skip
_ANSWER = ("signature", "nodes", "input_bytes", "detail", "seconds", "failure", "record")


def from_json(line: Mapping[str, Any]) -> Happening | None:
    """The inverse of `to_json`; None for a line that this version does not know. Raises TypeError, ValueError or KeyError where
    fields are missing."""
    kind = line.get("event")
    if kind == "query":
        answer = Answer(Verdict(line["verdict"]), **{name: line[name] for name in _ANSWER if name in line})
        return Asked(answer=answer, **{field.name: line[field.name] for field in fields(Asked) if field.name in line})
    cls = _KINDS.get(str(kind))
    return None if cls is None else cls(**{field.name: line[field.name] for field in fields(cls) if field.name in line})
