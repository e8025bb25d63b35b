"""0. Switches: what holds for the whole case is tried off before anything is cut, one query each: dynamic sizes,
gradients, slow settings; random ops are replaced by the numbers that they drew.

Only what a case has is tried; most have nothing. A random op that must stay keeps the others out of step when it goes,
so all of them are frozen at once, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine


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
