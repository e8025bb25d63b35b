"""When garbage is collected: while nobody presses a key. A collection among millions of nodes takes a quarter of a
second.

Automatic collection is off while the workbench runs; what is not in a cycle is freed at once anyhow. What a screen has
loaded is set apart (`gc.freeze`), so that between two keys only what came since is looked at. Knows no screen.

>>> begin()
>>> collector = Collector()
>>> collector.touched(); collector.tick()      # a key was pressed just now: nothing happens
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


def begin() -> None:
    """Turns automatic collection off: from now on only a `Collector` collects."""
    gc.disable()


def much() -> bool:
    """Whether there are so many new objects that they cannot wait for a rest."""
    return gc.get_count()[0] > MANY


def young() -> None:
    """Collects the newest objects."""
    gc.collect(0)


def loaded() -> None:
    """Sets the present objects apart: they are not looked at again before a long rest."""
    gc.freeze()


def end() -> None:
    """Restores automatic collection."""
    gc.enable()


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
