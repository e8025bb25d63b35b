"""Which nodes use a node, as two flat arrays built from the inputs; no list per node.

>>> users = finish(users_of([[], [0], [0, 1]]))
>>> users(0), users.last(0)
([1, 2], 2)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from .slices import Steps, spans

NODES = 4096


class Users:
    """`users(i)` are the positions of the nodes that use node i, in order."""

    def __init__(self, starts: array[int], items: array[int]) -> None:
        self._starts = starts
        self._items = items

    def __call__(self, index: int) -> list[int]:
        return self._items[self._starts[index] : self._starts[index + 1]].tolist()

    def last(self, index: int) -> int:
        """The last user; -1 where there is none."""
        start, end = self._starts[index], self._starts[index + 1]
        return self._items[end - 1] if end > start else -1


def users_of(inputs: Sequence[Sequence[int]]) -> Steps[Users]:
    """Turns the inputs of all nodes round. Inputs are earlier nodes, each named once."""
    count = len(inputs)
    ends = array("I", bytes(4 * (count + 1)))
    for start, end in spans(count, NODES):
        for used in inputs[start:end]:
            for producer in used:
                ends[producer + 1] += 1
        yield
    total = 0
    for start, end in spans(count, 4 * NODES):
        for index in range(start, end):
            total += ends[index + 1]
            ends[index + 1] = total
        yield
    items = array("I", bytes(4 * total))
    free = array("I", ends)
    for start, end in spans(count, NODES):
        for user in range(start, end):
            for producer in inputs[user]:
                items[free[producer]] = user
                free[producer] += 1
        yield
    return Users(ends, items)
