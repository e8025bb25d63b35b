"""The steps that a search still has before it, and what a user may change about that. Knows names only; decides nothing
else.

>>> agenda = Agenda(["switches", "windows", "atoms", "dims"], disabled={"windows"})
>>> agenda.promote("dims")
>>> agenda.next(), agenda.next(), agenda.next(), agenda.next()
(0, 3, 2, None)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..dumps.wording import counted
from .passes import NAMES as PASS_NAMES


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
            queries_run = counted(queries, "query was", "queries were")
            raise Stopped(f"{queries_run} made{kept} (--max-queries {self.max_queries})")
        if self.late():
            raise Stopped(f"{self.seconds():.0f} s have passed (--max-time {self.max_seconds:g})")


FIRST = "switches"
"""What holds for the whole case; nothing comes before it while it is ahead."""
REDUCTION = frozenset({"hint", "windows", "chunks", "atoms", "blocks", "polish"})
LAST = {"explain": REDUCTION, "needs": REDUCTION | {"explain", "outputs", "together", *PASS_NAMES}}
"""A step -> those that must be over before it."""


class Agenda:
    """One round of a search. `disabled` is shared with whoever changes it: a step in it stays ahead, but never
    comes."""

    def __init__(self, names: Sequence[str], disabled: set[str]) -> None:
        self.names, self.disabled = list(names), disabled
        self._ahead = list(range(len(self.names)))

    def next(self) -> int | None:
        """The place of the step that comes now, in `names`; None where none is left."""
        place = next((place for place in self._ahead if self.names[place] not in self.disabled), None)
        if place is not None:
            self._ahead.remove(place)
        return place

    def ahead(self) -> list[str]:
        """The names of the steps that will come, in order."""
        return [self.names[place] for place in self._ahead if self.names[place] not in self.disabled]

    def promote(self, name: str) -> None:
        """Makes a step the next one; the first of that name where there are two."""
        place = next(place for place in self._ahead if self.names[place] == name)
        self._ahead.remove(place)
        first = bool(self._ahead) and self._ahead[0] == 0 and self.names[0] == FIRST and FIRST not in self.disabled
        self._ahead.insert(1 if first else 0, place)

    def refusal(self, what: str, name: str) -> str:
        """Why a step cannot be disabled, enabled or raised now; empty where it can."""
        if name not in self.names:
            return f"this search has no step {name!r}: there are {', '.join(dict.fromkeys(self.names))}"
        if what == "disable":
            return f"{name} is disabled already" if name in self.disabled else ""
        if what == "enable":
            return "" if name in self.disabled else f"{name} is not disabled"
        if name in self.disabled:
            return f"{name} is disabled; enable it first"
        if name not in self.ahead():
            return f"{name} has begun already; restart N runs all steps again"
        before = [other for other in self.ahead() if other in LAST.get(name, ())]
        return f"{name} works on what {before[0]} leaves, so it comes after {before[0]}" if before else ""
