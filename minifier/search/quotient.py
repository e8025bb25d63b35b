"""A2. Quotient: one representative of every kind of surroundings, in one query.

Networks repeat a block many times. Atoms with the same label and the same surroundings up to two hops (Weisfeiler-Lehman
classes) are taken as one; the candidate is one representative of each with its ancestors up to two hops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problem import Candidate
from .neighbourhood import classes

if TYPE_CHECKING:
    from ..engine import Engine

HOPS = 2
LEAST = 24
"""Below this many atoms a query is better spent on halving."""


def quotient(engine: Engine, state: Candidate) -> Candidate:
    """The quotient where it fails the same way; not tried where it would keep more than half."""
    if len(state.keep) < LEAST:
        return state
    colours = classes(engine.neighbours, engine.problem.label, state.keep, HOPS)
    first: dict[int, int] = {}
    for atom in sorted(state.keep):
        first.setdefault(colours[atom], atom)
    chosen = set(first.values())
    edge = set(chosen)
    for _ in range(HOPS):
        edge = {parent for atom in edge for parent in engine.neighbours.parents[atom] if parent in state.keep} - chosen
        chosen |= edge
    if len(chosen) > len(state.keep) / 2:
        return state
    candidate = state.keeping(chosen)
    return candidate if engine.ask(candidate) else state
