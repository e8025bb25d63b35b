"""A1. Hints: small balls round an atom that the failure itself names. A wrong hint costs three tiny queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problem import Candidate
from .neighbourhood import ball

if TYPE_CHECKING:
    from ..engine import Engine

SIZES = (4, 16, 64)
MOST = 2
"""Hints that are tried; the failure names the guilty one first or not at all."""


def hint(engine: Engine, state: Candidate) -> Candidate:
    """The smallest ball round a hinted atom that fails the same way, or the case as it was."""
    for centre in engine.problem.hints[:MOST]:
        if centre not in state.keep:
            continue
        for size in SIZES:
            if size >= len(state.keep):
                break
            candidate = state.keeping(ball(engine.neighbours, centre, size, state.keep))
            if engine.ask(candidate):
                return candidate
    return state
