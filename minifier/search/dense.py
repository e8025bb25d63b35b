"""D. Dense: where much is needed, atoms are deleted from the end, as many at once as the share of needed ones allows.

The share is learnt on the way. Bisection over the next atoms finds the first needed one, each place weighed by its
chance under that share; the atoms before it are deleted. So an atom costs about as many queries as the entropy of the
share: half a query where one of ten is needed, one where every second is. Gives up after MISSES atoms in a row that are
all needed, and notes that minimality is not certified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

MISSES = 64
"""Where a twentieth of the rest could go, so many in a row are needed once in 27 times."""
AHEAD = 4
"""Length of a run, in expected distances between needed atoms."""
MEMORY = 0.99
"""The weight of an earlier atom in the share when the next one is decided: needed atoms come in clusters."""


def dense(engine: Engine, state: Candidate, core: Sequence[int] = (), largest: int | None = None) -> Candidate:
    """Deletes what can be deleted from a failing case; atoms of `core` stay. `largest` limits what one query drops."""
    loose = sorted(state.keep - set(core), reverse=True)
    needed, decided = 1.0, 3.0
    position = misses = 0
    while position < len(loose):
        if misses >= MISSES:
            engine.notes.append(f"not certified minimal: the last {MISSES} single deletions all lost the failure")
            return state
        share = needed / decided
        length = min(largest or len(loose), max(1, round(AHEAD / share)), len(state.keep) - 1)
        run = loose[position : position + length]
        if not run:
            break
        dropped = _deletable(engine, state, run, share)
        state = state.keeping(state.keep - set(run[:dropped]))
        position += dropped
        needed, decided = needed * MEMORY**dropped, decided * MEMORY**dropped + dropped
        if dropped < len(run):
            position += 1
            needed, decided = needed * MEMORY + 1, decided * MEMORY + 1
        misses = 0 if dropped else misses + 1
    return state


def _deletable(engine: Engine, state: Candidate, run: Sequence[int], share: float) -> int:
    """How many atoms at the head of `run` can go together."""

    def make(left: int) -> Candidate:
        return state.keeping(state.keep - set(run[: len(run) - left]))

    def chance(left: int) -> float:
        head = (1 - share) ** (len(run) - left)
        return head if left == 0 else head * share

    return len(run) - engine.smallest(-1, len(run), make, chance)
