"""C'. Scattered: where no neighbourhood holds the failure, the chunks that it needs are found first, then the atoms in
them.

The prefixes that a search at single atoms would ask are nearly as large as the graph; with chunks the case shrinks
soon, at the same number of queries. The last needed chunk ends the smallest failing prefix; with it fixed, the next one
is found among those before it, until the found ones fail alone. Then every chunk is known to hold a needed atom, and
each is bisected with the others fixed (generalised binary splitting: Hwang, A method for detecting all defective
members in a population by group testing, 1972).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from .problem import Candidate

if TYPE_CHECKING:
    from ..engine import Engine

CHUNKS = 16
MOST_CHUNKS = 27
LEAST = 64
"""Atoms that are bisected without chunks."""
MANY = 7
"""Needed chunks at which this is no scattered failure but a path, or dense."""
FRUITLESS = 2
"""Searches in a row that drop nothing before the failure counts as dense."""
ENOUGH = 0.5
"""The chance that the known chunks are all that is needed, once one was found; SETTLED is that after each was
bisected."""
SETTLED = 0.7
NOTHING = 0.2
"""The chance that nothing can be dropped."""

Unit = Sequence[int]


def scattered(engine: Engine, state: Candidate) -> Candidate:
    """The few atoms of a failure that is not local; the case as small as it became where it needs many."""
    if engine.anchor is not None or len(state.keep) <= LEAST:
        return state
    chunks = _split(sorted(state.keep), _chunks(engine))
    last = engine.smallest(0, len(chunks), lambda count: _of(state, chunks[:count]))
    units = _needed(engine, state, [chunks[last - 1]], chunks[: last - 1], ENOUGH)
    while units is not None and any(len(unit) > 1 for unit in units):
        state = _of(state, units)
        units = _bisected(engine, state, units)
    if units is not None:
        state = _of(state, units)
        engine.anchor = max(state.keep)
    elif engine.best is not None and engine.best.keep < state.keep:
        state = engine.best
    return state


def _bisected(engine: Engine, state: Candidate, units: list[Unit]) -> list[Unit] | None:
    """The needed parts of units that are each needed: the last one of each, then others where these are not enough."""
    now: list[Unit] = list(units)
    core: list[Unit] = []
    rest: list[Unit] = []
    for place, unit in enumerate(units):
        parts = _split(unit, _chunks(engine) if len(unit) > LEAST else LEAST)
        others = now[:place] + now[place + 1 :]

        def make(count: int, others: list[Unit] = others, parts: list[Unit] = parts) -> Candidate:
            return _of(state, [*others, *parts[:count]])

        last = engine.smallest(0, len(parts), make)
        now[place] = [atom for part in parts[:last] for atom in part]
        core.append(parts[last - 1])
        rest += parts[: last - 1]
    return _needed(engine, state, core, rest, SETTLED)


def _needed(engine: Engine, state: Candidate, core: list[Unit], rest: list[Unit], enough: float) -> list[Unit] | None:
    """`core` and those of `rest` that are needed beside it; None where that is most of them."""
    fruitless = 0
    while rest:
        size = len(rest)

        def make(count: int, core: list[Unit] = core, rest: list[Unit] = rest) -> Candidate:
            return _of(state, [*core, *rest[:count]])

        def chance(count: int, size: int = size, enough: float = enough) -> float:
            if count == 0:
                return enough
            return (1 - enough) * ((1 - NOTHING) / size + NOTHING * (count == size))

        count = engine.smallest(-1, size, make, chance)
        if count == 0:
            return core
        fruitless = fruitless + 1 if count == size > 2 else 0
        core, rest = [*core, rest[count - 1]], rest[: count - 1]
        enough = ENOUGH
        if fruitless >= FRUITLESS or len(core) > MANY:
            return None
    return core


def _chunks(engine: Engine) -> int:
    """How many chunks to cut: several workers need two rounds for CHUNKS of them, and tell more chunks apart in as
    many."""
    return max(CHUNKS, min(MOST_CHUNKS, (engine.jobs + 1) ** 2))


def _split(atoms: Unit, count: int) -> list[Unit]:
    count = min(count, len(atoms))
    edges = [round(len(atoms) * part / count) for part in range(count + 1)]
    return [atoms[low:high] for low, high in pairwise(edges)]


def _of(state: Candidate, units: Sequence[Unit]) -> Candidate:
    return state.keeping(atom for unit in units for atom in unit)
