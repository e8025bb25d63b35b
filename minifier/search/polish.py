"""E. Polish: bypass, or cut, each atom until none can go.

Every cut is proposed; those that must pass, because they are parts of what passed, cost no query while the failure is monotone.
So a case that the reduction left is certified minimal by the few cuts that it did not try. Of a flaky or non-monotone failure
each is asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..problem import Candidate

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
    changed = True
    while changed:
        changed = False
        for atom in sorted(state.keep, reverse=True):
            for candidate in _proposals(engine, state, atom):
                if candidate in tried:
                    continue
                tried.add(candidate)
                if engine.ask(candidate, afresh=unsure):
                    state, changed = candidate, True
                    break
    return state


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
