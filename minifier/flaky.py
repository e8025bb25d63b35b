"""How sure a failure is, and how often a candidate must pass before it counts as passing.

A failure that shows in a share p of the runs is missed k times in a row with probability (1 - p)^k. p is measured, so a
lower bound of it is used: Wilson's, one-sided (E. B. Wilson, "Probable inference", 1927).

>>> Rate(5, 8).repeats(), Rate(2, 2).flaky
(11, False)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, sqrt

MISSED = 0.002
"""Accepted chance that a failing candidate is taken for a passing one."""
Z = 1.0
"""Of the lower bound: 84 % one-sided. A stricter one costs more queries than the errors that it spares."""
MOST = 40
CALIBRATION = 8
"""Runs of the original from which a rate is taken."""


@dataclass(frozen=True)
class Rate:
    """How many of how many runs of the original failed the same way."""

    failing: int
    runs: int

    @property
    def flaky(self) -> bool:
        """Whether some run did not fail."""
        return self.failing < self.runs

    def low(self) -> float:
        """A lower bound of the probability to fail."""
        n, p, z = self.runs, self.failing / self.runs, Z
        return (p + z * z / (2 * n) - z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)

    def repeats(self) -> int:
        """How often a candidate is asked before it counts as passing; 1 where the failure is sure."""
        if not self.flaky:
            return 1
        return min(MOST, max(2, ceil(log(MISSED) / log(1 - max(self.low(), 1e-3)))))

    def __str__(self) -> str:
        return f"{self.failing} of {self.runs}"
