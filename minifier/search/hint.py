"""A. Hints: small balls round atoms that the failure itself names.

A failure names an operator more often than a node: of atoms with the same label and surroundings (Weisfeiler-Lehman
classes) the first stands for all. A right hint finds one op in one query, its neighbourhood in two to four; a wrong one
costs as many tiny queries as there are SIZES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .neighbourhood import ball, classes
from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

SIZES = (1, 4, 16, 64)
MOST = 2
"""Hints that are tried; the failure names the guilty one first or not at all."""


def hint(engine: Engine, state: Candidate) -> Candidate:
    """The smallest ball round a hinted atom that fails the same way, or the case as it was."""
    hinted = [atom for atom in engine.problem.hints if atom in state.keep]
    if not hinted:
        return state
    colours = classes(engine.neighbours, engine.problem.label, state.keep)
    first: dict[int, int] = {}
    for atom in hinted:
        first.setdefault(colours[atom], atom)
    for centre in list(first.values())[:MOST]:
        sizes = [size for size in SIZES if size < len(state.keep)]
        balls = [state.keeping(ball(engine.neighbours, centre, size, state.keep)) for size in sizes]
        if (place := engine.first(balls)) is not None:
            return balls[place]
    return state
