"""How long a minification may go on: seconds of wall time and queries, one object for both.

>>> Budget(max_queries=2).check(queries=2)
Traceback (most recent call last):
...
graphdbg.minifier.budget.Stopped: 2 queries were made (--max-queries 2)
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field


class Stopped(Exception):
    """The search ends here with what it has; the text says why. Raised by the engine between queries, never inside one."""


@dataclass
class Budget:
    """Limits of one minification; None is no limit. The clock starts when the object is made."""

    max_seconds: float | None = None
    max_queries: int | None = None
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def check(self, queries: int) -> None:
        """Raises Stopped where a limit is reached; `queries` were made so far."""
        if self.max_queries is not None and queries >= self.max_queries:
            raise Stopped(f"{queries} queries were made (--max-queries {self.max_queries})")
        if self.max_seconds is not None and self.seconds() >= self.max_seconds:
            raise Stopped(f"{self.seconds():.0f} s have passed (--max-time {self.max_seconds:g})")
