"""D. Dense: where most of what is left is needed, blocks are deleted, then runs of single atoms (find_integer).

Gives up after MISSES single deletions in a row that did not work, and says that minimality is not certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

MISSES = 24
PARTS = (4, 16)


def dense(engine: Engine, state: Candidate, core: Sequence[int] = (), largest: int | None = None) -> Candidate:
    """Deletes what can be deleted from a failing case; atoms of `core` stay. `largest` bounds the block size."""
    fixed = set(core)
    for parts in PARTS:
        length = max(1, (len(state.keep) - len(fixed)) // parts)
        if largest is not None:
            length = min(length, largest)
        if length > 1:
            state = _blocks(engine, state, fixed, length)
    return _singles(engine, state, fixed, largest)


def _blocks(engine: Engine, state: Candidate, fixed: set[int], length: int) -> Candidate:
    loose = sorted(state.keep - fixed, reverse=True)
    for start in range(0, len(loose), length):
        candidate = state.keeping(state.keep - set(loose[start : start + length]))
        if candidate.keep and engine.ask(candidate):
            state = candidate
    return state


def _singles(engine: Engine, state: Candidate, fixed: set[int], largest: int | None) -> Candidate:
    loose = sorted(state.keep - fixed, reverse=True)
    position = misses = 0
    while position < len(loose):
        if misses >= MISSES:
            engine.notes.append(f"not certified minimal: the last {MISSES} single deletions all lost the failure")
            return state
        step = _run_length(engine, state, loose[position:], largest)
        state = state.keeping(state.keep - set(loose[position : position + step]))
        misses = 0 if step else misses + 1
        # What ended a run was asked and is needed; a run that was cut short by `largest` says nothing about the next atom.
        position += step if step == largest else step + 1
    return state


def _run_length(engine: Engine, state: Candidate, run: list[int], largest: int | None) -> int:
    """How many atoms at the head of `run` can go together: doubling, then binary search."""
    most = len(run) if largest is None else min(len(run), largest)

    def works(count: int) -> bool:
        rest = state.keep - set(run[:count])
        return bool(rest) and engine.ask(state.keeping(rest))

    if not works(1):
        return 0
    low, high = 1, 2
    while high <= most and works(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if works(middle):
            low = middle
        else:
            high = middle
    return low
