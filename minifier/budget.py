"""How long a minification may go on: seconds of wall time and queries, one object for both; and what ends a step or all
of it.

>>> SearchLimits(max_queries=2).left(queries=1)
1
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..dumps.wording import counted


class Stopped(Exception):
    """The search ends here with what it has; the text says why. Raised by the engine between queries, never inside
    one."""


class Cancelled(Stopped):
    """The user has had enough; what was found is verified and kept."""


class Skipped(Exception):
    """The step that runs ends here, with the best case so far; the next one follows."""


class Restarted(Exception):
    """The search goes on from the `number`-th case of its history."""

    def __init__(self, number: int) -> None:
        super().__init__(f"restart {number}")
        self.number = number


@dataclass
class SearchLimits:
    """Limits of one minification; None is no limit. The clock starts when the object is made.

    `reserved` of the queries are kept for what follows the search (its verification).
    """

    max_seconds: float | None = None
    max_queries: int | None = None
    reserved: int = 0
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def left(self, queries: int) -> int | None:
        """How many more queries the search may make after `queries`; None: any number."""
        return None if self.max_queries is None else max(0, self.max_queries - self.reserved - queries)

    def seconds_left(self) -> float | None:
        """Until the time is over; None: any number."""
        return None if self.max_seconds is None else max(0.0, self.max_seconds - self.seconds())

    def late(self) -> bool:
        """Whether the time is over."""
        return self.seconds_left() == 0

    def check(self, queries: int) -> None:
        """Raises Stopped where a limit is reached; `queries` were made so far."""
        if self.left(queries) == 0:
            kept = f", {self.reserved} more are for verification" if self.reserved else ""
            raise Stopped(
                f"{counted(queries, 'query was', 'queries were')} made{kept} (--max-queries {self.max_queries})"
            )
        if self.late():
            raise Stopped(f"{self.seconds():.0f} s have passed (--max-time {self.max_seconds:g})")
