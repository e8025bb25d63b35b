"""When garbage is collected: while nobody presses a key. A collection among millions of nodes takes a quarter of a
second.

For example: `collector.touched()` after a key, `collector.tick()` now and then.
"""

from __future__ import annotations

import gc
import time

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
