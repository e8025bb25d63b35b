"""Compares two failures: are they the same? Each side is a case, a repro.py of ours, or a graph that is judged now.

Equal ids are the same failure. Else the parts of the ids are compared: parts that both sides are sure of must be equal;
other operations prove nothing where one failure was seen in a graph that is not minimised. Judges nothing itself.

For example:

    compared(side_of("small", judge), side_of("other/repro.py", judge)).says
    # 'same'
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..dumps import opening
from ..dumps.errors import WrongKindError
from ..dumps.store import SavedGraph
from ..dumps.wording import joined
from ..toolkit.verdicts.identity import Identity, of_graph
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import with_flags
from . import casefile

Says = Literal["same", "another", "cannot_tell"]
CODES: dict[Says, int] = {"same": 0, "another": 1, "cannot_tell": 4}

_WRITTEN = re.compile(r"\bSignature ([0-9a-f]{8})\.")
_WHOLE = "not minimised."
_HEAD_CHARACTERS = 4000


@dataclass(frozen=True)
class ComparedFailure:
    """One side of a comparison. `id`: empty where nothing fails or that is unknown, then `why` gives the reason;
    `failure` and `signature`: None for a repro.py that lies alone. `sharp`: see `Identity`. `next`: commands that would
    tell more.
    """

    name: str
    id: str = ""
    sharp: bool = True
    failure: Identity | None = None
    signature: Signature | None = None
    why: str = ""
    next: Sequence[str] = ()

    @classmethod
    def seen(cls, name: str, signature: Signature, saved: SavedGraph) -> ComparedFailure:
        """A side that is known to fail with this signature. Raises GraphdbgError where its graph cannot be read."""
        failure = of_graph(signature, saved)
        shrink = () if failure.sharp else (with_flags(shlex.join(["graphdbg", "minify", name])),)
        return cls(name, failure.id, failure.sharp, failure, signature, next=shrink)

    def plain(self) -> dict[str, Any]:
        """For --json."""
        fields = {"name": self.name, "signature_id": self.id or None, "minimised": self.sharp if self.id else None}
        text = self.signature.text() if self.signature is not None else None
        calls = list(self.failure.calls) if self.failure else []
        return {**fields, "signature": text, "calls": calls, "reason": self.why}


@dataclass(frozen=True)
class Compared:
    """The result of a comparison."""

    says: Says
    reason: str
    sides: tuple[ComparedFailure, ComparedFailure]
    next: list[str] = field(default_factory=list[str])

    def plain(self) -> dict[str, Any]:
        """For --json."""
        failure, other = self.sides
        return {"says": self.says, "reason": self.reason, "a": failure.plain(), "b": other.plain(), "next": self.next}


def compared(left: ComparedFailure, right: ComparedFailure) -> Compared:
    """Compares two sides."""
    says, reason = _compared(left, right)
    more = list(dict.fromkeys([*left.next, *right.next])) if says == "cannot_tell" else []
    return Compared(says, reason, (left, right), more)


def _compared(left: ComparedFailure, right: ComparedFailure) -> tuple[Says, str]:
    for side in (left, right):
        if not side.id:
            return "cannot_tell", side.why
    if left.id == right.id:
        return "same", f"both have the signature {left.id}"
    a, b = left.failure, right.failure
    if a is None or b is None:
        if left.sharp and right.sharp:
            return "another", "both are minimised, and their signatures differ"
        return "cannot_tell", "one of them is not minimised, so its signature is that of its whole graph"
    for field_name, name in {"kind": "kind", "stage": "stage", "error": "exception", "detail": "detail"}.items():
        first, second = getattr(a, field_name), getattr(b, field_name)
        if first != second:
            return "another", f"the {name} differs: {first or 'none'} and {second or 'none'}"
    assert left.signature is not None and right.signature is not None
    if not (left.signature.same_as(right.signature) or right.signature.same_as(left.signature)):
        return "another", "the errors' texts differ" if a.words or b.words else "the errors have different forms"
    if a.calls == b.calls:
        return "same", "the errors' texts are alike, and all else is equal"
    shared = sorted(set(a.calls) & set(b.calls))
    if left.sharp and right.sharp:
        if not shared:
            needs, others = (joined(calls) or "no operation" for calls in (a.calls, b.calls))
            return "another", f"one needs {needs}, the other {others}"
        return "cannot_tell", f"both are minimised and need {joined(shared)}, but their other operations differ"
    why = "a graph that is not minimised does not tell which operation is at fault"
    return "cannot_tell", f"both are of one kind, but {why}"


def side_of(text: str, judge: Callable[[SavedGraph], tuple[Signature | None, str]]) -> ComparedFailure:
    """The side that a name stands for. `judge` returns the signature of a graph without a case.json, or None, and why.
    Raises GraphdbgError where there is nothing of that name.
    """
    from ..dumps.store import Run, resolve
    from .failing import failing_graph
    from .search.problem import NothingToReduceError

    path = Path(text)
    if path.suffix == ".py" and path.is_file():
        return _of_program(path)
    if (path / "repro.py").is_file() and not any((path / name).exists() for name in ("case", "graph.json", "run.json")):
        return _of_program(path / "repro.py")  # what `report` wrote of a graph of a run
    resolved = resolve(text)
    if isinstance(resolved, Run):
        try:
            resolved, _ = failing_graph(resolved)
        except NothingToReduceError as error:
            return ComparedFailure(text, why=str(error), next=error.verdict.next)
    known = casefile.read(resolved.path)
    if known is not None and known.signature is not None:
        return ComparedFailure.seen(text, known.signature, resolved)
    signature, why = judge(resolved)
    if signature is not None:
        return ComparedFailure.seen(resolved.name, signature, resolved)
    return ComparedFailure(text, why=why, next=[with_flags(shlex.join(["graphdbg", "triage", resolved.name]))])


def rung_of(text: str) -> str:
    """The rung that a case was found under; empty for all else."""
    folder = Path(text)
    places = [place for place in (folder, folder / "case", folder.parent / "case") if (place / casefile.NAME).is_file()]
    known = casefile.read(places[0]) if places else None
    return known.rung if known is not None else ""


def _of_program(path: Path) -> ComparedFailure:
    """A repro.py: the case beside it, else what its head says."""
    from ..dumps.store import load_graph

    case = path.parent / "case"
    known = casefile.read(case) if case.is_dir() else None
    head = " ".join(opening.read_text(path, named=True)[:_HEAD_CHARACTERS].split())  # its lines are wrapped
    written = _WRITTEN.search(head)
    if known is not None and known.signature is not None:
        return ComparedFailure.seen(str(path), known.signature, load_graph(case))
    if written is None:
        what, why = f"{path} does not say which failure it shows", "it has no signature in its first lines"
        raise WrongKindError(what, why, "name the folder that minify wrote, a case or a graph of a run")
    return ComparedFailure(str(path), written[1], sharp=_WHOLE not in head)
