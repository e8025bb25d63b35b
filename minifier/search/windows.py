"""B. Windows: the last atom that the failure needs, by binary search over stretches of the graph.

Most failures live in one neighbourhood, and consecutive atoms are neighbours. So instead of all that lies before an atom, as a
search for the smallest failing prefix would, only a stretch that begins MARGIN before the place in question is asked: as many
queries, each on a small graph. A stretch that passes may mean that the failure lies further on, or that it needs something
before the stretch. After DOUBTS such answers one query settles it; if it passes, the failure is not local, and the
search goes on over prefixes from the last place that was sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

MARGIN = 32
DOUBTS = 3


def last_needed(engine: Engine, state: Candidate) -> tuple[Candidate, int]:
    """The last needed atom, and a failing case that ends with it. Tells the engine where the failure is not local."""
    atoms = sorted(state.keep)

    def part(start: int, end: int) -> Candidate:
        return state.keeping(atoms[start:end])

    base, high = 0, len(atoms)  # atoms[base:high] fails
    low = sure = 0  # atoms[base:sure] passes; so does atoms[base:low], unless the failure is not local
    doubts = 0
    while high - low > 1 or doubts:
        if doubts >= DOUBTS or high - low == 1:
            start = max(base, low - MARGIN)
            if engine.ask(part(start, high)):
                base, sure = start, low
            else:
                engine.local = False
                low = sure
            doubts = 0
            continue
        start = max(base, low - MARGIN) if engine.local else base
        marks = [low + (high - low) * round_ // (engine.jobs + 1) for round_ in range(1, engine.jobs + 1)]
        marks = sorted({mark for mark in marks if mark > low} or {low + 1})
        found = engine.first(part(start, mark) for mark in marks)
        if found != 0:
            low = marks[-1 if found is None else found - 1]
        if found is not None:
            high = marks[found]
            if start > base:
                base, sure, doubts = start, low, 0
        elif start > base:
            doubts += 1
        if start == base and not doubts:
            sure = low
    return part(base, high), atoms[high - 1]
