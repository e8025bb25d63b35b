"""Queries that may run side by side, and queries that must run alone.

With several workers a query may run out of time only because the others take the machine (two kernels on one GPU share its
time), so what was cut short is asked again alone.

>>> gate = Gate()
>>> with gate.alone():
...     ...
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager


class Gate:
    """Many may be inside together, or one alone; who wants to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._wanting = 0
        self._alone = False

    @contextmanager
    def together(self) -> Generator[None]:
        """With others, but with nobody who is alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._wanting)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """With nobody."""
        with self._changed:
            self._wanting += 1
            try:
                self._changed.wait_for(lambda: not self._alone and not self._inside)
            finally:
                self._wanting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
