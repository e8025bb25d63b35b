"""What each part of a finished case is needed for, and the passing case nearest to it. Knows no FX.

Mostly free: the search has asked the single cuts already, and the engine remembers. `certify` asks those that are missing,
which are the smallest and cheapest queries of all, and so also finds a cut that was believed to pass by mistake.

>>> [(part.atom, part.verdict) for part in parts(engine, engine.best)]
[(30, 'pass'), (270, 'pass')]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .passes import NEUTRAL
from .problem import Answer, Candidate, Verdict

if TYPE_CHECKING:
    from .engine import Engine

MOST = 6
"""Atoms of a case that are explained by queries of their own; larger cases say what the search happened to ask."""
SAMPLES = 4
"""Cuts of a larger case that are tried."""
TELLING = (
    "probes size", "dims", "probes constant", "symbols", "probes operator", "operators", "probes transposed", "strides", "dtypes",
    "values", "probes fill", "probes cut", "switches",
)
"""Changes, from the one that tells most about a failure that it ends: a size one larger, to a setting at its default."""
NEAR = 3
"""Changes away at which a passing case still says something about the failing one."""


@dataclass(frozen=True)
class Part:
    """One atom of a finished case, and what happened without it: a verdict, and the other failure's text where there was one."""

    atom: int
    verdict: str
    signature: str = ""


@dataclass(frozen=True)
class Neighbour:
    """A passing case and its difference to the failing one. `plain`: to that as it was before its other axes were changed."""

    candidate: Candidate
    answer: Answer
    dropped: tuple[int, ...] = ()
    edits: tuple[str, ...] = ()
    plain: bool = False


def without(case: Candidate, atom: int) -> Candidate | None:
    """The case less one atom; None where nothing is left of it."""
    keep = case.keep - {atom}
    returned = None if case.returned is None else (case.returned - {atom}) or None
    return replace(case, keep=keep, returned=returned) if keep else None


def certify(engine: Engine, state: Candidate) -> Candidate:
    """Asks each single cut of a small case that was not asked yet; goes on with one that fails after all.

    Cuts that are implied by what passed are asked too: were one of those passes an accident, it shows here.
    """
    return _certified(engine, engine.best or state)


def _certified(engine: Engine, state: Candidate) -> Candidate:
    if len(state.keep) > MOST:
        return _sampled(engine, state)
    position = 0
    while position < len(state.keep):
        smaller = without(state, sorted(state.keep)[position])
        if smaller is not None and engine.ask(smaller, afresh=True):
            state, position = smaller, 0
        else:
            position += 1
    return state


def _sampled(engine: Engine, state: Candidate) -> Candidate:
    """Of a larger case a few cuts only: where passes were accidents, most of its atoms are not needed, and that shows."""
    atoms = sorted(state.keep)
    for place in range(SAMPLES):
        smaller = without(state, atoms[place * (len(atoms) - 1) // (SAMPLES - 1)])
        if smaller is not None and engine.ask(smaller, afresh=True):
            return _certified(engine, smaller)
    return state


def parts(engine: Engine, case: Candidate) -> list[Part]:
    """What is known of each atom: of its cut from the case as it is, or from a case that differs in edits alone."""
    found: list[Part] = []
    for atom in sorted(case.keep):
        smaller = without(case, atom)
        answer = None if smaller is None else engine.answer(smaller) or _plain(engine, smaller)
        verdict = "all" if smaller is None else "unknown" if answer is None else answer.verdict.value
        found.append(Part(atom, verdict, answer.signature if answer and answer.verdict is Verdict.OTHER else ""))
    return found


def _plain(engine: Engine, case: Candidate) -> Answer | None:
    """The answer to the same atoms before other axes were changed."""
    return engine.answer(replace(case, edits=(), returned=None))


def neighbour(engine: Engine, case: Candidate) -> Neighbour | None:
    """The passing case with the fewest changes to `case`, at most NEAR: the most telling (TELLING), then what was asked last.

    Where there is none, the one nearest to the same atoms before their shapes, values and outputs were changed.
    """
    plain = replace(case, edits=(), returned=None)
    return _nearest(engine, case) or (_nearest(engine, plain, plain=True) if engine.fails(plain) else None)


def _nearest(engine: Engine, case: Candidate, *, plain: bool = False) -> Neighbour | None:
    best: tuple[tuple[int, int, int], Neighbour] | None = None
    for number, (candidate, answer) in enumerate(engine.answered()):
        if answer.verdict is not Verdict.PASS or candidate.bypass != case.bypass:
            continue
        changed = tuple(sorted(candidate.keep ^ case.keep))
        edits = (*_beyond(candidate.edits, case.edits), *_beyond(case.edits, candidate.edits))
        distance = len(changed) + len(edits)
        probe = any(edit.startswith("probes ") for edit in edits)  # of those the most telling was asked first
        place = max((_place(edit) for edit in edits), default=TELLING.index("probes cut"))
        order = distance, place, number if probe else -number
        if 0 < distance <= NEAR and (best is None or order < best[0]):
            best = order, Neighbour(candidate, answer, changed, edits, plain)
    return best and best[1]


def _place(edit: str) -> int:
    """How telling it is that a case passes with this edit."""
    return next((place for place, name in enumerate(TELLING) if f"{edit} ".startswith(f"{name} ")), TELLING.index("values"))


def _beyond(edits: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """The edits that others lack; other names are no difference."""
    return tuple(edit for edit in edits if edit not in others and edit.partition(" ")[0] not in NEUTRAL)
