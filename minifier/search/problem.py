"""What the search works on: a problem of numbered atoms, candidates over them, and the verdict of one oracle query.

Nothing here or in `engine` and `search` knows FX: tests and benchmarks drive the same search over generated graphs.

>>> Candidate.of([2, 0, 1]).text()
'0-2'
>>> Ruling.SAME.accepted, Ruling.OTHER.accepted
(True, False)
"""

from __future__ import annotations

import enum
import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from ...dumps.errors import UsageError
from ...toolkit.verdicts.verdict import OK, Verdict

DETAIL = 2000
"""Characters of an answer's text that are kept."""


class NothingToReduceError(UsageError):
    """There is no failure to reduce; `verdict` is what was judged instead."""

    exit_code = 1

    def __init__(self, what: str, why: str = "", fix: str = "", verdict: Verdict = OK) -> None:
        super().__init__(what, why, fix)
        self.verdict = verdict


class DoesNotFailError(NothingToReduceError):
    """The original case passes, or fails in another way than is asked for."""

    code = "GD30"


class CannotJudgeError(NothingToReduceError):
    """Whether the original case fails cannot be determined."""

    code = "GD31"
    exit_code = 4
    wider = ""
    """The graph that the case was made from, where that graph would show the failure."""


class Aborted(Exception):
    """A query was ended from outside: it has no answer and does not count."""


class Ruling(enum.Enum):
    """The verdict of one query. Only SAME is accepted; OTHER is a failure with another signature, and is counted and
    listed."""

    SAME = "same"
    PASS = "pass"
    OTHER = "other"
    INVALID = "invalid"
    """The candidate cannot be judged: it does not build, eager refuses it, or its eager run is not deterministic."""
    TIMEOUT = "timeout"
    INFRA = "infra"
    """Our own machinery failed (a lost server, a full disk): asked again, never held against the candidate."""

    @property
    def accepted(self) -> bool:
        return self is Ruling.SAME


@dataclass(frozen=True)
class Candidate:
    """One proposed smaller case.

    `keep` are the atoms that stay. `bypass` are atoms replaced by their first input of the same shape (see
    Problem.bypasses). `returned` are the atoms whose values are returned; None means the original outputs in `keep` and
    the sinks of `keep`. An atom in `returned` but not in `keep` is returned as an input. `edits` change other axes; the
    engine never looks inside.
    """

    keep: frozenset[int]
    bypass: frozenset[int] = frozenset()
    returned: frozenset[int] | None = None
    edits: tuple[str, ...] = ()

    @classmethod
    def of(cls, atoms: Iterable[int]) -> Candidate:
        """The candidate that keeps these atoms and changes nothing else."""
        return cls(frozenset(atoms))

    def keeping(self, atoms: Iterable[int]) -> Candidate:
        """The same candidate with other atoms kept."""
        return replace(self, keep=frozenset(atoms))

    def text(self) -> str:
        """A short, canonical name, the same in every process: the journal's key."""
        text = ranges(self.keep)
        if self.bypass:
            text += " bypass " + ranges(self.bypass)
        if self.returned is not None:
            text += " return " + (ranges(self.returned) or "nothing")
        if self.edits:
            text += " edits " + json.dumps(self.edits)
        return text

    def to_json(self) -> dict[str, Any]:
        """Plain data that travels to another process."""
        return msgspec.to_builtins(self, order="deterministic")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Candidate:
        """The inverse of to_json."""
        return msgspec.convert(data, cls)


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as ranges: {0, 1, 2, 7} is "0-2,7"."""
    parts: list[str] = []
    start = last = None
    for number in [*sorted(numbers), None]:
        if start is not None and last is not None and number != last + 1:
            parts.append(str(start) if start == last else f"{start}-{last}")
            start = number
        elif start is None:
            start = number
        last = number
    return ",".join(parts)


@dataclass(frozen=True)
class Answer:
    """The result of one query: the verdict, the failure's signature as text, and the size of what was tested.

    `detail` is for people (the error text of an OTHER, the reason of an INVALID). `seconds` is the query's own time.
    `failure`: what the signature is made of, as plain data that only the oracle understands; `record`: the same of the
    judge's own verdict.
    """

    verdict: Ruling
    signature: str = ""
    nodes: int = 0
    input_bytes: int = 0
    detail: str = ""
    seconds: float = 0.0
    failure: Any = field(default=None, compare=False)
    record: Any = field(default=None, compare=False)

    @property
    def size(self) -> tuple[int, int]:
        """The size that is minimised: nodes (placeholders and output included), then input bytes."""
        return self.nodes, self.input_bytes

    def to_json(self) -> dict[str, Any]:
        """The fields of a line of OUT/events.jsonl: texts within limits, no `failure` where it is the one looked
        for."""
        failure = None if self.verdict is Ruling.SAME else self.failure
        short = replace(self, detail=self.detail[:DETAIL], seconds=round(self.seconds, 4), failure=failure)
        return msgspec.to_builtins(short)


class Problem(Protocol):
    """A case to minimise: `size` atoms numbered in topological order, what lies before each, and the oracle."""

    @property
    def size(self) -> int: ...

    @property
    def hints(self) -> Sequence[int]:
        """Atoms that the failure names, likeliest first; may be empty and may be wrong."""
        ...

    def parents(self, atom: int) -> Sequence[int]:
        """The atoms whose values this one reads or whose memory it writes, all smaller than `atom`."""
        ...

    def label(self, atom: int) -> Hashable:
        """The kind of an atom (op, dtype, shape): equal labels in equal surroundings are tried as one."""
        ...

    def bypasses(self, atom: int) -> Sequence[int]:
        """Those of its parents that could take its place: same shape, stride, dtype and device."""
        ...

    def test(self, candidate: Candidate) -> Answer:
        """Builds the candidate and asks the oracle once. Must be thread-safe where the engine has an executor. Raises
        Aborted where the query was ended from outside."""
        ...


@dataclass
class Neighbours:
    """Children and parents of every atom of a problem, computed once."""

    parents: list[Sequence[int]]
    children: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.children = [[] for _ in self.parents]
        for atom, before in enumerate(self.parents):
            for parent in before:
                self.children[parent].append(atom)

    @classmethod
    def of(cls, problem: Problem) -> Neighbours:
        """Reads the whole problem once."""
        return cls([problem.parents(atom) for atom in range(problem.size)])
