"""Groups of nodes for an overview: nodes with the same key come together, unless that would make a circle of groups.

A group is one call of a module: its second call, which uses what others made of the first one's result, becomes a group of its
own. Greedy, in order of the graph, linear in nodes for the graphs that compilers make. Must not know modules or boxes.

>>> [group.members for group in acyclic(["a", "a", "b", "a"], [[], [0], [1], [2]])]
[[0, 1], [2], [3]]
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field


@dataclass
class Group:
    """Nodes that are drawn as one box. `call` counts groups of the same key from 1."""

    number: int
    key: Hashable
    call: int = 1
    members: list[int] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)


def acyclic(keys: Sequence[Hashable | None], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """Groups in the order of their first nodes; none depends on itself through others.

    `keys` has one entry for each node, None for one that is not grouped; `inputs` has the positions of those it uses.
    """
    groups: list[Group] = []
    home: dict[int, int] = {}
    latest: dict[Hashable, int] = {}
    before: list[int] = []  # bit k of before[g]: group g needs group k
    for index, key in enumerate(keys):
        if key is None:
            continue
        used = {home[other] for other in inputs[index] if other in home}
        number = latest.get(key)
        if number is None or any(other != number and before[other] >> number & 1 for other in used):
            call = groups[number].call + 1 if number is not None else 1
            number = latest[key] = len(groups)
            groups.append(Group(number, key, call))
            before.append(0)
        groups[number].members.append(index)
        home[index] = number
        needed = before[number]
        for other in used - {number}:
            needed |= 1 << other | before[other]
        if needed != before[number]:
            for other in range(number, len(groups)):
                if other == number or before[other] >> number & 1:
                    before[other] |= needed
    return groups


def homes(groups: Iterable[Group]) -> dict[int, int]:
    """The position in `groups` of the group that each node lies in, its inputs included."""
    return {index: place for place, group in enumerate(groups) for index in (*group.members, *group.inputs)}


def in_order(groups: Sequence[Group], inputs: Sequence[Sequence[int]]) -> list[Group]:
    """The groups so that each comes after those that it needs, else as they are."""
    home = homes(groups)
    needs = [{home[other] for index in group.members for other in inputs[index] if other in home} - {place}
             for place, group in enumerate(groups)]  # fmt: skip
    ordered: list[int] = []
    done: set[int] = set()
    for start in range(len(groups)):
        stack = [start]
        while stack:
            place = stack[-1]
            missing = sorted(needs[place] - done) if place not in done else []
            if missing:
                stack.append(missing[0])
                continue
            stack.pop()
            if place not in done:
                done.add(place)
                ordered.append(place)
    return [groups[place] for place in ordered]


def merged(groups: Sequence[Group], size: int) -> list[list[Group]]:
    """`size` neighbours at a time. In an order in which no group needs a later one, such bundles need each other in no circle."""
    return [list(groups[start : start + size]) for start in range(0, len(groups), size)]
