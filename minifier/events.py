"""What happens while minifying, as plain records: for progress displays, for --json, and for screens that follow a run.

Each is one line of OUT/events.jsonl (docs/minify-events.md), which `log` writes and `story` adds up, and most are lines
of `graphdbg minify --json --full`; `from_json` is the way back. Must not print, count, read or write.

>>> Stepped("windows", 7).to_json()
{'event': 'step', 'step': 'windows', 'queries': 7, 'words': 'looking for the place: windows of neighbouring nodes'}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from ..dumps.wording import counted
from .passes import NAMES as PASS_NAMES
from .passes import PASSES
from .search.problem import Answer
from .search.tiers import TIERS

VERSION = 1
"""Raised when a field changes its meaning or goes; new fields and events may come at any time."""

EVENTS_FILE = "events.jsonl"

PURPOSES = ("sanity", "search", "explanation", "verification")
"""What a query is to answer: does the original fail, does a candidate fail, is a part needed, does the saved result
fail."""
EXPLAINING = "needs"
"""The step whose queries are no part of the search."""

STEPS = tuple(dict.fromkeys([*(name for name, _ in TIERS), "explain", "outputs", "together", *PASS_NAMES, EXPLAINING]))
"""The steps of the search in their order; each can be disabled, enabled and raised."""

WORDS = {
    "sanity": "checking that it fails",
    "hint": "looking near what the failure names",
    "windows": "looking for the place: windows of neighbouring nodes",
    "labels": "looking for the place: one kind of operation at a time",
    "grow": "finding what else is needed",
    "chunks": "reducing large parts",
    "atoms": "reducing node by node",
    "blocks": "dropping blocks of nodes",
    "polish": "bypassing nodes that are left",
    "outputs": "dropping outputs",
    "together": "smaller shapes, simpler values, plainer strides at once",
    "axes": "smaller shapes, simpler values, plainer strides",
    "explain": "checking that each part is needed",
    "needs": "asking what each part that is left is needed for",
    "measuring": "measuring how often it fails",
    "verification": "checking the saved case in fresh processes",
    "report": "writing repro.py and issue.md, and trying the repro",
    **{name: row.words for name, row in PASSES.items() if row.words},
}
"""Step of the search -> plain words."""


def words(step: str) -> str:
    """A step in plain words; its own name where there are none."""
    return WORDS.get(step, step)


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """One event. `time` (seconds since 1970) and `life` (number of the process that wrote it, from 1) are set when it
    is written."""

    time: float = 0.0
    life: int = 0

    def to_json(self) -> dict[str, Any]:
        """The line of --json and OUT/events.jsonl."""
        line: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in line.items() if value or name not in ("time", "life")}


class Conditions(Happening, frozen=True, tag="conditions"):
    """The first event of a log. `header`: what the answers depend on (case, check, rung, torch, seed ...), which must
    be equal to resume. `about`: what else a process that resumes needs (graph, options, directory)."""

    header: dict[str, Any] = {}
    about: dict[str, Any] = {}


class Cut(Happening, frozen=True, tag="cut"):
    """The digest of how the graph was cut into atoms: candidates are named by atom numbers."""

    digest: str = ""


class Started(Happening, frozen=True, tag="start"):
    """A minification begins or goes on; `known` answers come from an earlier process."""

    graph: str = ""
    out: str = ""
    options: dict[str, Any] = {}
    known: int = 0
    version: int = VERSION


class Stepped(Happening, frozen=True, tag="step"):
    """A step of the search begins, after `queries` queries."""

    step: str
    queries: int = 0
    words: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "words", words(self.step))


class Judged(Happening, frozen=True, kw_only=True):
    """The fields of an `Answer` about a candidate."""

    case: str = ""
    verdict: str = ""
    signature: str = ""
    nodes: int = 0
    input_bytes: int = 0
    seconds: float = 0.0
    detail: str = ""
    failure: Any = None
    record: Any = None


class Answered(Judged, frozen=True, tag="answer"):
    """The judge's answer to the `run`-th time that a candidate was asked: written before anything else is asked, so
    that no later process asks it again. The `query` event says when the search took the answer in, and for what
    purpose."""

    run: int = 0

    @property
    def answer(self) -> Answer:
        """This event as an `Answer`. Raises ValueError for an unknown verdict."""
        return msgspec.convert(self, Answer, from_attributes=True)


class QueryAnswered(Judged, frozen=True, tag="query"):
    """One query was answered, the `queries`-th in all; `improved`: it is the smallest failing case so far."""

    queries: int = 0
    purpose: str = ""
    step: str = ""
    improved: bool = False
    recalled: bool = False


class Improved(Happening, frozen=True):
    """A case of the history, and its `number` there."""

    queries: int = 0
    case: str = ""
    nodes: int = 0
    input_bytes: int = 0
    number: int = 0


class Best(Improved, frozen=True, tag="best"):
    """The smallest failing case so far has become smaller."""


class QueryStarted(Happening, frozen=True, tag="asking"):
    """A query starts; it will be the `number`-th, unless a query beside it makes it needless."""

    number: int = 0
    purpose: str = ""
    step: str = ""
    case: str = ""


class Said(Happening, frozen=True, tag="say"):
    """A sentence for people, in OUT/events.jsonl; --json has them on stderr."""

    text: str = ""


class Steered(Happening, frozen=True, tag="steered"):
    """What became of an order of the user's (see `steering`): `state` is "applied" or "refused", `why` the reason.
    Written before the order acts: a process that resumes does the same at the same `turn`, the number of the stop
    between two queries."""

    id: str = ""
    what: str = ""
    state: str = "applied"
    why: str = ""
    step: str = ""
    number: int | None = None
    queries: int = 0
    turn: int = 0

    @property
    def sentence(self) -> str:
        """The outcome in one sentence, for people."""
        about = self.step if self.step and self.what != "skip" else "" if self.number is None else str(self.number)
        order = f"{self.what} {about}".strip()
        if self.state == "refused":
            return f"{order}: refused, {self.why}"
        step = f" ({words(self.step)})" if self.step else ""
        return f"{order}: done, after {counted(self.queries, 'query')}{step}"


class Restarted(Improved, frozen=True, tag="restarted"):
    """The search goes on from that case of its history; 0 is the original. What was found stays in the history."""


class Ended(Happening, frozen=True, tag="end"):
    """The process that minifies is done with OUT. `verdict`: "reduced", "interrupted" or "failed"; `why`: the reason of
    an early end."""

    verdict: str = ""
    why: str = ""
    case: str = ""
    nodes: int = 0
    input_bytes: int = 0
    queries: int = 0


Follow = Callable[[Happening], None]
"""A function that is called with each event, in order, in the thread that minifies."""


KEPT = Conditions | Cut | Answered | Steered
"""Events that a process that resumes needs: each is on the disk before the search goes on."""

_KNOWN = KEPT | Started | Stepped | QueryAnswered | Best | QueryStarted | Said | Restarted | Ended


def from_json(line: object) -> Happening | None:
    """The inverse of `to_json`; None for a line that this version does not know, or with other types than promised."""
    try:
        return msgspec.convert(line, _KNOWN, strict=False)
    except msgspec.ValidationError:
        return None
