"""Work in slices between keys: a generator of `dumps/browse` gets a few milliseconds at a time; a newer one ends an
older one.

Also: when garbage is collected: while nobody presses a key. A collection among millions of nodes takes a quarter of a
second.

What takes no longer than one slice is done at once. Starts no threads, and knows nothing of what is computed.

For example:

    slices = Slices(on_error=room.trouble)
    slices.run("rows", selecting(view, question), show_rows)
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

SLICE_S = 0.004
"""How long a key may have to wait, besides painting."""


class Slices:
    """Slices; `on_error` gets what a generator, or the handler of its result, raises; a run can have its own."""

    def __init__(self, on_error: Callable[[BaseException], object]) -> None:
        self._on_error = on_error
        self._numbers: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._tasks)

    def stop(self) -> None:
        """Ends all that is under way."""
        for group in self._numbers:
            self._numbers[group] += 1

    def run(
        self,
        group: str,
        steps: Generator[Any, None, T],
        then: Callable[[T], object],
        on_error: Callable[[BaseException], object] | None = None,
        on_step: Callable[[Any], object] | None = None,
    ) -> None:
        """Runs the steps; `then` gets their result, `on_step` what they yield besides None. An earlier run of the same
        group ends."""
        number = self._numbers[group] = self._numbers.get(group, 0) + 1
        failed = on_error or self._on_error

        def go() -> bool:
            """Runs one slice; returns whether there is more."""
            try:
                until = perf_counter() + SLICE_S
                while perf_counter() < until:
                    step = next(steps)
                    if step is not None and on_step is not None:
                        on_step(step)
                return True
            except StopIteration as done:
                try:
                    then(done.value)
                except Exception as error:  # noqa: BLE001 - reported
                    failed(error)
            except Exception as error:  # noqa: BLE001 - reported
                failed(error)
            return False

        async def drive() -> None:
            while True:
                await asyncio.sleep(0)
                if self._numbers[group] != number or not go():
                    return

        if go():
            task = asyncio.get_running_loop().create_task(drive())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


LOOK_S = 2.0
"""How often `tick` is to be called."""
REST_S = 1.5
"""How long after a key nothing is collected."""
LONG_REST_S, BETWEEN_S = 60.0, 600.0
"""All of memory is collected only after this long a rest, and this much time apart."""
YOUNG = 20_000
"""The least number of new objects for which a collection pays."""
MANY, AFTER_KEY_S = 60_000, 0.1
"""From this number of objects, some are collected while keys are pressed, too, once a key is painted: some
milliseconds, every twenty keys or so."""


class Collector:
    """Collects young garbage in short rests, all of it in long ones."""

    def __init__(self) -> None:
        self._touched = self._last = time.monotonic()

    def touched(self) -> None:
        """Notes that a key or the mouse was used."""
        self._touched = time.monotonic()

    def tick(self) -> None:
        """Collects where it disturbs nobody."""
        now = time.monotonic()
        rest = now - self._touched
        if rest < REST_S:
            return
        if rest > LONG_REST_S and now - self._last > BETWEEN_S:
            self._last = now
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif gc.get_count()[0] > YOUNG:
            gc.collect(1)
