"""Two sequences of keys: the longest increasing run, and a common subsequence within a bounded amount of work.

Knows nothing of graphs.

>>> common_run("abcd", "abxd")
[(0, 0), (1, 1), (3, 3)]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

_CELLS = 40_000
"""Up to this many pairs of items the longest common subsequence is computed; above it, a common one is found
greedily."""

_LOOK_AHEAD = 64
_RUN = 3
_SEARCHES = 1000


def increasing(values: Sequence[int]) -> list[int]:
    """The positions of a longest strictly increasing subsequence (patience sorting, O(n log n))."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for position, value in enumerate(values):
        pile = bisect_left(tops, value)
        before.append(last[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            last.append(position)
        else:
            tops[pile], last[pile] = value, position
    positions: list[int] = []
    position = last[-1] if last else -1
    while position >= 0:
        positions.append(position)
        position = before[position]
    return positions[::-1]


def common_run(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of positions with equal items, increasing in both."""
    return _longest(a, b) if len(a) * len(b) <= _CELLS else _greedy(a, b)


def _longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    rows = [[0] * (len(b) + 1)]
    for item in reversed(a):
        below, row = rows[-1], [0] * (len(b) + 1)
        for j in range(len(b) - 1, -1, -1):
            row[j] = below[j + 1] + 1 if item == b[j] else max(below[j], row[j + 1])
        rows.append(row)
    rows.reverse()
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif rows[i + 1][j] >= rows[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _greedy(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Walks both; at a difference it goes on at the nearest place where some items in a row are equal."""
    both = set(a) & set(b)
    places_a, places_b = ([n for n, item in enumerate(items) if item in both] for items in (a, b))
    a, b = [a[n] for n in places_a], [b[n] for n in places_b]
    pairs: list[tuple[int, int]] = []
    i = j = searches = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            pairs.append((places_a[i], places_b[j]))
            i, j = i + 1, j + 1
            continue
        searches += 1
        i, j = _resync(a, b, i, j) if searches < _SEARCHES else (i + 1, j + 1)
    return pairs


def _resync(a: Sequence[Hashable], b: Sequence[Hashable], i: int, j: int) -> tuple[int, int]:
    for total in range(1, _LOOK_AHEAD):
        for step in range(total + 1):
            x, y = i + step, j + total - step
            if a[x : x + _RUN] == b[y : y + _RUN] and x < len(a) and y < len(b):
                return x, y
    return i + 1, j + 1
