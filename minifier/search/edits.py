"""F. Other axes: edits of a small case, all at once, then binary search for the exceptions; a pass is asked until it
has no more. Outputs that the failure of a finished case does not need are dropped.

"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

ROUNDS = 7
"""How often one pass may propose."""


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


def exhaust(
    engine: Engine, state: Candidate, propose: Callable[[Candidate], list[list[str]]], *, plainer: bool = False
) -> Candidate:
    """The case with the accepted edits of one pass, in rounds; no edit is tried twice. `plainer`: its result counts as
    the best case though it may be larger.
    """
    tried: set[str] = set()
    for _ in range(ROUNDS):
        fresh = [[edit for edit in edits if edit not in tried] for edits in propose(state)]
        edits = next((edits for edits in fresh if edits), None)
        if edits is None:
            break
        tried |= set(edits)
        state = accept(engine, state, edits)
        if plainer and engine.fails(state):
            engine.take(state)
    return state


def drop_outputs(engine: Engine, state: Candidate, outputs: Sequence[int], loose: Sequence[int]) -> Candidate:
    """Drops outputs that the failure does not need. `outputs`: the positions that the case returns, `loose`: those
    among them that may be dropped; one always stays.

    Sinks are needed (what nothing reads and nothing returns is dead), so only outputs that are read as well, and items
    of a multi-output op, are proposed: all at once, then one by one.
    """
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
