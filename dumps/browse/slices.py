"""Work in small slices: a generator that pauses every few milliseconds, so that whoever shows things can show them in
between.

A command runs one to its end at once. Starts no threads: pure Python in a thread delays keys as much as work in
between.

>>> def count():
...     yield  # a pause, for whoever does other work between
...     return 3
>>> finish(count())
3
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""A generator that yields to pause, and returns its result."""

PIECE = 8192
"""How many nodes are looked at between two pauses, where one costs well below a microsecond."""


def finish(steps: Generator[Any, None, T]) -> T:
    """Runs the steps to their end and returns the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def pieces(rows: Sequence[int], size: int = PIECE) -> Iterator[Sequence[int]]:
    """The rows in pieces of that size."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def spans(count: int, size: int = PIECE) -> Iterable[tuple[int, int]]:
    """Starts and ends of pieces of that size."""
    return ((start, min(start + size, count)) for start in range(0, count, size))
