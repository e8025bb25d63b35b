"""How long a candidate may take before it counts as hanging: learnt from candidates that did not hang. Imports no torch.

A case that hangs costs its whole time limit each time, so the limit is shortened to a multiple of what passing candidates took in
the very stage that hangs, with an allowance for size. A wrong guess would take a slow case for a hanging one: what the
search ends on is judged once more at the full limit, and if that passes, `distrust` ends the shortening.

>>> pace = Pace(60.0)
>>> pace.saw(seconds=0.4, nodes=3)
>>> pace.limit_s(nodes=3), pace.limit_s(nodes=300)
(4.0, 60.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 10.0
"""How many times longer than the slowest that passed."""
LEAST_S = 3.0
PER_NODE = 0.05
"""What a node more may cost, as a part of what the slowest took."""


@dataclass
class Pace:
    """What passing candidates took in one stage. `jobs` of them at the same time slow each other down."""

    full_s: float
    jobs: int = 1
    trusted: bool = True
    _slowest_s: float | None = None
    _nodes: int = 0

    @property
    def known(self) -> bool:
        """Whether anything has passed so far."""
        return self.trusted and self._slowest_s is not None

    def saw(self, seconds: float, nodes: int) -> None:
        """A candidate of that size was that long in the stage and left it."""
        self._slowest_s = max(self._slowest_s or 0.0, seconds)
        self._nodes = max(self._nodes, nodes)

    def limit_s(self, nodes: int) -> float:
        """What a candidate of that size may take."""
        if not self.trusted or self._slowest_s is None:
            return self.full_s
        larger = 1 + PER_NODE * max(0, nodes - self._nodes)
        return min(self.full_s, max(LEAST_S, FACTOR * self._slowest_s * larger) * self.jobs)

    def distrust(self) -> None:
        """A case that was cut short turned out not to hang: from now on nothing is cut short."""
        self.trusted = False


def seconds_in(stage: str, marks: Sequence[tuple[str, float]], end_s: float) -> float | None:
    """How long a child was in a stage, of all its visits; None when it never was. `marks`: stage and second of each beginning."""
    ends = [*(second for _, second in marks[1:]), end_s]
    visits = [end - second for (name, second), end in zip(marks, ends, strict=False) if name == stage]
    return sum(visits) if visits else None
