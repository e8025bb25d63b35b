"""The steps of a search that are still ahead, and how a user may change their order. Handles step names only.

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


class SearchStopped(Exception):
    """Ends the search with the best case so far; the message says why. Raised by the engine between queries, never
    inside one."""


class Cancelled(SearchStopped):
    """The user ends the search; the best case so far is verified and kept."""


class SkipAsked(Exception):
    """Ends the current step with the best case so far; the next step follows."""


class RestartAsked(Exception):
    """The search goes on from the `number`-th case of its history."""

    def __init__(self, number: int) -> None:
        super().__init__(f"restart {number}")
        self.number = number


KEPT = 0.25
"""The share of the time that is kept for the verification and the repro."""


GRACE_S = 10.0


@dataclass
class SearchLimits:
    """Limits of one minification; None is no limit. The clock starts when the object is made.

    `reserved`: how many of the queries are kept for the verification after the search; where any are, KEPT of the time
    is, too.
    """

    max_seconds: float | None = None
    max_queries: int | None = None
    reserved: int = 0
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def left(self, queries: int) -> int | None:
        """How many more queries the search may make after `queries`; None: no limit."""
        return None if self.max_queries is None else max(0, self.max_queries - self.reserved - queries)

    def seconds_left(self) -> float | None:
        """Seconds that the search still has; None: no limit."""
        return None if self.max_seconds is None else max(0.0, self.max_seconds - self._kept_s - self.seconds())

    @property
    def _kept_s(self) -> float:
        return KEPT * (self.max_seconds or 0.0) if self.reserved else 0.0

    def over(self) -> bool:
        """Whether all of the time is over, that of the verification too, which may take GRACE_S more."""
        return self.max_seconds is not None and self.seconds() >= self.max_seconds + GRACE_S

    def late(self) -> bool:
        """Whether the time of the search is over."""
        return self.seconds_left() == 0

    def check(self, queries: int) -> None:
        """Raises Stopped where a limit is reached; `queries` were made so far."""
        if self.left(queries) == 0:
            kept = f", {self.reserved} more are for verification" if self.reserved else ""
            queries_run = counted(queries, "query was", "queries were")
            raise SearchStopped(f"{queries_run} made{kept} (--max-queries {self.max_queries})")
        if self.late():
            kept = f", {self._kept_s:.0f} s more are for verification" if self._kept_s else ""
            raise SearchStopped(f"{self.seconds():.0f} s have passed{kept} (--max-time {self.max_seconds:g})")


FIRST = "switches"
"""The step on settings of the whole case: while it is still ahead, no other step is promoted above it."""
REDUCTION = frozenset({"hint", "windows", "chunks", "atoms", "blocks", "polish"})
LAST = {"explain": REDUCTION, "needs": REDUCTION | {"explain", "outputs", "together", *PASS_NAMES}}
"""Step -> the steps that must be over before it."""


class Agenda:
    """The steps of one round of a search. `disabled` is a live set that the caller may change: a step in it stays
    ahead, but is passed over."""

    def __init__(self, names: Sequence[str], disabled: set[str]) -> None:
        self.names, self.disabled = list(names), disabled
        self._ahead = list(range(len(self.names)))

    def next(self) -> int | None:
        """Takes out the next step that is not disabled; returns its index in `names`, None where no step is left."""
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
