"""Graphs before and after autograd: their targets have little in common, so nodes are joined by what they were made of.

A later node names the node of Dynamo's graph it comes from (`from_node`). Each traced node with the nodes it became is then one
departure of its own; what came from nowhere (the backward) or became nothing is left as it is. Only here names are read.

>>> [(d.a, d.b) for d in regrouped(found, departures, traced_first=True)][0]     # linear became permute, addmm
([12], [20, 21])
"""

from __future__ import annotations

from .align import Alignment
from .departure import Departure, Kind
from .facts import Facts


def _origin(traced: Facts, later: Facts, index: int) -> int:
    """The traced node that a later one comes from, or -1."""
    sources = later.nodes[index].from_node
    return traced.position.get(sources[0], -1) if sources else -1


def part_strangers(found: Alignment, *, traced_first: bool) -> None:
    """Undoes pairs of calls that do not come from each other: what they have in common is a target like getitem."""
    for i, j in enumerate(found.to_b):
        if j < 0 or not found.a.kinds[i].startswith("call"):
            continue
        traced, later, at = (found.a, found.b, (i, j)) if traced_first else (found.b, found.a, (j, i))
        known = bool(later.nodes[at[1]].from_node)
        alike = found.a.targets[i] == found.b.targets[j] and found.same_wires(i, j)
        if _origin(traced, later, at[1]) != at[0] if known else not alike:
            found.part(i)


def regrouped(found: Alignment, made: list[Departure], *, traced_first: bool) -> list[Departure]:
    """The departures with each lonely traced node and what it became as one of its own, in the order of the traced graph."""
    traced, later, partners = (found.a, found.b, found.to_a) if traced_first else (found.b, found.a, found.to_b)
    lonely = {
        k for departure in made if departure.kind != "changed" for k in (departure.a if traced_first else departure.b)
    }
    heirs: dict[int, list[int]] = {}
    for index in range(len(later)):
        origin = _origin(traced, later, index)
        if partners[index] < 0 and origin in lonely:
            heirs.setdefault(origin, []).append(index)
    taken = {index for group in heirs.values() for index in group}
    result: list[Departure] = []
    for departure in made:
        if departure.kind == "changed":
            result.append(departure)
            continue
        here, there = (departure.a, departure.b) if traced_first else (departure.b, departure.a)
        groups = [([index], heirs.get(index, [])) for index in here]
        left = [index for index in there if index not in taken]
        for one, many in [*groups, *([([], left)] if left else [])]:
            a, b = (one, many) if traced_first else (many, one)
            kind: Kind = "replaced" if a and b else "removed" if a else "added"
            result.append(Departure(kind, a, b, follows=departure.follows))
    return result
