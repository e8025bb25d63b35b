"""The order of the search, as data. Adding a step is its file and its line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dense import dense
from .grow import reduce_atoms
from .hint import hint
from .problem import Candidate
from .scattered import scattered
from .switches import switches
from .windows import windows

if TYPE_CHECKING:
    from ..engine import Engine, Step


from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..engine import Engine

MOST = 40
"""Atoms of a case that are polished; more would cost more queries than it is worth."""


def polish(engine: Engine, state: Candidate) -> Candidate:
    """Returns a case none of whose atoms can be bypassed or cut."""
    if engine.best is not None and not engine.fails(state):
        state = engine.best
    if len(state.keep) > MOST:
        return state
    tried: set[Candidate] = set()
    unsure = engine.repeats > 1 or not engine.monotone
    last = max(state.keep, default=0) + 1
    while True:
        # After a success with the atoms before it: those behind it were just tried in vain.
        order = sorted(state.keep, key=lambda atom, last=last: (atom >= last, -atom))
        proposals = [
            (atom, proposal) for atom in order for proposal in _proposals(engine, state, atom) if proposal not in tried
        ]
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
