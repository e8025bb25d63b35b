"""B. Windows: most failures live in one neighbourhood, and consecutive atoms are neighbours.

The atoms are cut into overlapping windows. All but the last are asked; if none fails the last one is assumed to. When windows
no longer shrink, one query confirms what was assumed; if it passes, the failure is not local, and the last confirmed
window stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

MARGIN = 32
SMALL = 96


def windows(engine: Engine, state: Candidate) -> Candidate:
    """The smallest window that fails the same way; tells the engine when the failure turned out not to be local."""
    current = confirmed = sorted(state.keep)
    while len(current) > SMALL:
        parts = _overlapping(current, engine.jobs + 1)
        found = engine.first(state.keeping(part) for part in parts[:-1])
        current = parts[-1 if found is None else found]
        if found is not None:
            confirmed = current
    if current is not confirmed:
        if engine.ask(state.keeping(current)):
            confirmed = current
        else:
            engine.local = False
    return state.keeping(confirmed)


def _overlapping(atoms: list[int], count: int) -> list[list[int]]:
    """`count` windows of equal length that overlap by MARGIN (by a quarter of a window where windows are short)."""
    margin = min(MARGIN, len(atoms) // (2 * count))
    step = (len(atoms) - margin) / count
    return [atoms[round(step * part) : round(step * (part + 1)) + margin] for part in range(count)]
