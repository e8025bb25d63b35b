"""The order of the search, as data, and its short steps: switches, hint and polish. Adding a step is a function, in a
file of its own where it is long, and its line in `TIERS`.

Switches: settings of the whole case are turned off before anything is cut, one query each: dynamic sizes, gradients,
slow settings; random ops are replaced by the numbers that they drew. Only what a case has is tried; most have nothing.
A random op that goes puts the remaining ones out of step, so all of them are frozen at once, or none.

Hints: small balls round atoms that the failure itself names. A failure names an operator more often than a node: of
atoms with the same label and surroundings (Weisfeiler-Lehman classes) the first stands for all. A right hint finds one
op in one query, its neighbourhood in two to four; a wrong one costs as many tiny queries as there are SIZES.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .dense import dense
from .grow import reduce_atoms
from .neighbourhood import ball, classes
from .problem import Candidate
from .scattered import scattered
from .windows import windows

if TYPE_CHECKING:
    from ..engine import Engine, Step

SIZES = (1, 4, 16, 64)
HINTS = 2
"""Hints that are tried; the failure names the guilty one first or not at all."""
POLISHED = 40
"""Atoms of a case that are polished; more would cost more queries than it is worth."""


def switches(engine: Engine, state: Candidate) -> Candidate:
    """The case with every switch off that its failure does not need."""
    edits: Sequence[str] = getattr(engine.problem, "switches", ())
    for edit in edits:
        changed = replace(state, edits=(*state.edits, edit))
        if edit not in state.edits and engine.ask(changed):
            state = changed
    drawing = state.keep.intersection(getattr(engine.problem, "drawing", ()))
    frozen = state.keeping(state.keep - drawing)
    if drawing and frozen.keep and engine.ask(frozen):
        return frozen
    return state


def hint(engine: Engine, state: Candidate) -> Candidate:
    """The smallest ball round a hinted atom that fails the same way, or the case as it was."""
    hinted = [atom for atom in engine.problem.hints if atom in state.keep]
    if not hinted:
        return state
    colours = classes(engine.neighbours, engine.problem.label, state.keep)
    first: dict[int, int] = {}
    for atom in hinted:
        first.setdefault(colours[atom], atom)
    for centre in list(first.values())[:HINTS]:
        sizes = [size for size in SIZES if size < len(state.keep)]
        balls = [state.keeping(ball(engine.neighbours, centre, size, state.keep)) for size in sizes]
        if (place := engine.first(balls)) is not None:
            return balls[place]
    return state


def polish(engine: Engine, state: Candidate) -> Candidate:
    """Returns a case none of whose atoms can be bypassed or cut."""
    if engine.best is not None and not engine.fails(state):
        state = engine.best
    if len(state.keep) > POLISHED:
        return state
    tried: set[Candidate] = set()
    unsure = engine.repeats > 1 or not engine.monotone
    last = max(state.keep, default=0) + 1
    while True:
        # After a success with the atoms before it: those behind it were just tried in vain.
        order = sorted(state.keep, key=lambda atom, last=last: (atom >= last, -atom))
        every = [(atom, proposal) for atom in order for proposal in _proposals(engine, state, atom)]
        proposals = [row for row in every if row[1] not in tried]
        accepted = engine.first([proposal for _, proposal in proposals], afresh=unsure)
        if accepted is None:
            return state
        tried |= {proposal for _, proposal in proposals[: accepted + 1]}
        last, state = proposals[accepted]


def _proposals(engine: Engine, state: Candidate, atom: int) -> list[Candidate]:
    rest = state.keep - {atom}
    if not rest:
        return []
    proposals = [state.keeping(rest)]
    used = any(child in state.keep or child in state.bypass for child in engine.neighbours.children[atom])
    before = engine.problem.bypasses(atom)
    if used and any(parent in state.keep or parent in state.bypass for parent in before):
        proposals.insert(0, replace(state, keep=rest, bypass=state.bypass | {atom}))
    return proposals


FINISH: list[tuple[str, Step]] = [("polish", polish)]

TIERS: list[tuple[str, Step]] = [
    ("switches", switches),
    ("hint", hint),
    ("windows", windows),
    ("chunks", scattered),
    ("atoms", reduce_atoms),
    *FINISH,
]


def gentle(largest: int) -> list[tuple[str, Step]]:
    """A search that never drops more than `largest` atoms in one query, for failures that break easily."""

    def blocks(engine: Engine, state: Candidate) -> Candidate:
        return dense(engine, state, largest=largest)

    return [("blocks", blocks), *FINISH]
