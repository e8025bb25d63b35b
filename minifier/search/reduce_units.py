"""C. Anchored binary reduction: find the last needed unit, then the others one after the other, nearest first.

A unit is a set of atoms that goes or stays together: chunks of a large case (`reduce_chunks`), then single atoms
(`reduce_atoms`). The smallest failing prefix ends with a needed unit. From there the rest is ordered by distance to what is
known to be needed; the smallest failing prefix of that order ends with the next needed unit, and everything after it is dropped.
So m needed units cost about m * log2(n) queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ..problem import Candidate
from .connect import connect
from .dense import dense
from .neighbourhood import backward_slice, distances

if TYPE_CHECKING:
    from ..engine import Engine

CHUNKS = 16
FEW = 64
GALLOP = (2, 8, 32)
FRUITLESS = 2
"""Searches in a row that drop nothing before the case counts as dense."""

Unit = frozenset[int]


def reduce_chunks(engine: Engine, state: Candidate) -> Candidate:
    """C'. Sixteen chunks at a time, until FEW atoms are left or a round gains nothing."""
    while len(state.keep) > FEW:
        atoms = sorted(state.keep)
        edges = [round(len(atoms) * part / CHUNKS) for part in range(CHUNKS + 1)]
        units = [frozenset(atoms[low:high]) for low, high in pairwise(edges)]
        smaller, dense_left = reduce_units(engine, state, units)
        gained = len(smaller.keep) < len(state.keep) * 3 / 4
        state = smaller
        if dense_left or not gained:
            break
    return state


def reduce_atoms(engine: Engine, state: Candidate) -> Candidate:
    """C, then D where the case turns out to be dense."""
    smaller, core = reduce_units(engine, state, [frozenset([atom]) for atom in sorted(state.keep)])
    return dense(engine, smaller, core) if core else smaller


def reduce_units(engine: Engine, state: Candidate, units: Sequence[Unit]) -> tuple[Candidate, list[int]]:
    """Reduces a failing case to few of its units.

    Returns the case, and the atoms known to be needed where the search gave up because nearly everything is (else none).
    """
    if len(units) < 2:
        return state, []
    end = engine.smallest(0, len(units), lambda count: _of(state, units[:count]))
    core = [units[end - 1]]
    rest = list(units[: end - 1])
    fruitless = 0
    while rest:
        if engine.ask(_of(state, core)):
            return _of(state, core), []
        if len(core) > 1 and (joined := connect(engine, state, _atoms(rest) | state.bypass, _atoms(core))) is not None:
            return joined, []
        if len(core) == 1:
            rest = _slice_of(engine, state, core, rest)
        rest = _by_distance(engine, state, core, rest)
        needed = _gallop(engine, state, core, rest)
        fruitless = fruitless + 1 if needed == len(rest) and needed > 1 else 0
        core.append(rest[needed - 1])
        rest = rest[: needed - 1]
        if fruitless >= FRUITLESS and len(rest) > 2:
            return _of(state, [*core, *rest]), sorted(_atoms(core))
    return _of(state, core), []


def _slice_of(engine: Engine, state: Candidate, core: list[Unit], rest: list[Unit]) -> list[Unit]:
    """Only the units that lead to the anchor, where they fail together with it."""
    reaching = backward_slice(engine.neighbours, _atoms(core), _atoms(rest) | state.bypass)
    units = [unit for unit in rest if unit & reaching]
    if 0 < len(units) < len(rest) and engine.ask(_of(state, [*units, *core])):
        return units
    return rest


def _by_distance(engine: Engine, state: Candidate, core: list[Unit], rest: list[Unit]) -> list[Unit]:
    near = distances(engine.neighbours, _atoms(core), _atoms([*rest, *core]) | state.bypass)
    far = engine.problem.size + 1
    return sorted(rest, key=lambda unit: (min(near.get(atom, far) for atom in unit), max(unit)))


def _gallop(engine: Engine, state: Candidate, core: list[Unit], rest: list[Unit]) -> int:
    """How many of the ordered rest are needed beside the core; all of them are known to be enough."""

    def make(count: int) -> Candidate:
        return _of(state, [*core, *rest[:count]])

    low = 0
    for high in GALLOP:
        if high >= len(rest):
            break
        if engine.ask(make(high)):
            return engine.smallest(low, high, make)
        low = high
    return engine.smallest(low, len(rest), make)


def _of(state: Candidate, units: Sequence[Unit]) -> Candidate:
    return state.keeping(_atoms(units))


def _atoms(units: Sequence[Unit]) -> set[int]:
    return {atom for unit in units for atom in unit}
