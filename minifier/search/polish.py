"""E. Polish: bypass, or cut, each atom until none can go.

Cuts are tried one by one only where they may still succeed: after a bypass or a join, or when a candidate passed although a part
of it fails. Otherwise the reduction has shown that every atom is needed.
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
    """Returns a case none of whose atoms can be bypassed (or cut, where that was in doubt)."""
    if engine.best is not None and not engine.fails(state):
        state = engine.best
    if len(state.keep) > MOST:
        return state
    doubtful = bool(state.bypass) or not engine.monotone
    tried: set[Candidate] = set()
    changed = True
    while changed:
        changed = False
        for atom in sorted(state.keep, reverse=True):
            for candidate in _proposals(engine, state, atom, doubtful):
                if candidate in tried:
                    continue
                tried.add(candidate)
                if engine.ask(candidate):
                    state, changed, doubtful = candidate, True, True
                    break
    return state


def _proposals(engine: Engine, state: Candidate, atom: int, cuts: bool) -> list[Candidate]:
    rest = state.keep - {atom}
    if not rest:
        return []
    proposals = [state.keeping(rest)] if cuts else []
    used = any(child in state.keep or child in state.bypass for child in engine.neighbours.children[atom])
    before = engine.problem.bypasses(atom)
    if used and any(parent in state.keep or parent in state.bypass for parent in before):
        proposals.insert(0, replace(state, keep=rest, bypass=state.bypass | {atom}))
    return proposals
