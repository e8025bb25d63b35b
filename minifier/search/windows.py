"""B. Windows: finds the last atom that the failure needs, by bisection over stretches of the graph.

Most failures live in one neighbourhood, and consecutive atoms are neighbours. So a query does not ask the whole prefix
up to a place, as a search for the smallest failing prefix would, but a stretch that begins a margin before it: as many
queries, each on a small graph. The margin is REACH times the length that most edges do not exceed. A stretch that
passes may mean that the failure lies further on, or that it needs something before the stretch. After DOUBTS such
answers one query settles it; if it passes, the failure is not local.

Networks repeat a block, and what fails for one copy mostly fails for all. So the first atom of its kind, and the first
with its surroundings (Weisfeiler-Lehman classes), is likelier the last needed one than its copies: KIND and
SURROUNDINGS of the weight lie on these, HINTED on atoms that the failure names, the rest on all alike, and the
bisection is by weight. A failure in every layer is found in the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .neighbourhood import classes
from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine


from bisect import bisect_left


def quantiles(total: Sequence[float], low: int, high: int, count: int) -> list[int]:
    """At most `count` places strictly between low and high that cut the running total there into equal parts.

    At least one where there is a place at all; ascending, all different.
    """
    places: list[int] = []
    for part in range(1, count + 1):
        goal = total[low] + (total[high] - total[low]) * part / (count + 1)
        place = bisect_left(total, goal, low + 1, high)
        if place - 1 > low and goal - total[place - 1] < total[place] - goal:
            place -= 1
        place = max(place, places[-1] + 1 if places else low + 1)
        if place < high:
            places.append(place)
    return places or [high - 1][: high - 1 - low]


REACH = 3
MOST_EDGES = 0.9
DOUBTS = (1, 3)
"""Doubtful answers that are accepted: before a stretch failed, and after."""
KIND, SURROUNDINGS, HINTED = 0.15, 0.25, 0.2
HOPS = 2


def windows(engine: Engine, state: Candidate) -> Candidate:
    """A failing case that ends with a needed atom, which becomes the engine's anchor; where none is found, sets on the
    engine that the failure is not local."""
    atoms = sorted(state.keep)
    total = list(accumulate(_likely(engine, atoms), initial=0.0))
    margin = _margin(engine, atoms)

    def part(start: int, end: int) -> Candidate:
        return state.keeping(atoms[start:end])

    base, high = 0, len(atoms)  # atoms[base:high] fails
    low = sure = 0  # atoms[base:sure] passes; so does atoms[base:low], unless the failure is not local
    doubts = 0
    while high - low > 1 or doubts:
        if doubts >= DOUBTS[base > 0] or high - low == 1:
            start = max(base, low - margin)
            if engine.ask(part(start, high)):
                base, sure = start, low
            else:
                engine.local = False
                if base == 0 and len(atoms) > 1:
                    return part(base, high)
                low = sure
            doubts = 0
            continue
        start = max(base, low - margin) if engine.local else base
        marks = quantiles(total, low, high, engine.jobs)
        first_failing = engine.first(part(start, mark) for mark in marks)
        if first_failing != 0:
            low = marks[-1 if first_failing is None else first_failing - 1]
        if first_failing is not None:
            high = marks[first_failing]
            if start > base:
                base, sure, doubts = start, low, 0
        elif start > base:
            doubts += 1
        if start == base and not doubts:
            sure = low
    engine.anchor = atoms[high - 1]
    return part(base, high)


def _likely(engine: Engine, atoms: Sequence[int]) -> list[float]:
    weights = [(1 - KIND - SURROUNDINGS) / len(atoms)] * len(atoms)
    for hops, share in ((0, KIND), (HOPS, SURROUNDINGS)):
        colours = classes(engine.neighbours, engine.problem.label, atoms, hops)
        first: dict[int, int] = {}
        for place, atom in enumerate(atoms):
            first.setdefault(colours[atom], place)
        for place in first.values():
            weights[place] += share / len(first)
    hinted = [place for place, atom in enumerate(atoms) if atom in engine.problem.hints]
    for place in hinted:
        weights[place] += HINTED / len(hinted)
    return weights


def _margin(engine: Engine, atoms: Sequence[int]) -> int:
    place = {atom: number for number, atom in enumerate(atoms)}
    edges = [(atom, parent) for atom in atoms for parent in engine.neighbours.parents[atom] if parent in place]
    lengths = sorted(place[atom] - place[parent] for atom, parent in edges)
    return REACH * lengths[int(MOST_EDGES * (len(lengths) - 1))] if lengths else 1
