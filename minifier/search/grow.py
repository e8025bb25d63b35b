"""C. Anchored reduction: finds the needed atoms one after the other, from the last one on, nearest first.

The remaining atoms are ordered by distance to the atoms known to be needed; the smallest failing prefix of that order
ends with another needed atom, and everything after it is dropped. The search for that prefix asks first where the next
needed atom is likely: none at all is likeliest, then a near one (at place k with a chance of about 1 / k); all places
are alike once the failure is known not to be local. An atom of chance p costs about log2(1 / p) queries, so m scattered
atoms of n cost about m * log2(n), those of a chain few after the first. Two needed atoms that are not neighbours are
joined by the cheapest dependence path first; atoms on it that can be bypassed (an input has the same shape) cost
nothing and are bypassed at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from .dense import dense
from .neighbourhood import cheapest_path, components, nearest
from .problem import Candidate
from .windows import windows

if TYPE_CHECKING:
    from ..engine import Engine

FRUITLESS = 2
"""Searches in a row that drop nothing before the case counts as dense."""
MANY = 8
"""Atoms found alone before the case counts as dense."""
ENOUGH = (0.5, 0.3)
"""The chance that the known atoms are all: for a single one, for more."""
NEAR = 0.7
"""The chance that the next atom is near rather than anywhere."""
SHORT = 8
"""A path of at most so many atoms is tried before the atoms that it joins are tried alone."""
LONG = 24
"""A path of more atoms is reduced by search; of a shorter one each atom is tried alone (polish)."""


def reduce_atoms(engine: Engine, state: Candidate) -> Candidate:
    """Step C, then D where the case turns out to be dense."""
    if engine.anchor not in state.keep:
        if not engine.may("windows"):
            return dense(engine, state)
        state = windows(engine, state)
    assert engine.anchor is not None
    return grow(engine, state, [engine.anchor])


def grow(engine: Engine, state: Candidate, core: list[int]) -> Candidate:
    """A failing case reduced to the atoms of `core`, which are known to be needed, and few others."""
    rest = sorted(state.keep - set(core))
    fruitless, joining = 0, True
    while rest:
        if len(core) > 1 and joining and (path := _path(engine, state, core, rest)):
            if (path > SHORT or not engine.local) and engine.ask(state.keeping(core)):
                return state.keeping(core)
            joined = connect(engine, state, {*rest, *state.bypass}, core)
            joining = False
            if joined is None:
                engine.local = False
            else:
                state = joined
                rest = sorted(state.keep - set(core))
                if len(rest) <= LONG:
                    return state
        rest = nearest(engine.neighbours, core, rest, state.bypass)
        needed = _needed(engine, state, core, rest)
        if needed == 0:
            return state.keeping(core)
        fruitless = fruitless + 1 if needed == len(rest) and needed > 1 else 0
        core.append(rest[needed - 1])
        rest = rest[: needed - 1]
        if len(rest) > 2 and (fruitless >= FRUITLESS or len(core) > MANY):
            return dense(engine, state.keeping([*core, *rest]), core)
    return state.keeping(core)


def _path(engine: Engine, state: Candidate, core: list[int], rest: list[int]) -> int:
    """How many atoms of `rest` would join the core; 0 where it is joined already or cannot be."""
    joined = join(engine, {*rest, *state.bypass}, core, state.bypass)
    return 0 if joined is None else len(joined - set(core) - state.bypass)


def _needed(engine: Engine, state: Candidate, core: list[int], rest: list[int]) -> int:
    """How many of the ordered `rest` are needed beside the core: its shortest prefix that fails. All of `rest` with the
    core is known to fail."""
    enough = ENOUGH[len(core) > 1]
    near = NEAR if engine.local else 0.0
    harmonic = sum(1 / place for place in range(1, len(rest) + 1))

    def make(count: int) -> Candidate:
        return state.keeping([*core, *rest[:count]])

    def chance(count: int) -> float:
        if count == 0:
            return enough
        return (1 - enough) * (near / count / harmonic + (1 - near) / len(rest))

    return engine.smallest(-1, len(rest), make, chance)


def connect(engine: Engine, state: Candidate, within: Collection[int], core: Collection[int]) -> Candidate | None:
    """`core` joined by cheapest paths inside `within`, bypassed if that fails, else whole; None where neither fails."""
    joined = join(engine, within, core, state.bypass)
    if joined is None:
        return None
    path = joined - set(core) - state.bypass
    free = frozenset(atom for atom in path if not joined.isdisjoint(engine.problem.bypasses(atom)))
    bypassed = replace(state, keep=frozenset(joined - free - state.bypass), bypass=state.bypass | free)
    whole = state.keeping(joined - state.bypass)
    tries = [bypassed, whole] if free else [whole]
    place = engine.first(tries)
    return None if place is None else tries[place]


def join(engine: Engine, within: Collection[int], core: Collection[int], gone: Collection[int]) -> set[int] | None:
    """`core` and the atoms on cheapest dependence paths between its members; None where it is connected already.

    `gone` are atoms that are bypassed already.
    """
    first, *others = components(engine.neighbours, core)
    inside = {*within, *core}
    price = {atom: 0 if atom in gone else 1 if engine.problem.bypasses(atom) else 4 for atom in inside}
    joined = first
    added = False
    for part in others:
        path = cheapest_path(engine.neighbours, joined, part, inside, price.__getitem__)
        added = added or bool(path)
        joined = {*joined, *part, *(path or ())}
    return joined if added else None
