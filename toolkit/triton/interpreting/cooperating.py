# pyright: basic
"""Programs that wait for each other (cooperative reductions): each in a thread of its own, of which one runs at a time.

A program runs until it waits or ends; when all have, those that wait go on. Kernels of independent programs need none
of it.

For example: `Programs(start, resumed).run(12)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

MARK = "x_grid_barrier"
"""Inductor's name for the wait; a kernel that holds it is cooperative."""


class Programs:
    """`start(number)` runs a program; `resumed(number)` is called before each part of it."""

    def __init__(self, start: Callable[[int], None], resumed: Callable[[int], None]) -> None:
        self.start, self.resumed = start, resumed
        self._turns: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._now = 0
        self._ended: set[int] = set()
        self._errors: list[BaseException] = []
        self._stopped = False

    def run(self, count: int) -> None:
        """Runs programs 0 to count - 1. Raises what the first of them raises that fails."""
        threads = [threading.Thread(target=self._body, args=(number,), daemon=True) for number in range(count)]
        self._turns = {number: threading.Semaphore(0) for number in range(count)}
        for thread in threads:
            thread.start()
        try:
            while len(self._ended) < count and not self._errors:
                for number in range(count):
                    if number not in self._ended and not self._errors:
                        self._now = number
                        self.resumed(number)
                        self._turns[number].release()
                        self._back.acquire()
        finally:
            self._stopped = True
            for number in range(count):
                self._turns[number].release()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def wait(self) -> None:
        """Called by the program that runs: the others run up to their own wait."""
        number = self._now
        self._back.release()
        self._turns[number].acquire()
        if self._stopped:
            raise _Stopped

    def _body(self, number: int) -> None:
        self._turns[number].acquire()
        if self._stopped:
            return
        try:
            self.start(number)
        except _Stopped:
            return
        except BaseException as error:  # noqa: BLE001  raised again by the thread that asked
            self._errors.append(error)
        self._ended.add(number)
        self._back.release()


class _Stopped(BaseException):
    """Another program failed."""
