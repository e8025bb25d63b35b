"""Where a weighted search asks next: at the quantiles of what is left.

Bisection by weight instead of by count finds an answer of chance p after about log2(1 / p) questions, as a code
of that word length would (Gilbert and Moore, Variable-length binary encodings, 1959).

>>> quantiles([0.0, 0.5, 0.75, 1.0], 0, 3, 1)
[1]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def quantiles(total: Sequence[float], low: int, high: int, count: int) -> list[int]:
    """At most `count` places strictly between low and high that cut the running total there into equal parts.

    At least one where there is a place at all; ascending, all different.
    """
    found: list[int] = []
    for part in range(1, count + 1):
        goal = total[low] + (total[high] - total[low]) * part / (count + 1)
        place = bisect_left(total, goal, low + 1, high)
        if place - 1 > low and goal - total[place - 1] < total[place] - goal:
            place -= 1
        place = max(place, found[-1] + 1 if found else low + 1)
        if place < high:
            found.append(place)
    return found or [high - 1][: high - 1 - low]
