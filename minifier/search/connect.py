"""Connect: a failure that needs a dependence path between far atoms is met by the cheapest such path.

Atoms on the path that can be bypassed (an input has the same shape) cost nothing and are bypassed at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..problem import Candidate
from .neighbourhood import cheapest_path, components

if TYPE_CHECKING:
    from ..engine import Engine


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
    found = engine.first(tries)
    return None if found is None else tries[found]


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
