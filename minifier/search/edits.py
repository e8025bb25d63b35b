"""F. Other axes: edits of a small case, all at once, then binary search for the exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine


def accept(engine: Engine, state: Candidate, edits: Sequence[str]) -> Candidate:
    """The case with as many of the edits as keep the failure: m exceptions among n cost about m * log2(n) queries."""
    if not edits:
        return state
    changed = replace(state, edits=(*state.edits, *edits))
    if engine.ask(changed):
        return changed
    if len(edits) == 1:
        return state
    middle = len(edits) // 2
    return accept(engine, accept(engine, state, edits[:middle]), edits[middle:])
