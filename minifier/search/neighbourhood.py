"""Questions about the graph of atoms: distances, balls, classes of equal surroundings, cheapest paths.

>>> chain = Neighbours([[], [0], [1]])
>>> nearest(chain, [2], rest={0, 1})
[1, 0]
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable

from .problem import Neighbours

DOWN = 3
"""Steps to an argument that cost as much as one to a user: a failure that ends at an atom rather needs what that atom
reads than other readers of the same values."""
FAR = 1 << 60


def distances(graph: Neighbours, sources: Iterable[int], within: Collection[int]) -> dict[int, int]:
    """Breadth-first distance from the sources, edges taken both ways, inside `within`; unreachable atoms are left
    out."""
    distance_of = dict.fromkeys(sources, 0)
    queue = deque(distance_of)
    while queue:
        atom = queue.popleft()
        for other in (*graph.parents[atom], *graph.children[atom]):
            if other in within and other not in distance_of:
                distance_of[other] = distance_of[atom] + 1
                queue.append(other)
    return distance_of


def nearest(
    graph: Neighbours, sources: Collection[int], rest: Collection[int], gone: Collection[int] = ()
) -> list[int]:
    """`rest` ordered by distance to the sources; a step to a user counts as DOWN steps to an argument.

    Paths lead through `rest` and `gone`. Of equals the later atom comes first; what cannot be reached comes last.
    """
    inside = {*rest, *sources, *gone}
    cost_of = dict.fromkeys(sources, 0)
    queue = [(0, source) for source in sorted(sources)]
    while queue:
        spent, atom = heapq.heappop(queue)
        if spent > cost_of[atom]:
            continue
        for others, price in ((graph.parents[atom], 1), (graph.children[atom], DOWN)):
            for other in others:
                if other in inside and spent + price < cost_of.get(other, FAR):
                    cost_of[other] = spent + price
                    heapq.heappush(queue, (spent + price, other))
    return sorted(rest, key=lambda atom: (cost_of.get(atom, FAR), -atom))


def ball(graph: Neighbours, centre: int, size: int, within: Collection[int]) -> set[int]:
    """The `size` atoms of `within` nearest to the centre."""
    distance_of = distances(graph, [centre], within)
    return set(sorted(distance_of, key=lambda atom: (distance_of[atom], abs(atom - centre)))[:size])


def classes(
    graph: Neighbours, label: Callable[[int], Hashable], atoms: Collection[int], hops: int = 2
) -> dict[int, int]:
    """Weisfeiler-Lehman classes: atoms with equal labels and equal surroundings up to `hops` get one number."""
    inside = set(atoms)
    colour = _renumber({atom: label(atom) for atom in sorted(inside)})
    for _ in range(hops):
        surroundings: dict[int, Hashable] = {}
        for atom in sorted(inside):
            above = tuple(colour[parent] for parent in graph.parents[atom] if parent in inside)
            below = tuple(sorted(colour[child] for child in graph.children[atom] if child in inside))
            surroundings[atom] = colour[atom], above, below
        colour = _renumber(surroundings)
    return colour


def _renumber(colours: dict[int, Hashable]) -> dict[int, int]:
    numbers: dict[Hashable, int] = {}
    return {atom: numbers.setdefault(colour, len(numbers)) for atom, colour in colours.items()}


def cheapest_path(
    graph: Neighbours,
    sources: Collection[int],
    targets: Collection[int],
    within: Collection[int],
    cost: Callable[[int], int],
) -> list[int] | None:
    """The atoms strictly between sources and targets on the cheapest dependence path (all edges one way), or None.

    Both directions are tried: down from the sources to a target, and up.
    """
    best: tuple[int, list[int]] | None = None
    for onward in (graph.children, graph.parents):
        queue: list[tuple[int, int]] = [(0, source) for source in sorted(sources)]
        total = dict.fromkeys(sources, 0)
        before: dict[int, int] = {}
        while queue:
            spent, atom = heapq.heappop(queue)
            if atom in targets:
                if best is None or spent < best[0]:
                    best = spent, _walk_back(before, atom)
                break
            if spent > total[atom]:
                continue
            for other in onward[atom]:
                if other not in within:
                    continue
                price = spent + (0 if other in targets else cost(other))
                if other not in total or price < total[other]:
                    total[other], before[other] = price, atom
                    heapq.heappush(queue, (price, other))
    return None if best is None else best[1]


def _walk_back(before: dict[int, int], atom: int) -> list[int]:
    path: list[int] = []
    atom = before[atom]
    while atom in before:
        path.append(atom)
        atom = before[atom]
    return path


def components(graph: Neighbours, atoms: Collection[int]) -> list[set[int]]:
    """The connected components of a set of atoms, edges taken both ways; the one with the last atom first."""
    left = set(atoms)
    parts: list[set[int]] = []
    while left:
        part = set(distances(graph, [max(left)], left))
        left -= part
        parts.append(part)
    return parts
