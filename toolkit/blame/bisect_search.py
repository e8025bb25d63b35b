"""Binary search with three answers: the same failure, gone, and another failure, which decides nothing and is stepped around.

Knows nothing of graphs: `ask` makes the probe. Probes are cheap in number only: each is a whole compile.

>>> last_needed(8, lambda on: "same" if on >= 5 else "gone")
Found(low=4, high=5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from .bisect_records import Verdict

T = TypeVar("T")

_STEPS_ASIDE = 6
"""How many neighbours are tried where the middle decides nothing."""


class Found(NamedTuple):
    """The failure comes between `low` applications (gone) and `high` (same); they differ by one unless nothing decided."""

    low: int
    high: int


def last_needed(count: int, ask: Callable[[int], Verdict]) -> Found:
    """With the first k of `count` applications on: from which k on it fails. Known before: gone with none, same with all."""
    low, high = 0, count
    while high - low > 1:
        for at in _middle_first(low, high):
            verdict = ask(at)
            if verdict != "other":
                break
        else:
            return Found(low, high)
        low, high = (at, high) if verdict == "gone" else (low, at)
    return Found(low, high)


def single(items: Sequence[T], ask: Callable[[Sequence[T]], Verdict], *, known: Verdict | None = None) -> T | None:
    """The first item whose change alone makes the failure go away, by halves; None where no single one does.

    `ask` changes a whole group. `known` is its answer for all of them. A group that makes another failure is searched inside.
    """
    verdict = known or ask(items)
    if verdict == "same" or not items:
        return None
    if len(items) == 1:
        return items[0] if verdict == "gone" else None
    middle = len(items) // 2
    found = single(items[:middle], ask)
    return found if found is not None else single(items[middle:], ask)


def _middle_first(low: int, high: int) -> list[int]:
    middle = (low + high) // 2
    inside = sorted(range(low + 1, high), key=lambda at: (abs(at - middle), at))
    return inside[: 1 + _STEPS_ASIDE]
