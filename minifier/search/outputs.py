"""Outputs: of those that a finished case returns, drop the ones that its failure does not need.

Sinks are needed (what nothing reads and nothing returns is dead), so only outputs that are read as well, and items of a
multi-output op, are proposed: all at once, then one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine


def drop_outputs(engine: Engine, state: Candidate, outputs: Sequence[int], loose: Sequence[int]) -> Candidate:
    """`outputs` are the positions that the case returns, `loose` those among them that may be dropped; one always stays."""
    if len(outputs) < 2 or not loose:
        return state
    needed = [output for output in outputs if output not in loose]
    bare = replace(state, returned=frozenset(needed or outputs[-1:]))
    if engine.ask(bare):
        return bare
    left = list(outputs)
    for output in loose:
        fewer = [other for other in left if other != output]
        candidate = replace(state, returned=frozenset(fewer))
        if fewer and engine.ask(candidate):
            state, left = candidate, fewer
    return state
