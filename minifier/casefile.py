"""case.json beside a minimised case: how it fails, under which rung, and what it was reduced from.

`minify` writes this file, with more fields than a report needs; unknown fields are ignored. A case folder without it is
judged again. Nothing in it is taken as an instruction: only the failure and some numbers are read.

For example: `read(Path("small/case")).rung` gives `'inductor'`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, sqrt
from pathlib import Path
from typing import Any

import msgspec

from ..dumps.errors import DamagedError, UnreadableError
from ..dumps.reading import read_bytes
from ..toolkit.isolation.imports import without_trust
from ..toolkit.verdicts.signature import Signature
from ..toolkit.verdicts.verdict import Verdict

MISSED = 0.002
"""Accepted chance that a failing candidate is taken for a passing one."""
Z = 1.0
"""Normal quantile of the lower bound (`FailureRate.low`): 84 % one-sided. A stricter bound costs more in queries than
it saves in errors."""
MOST = 40
CALIBRATION = 8
"""Runs of the original from which a rate is taken."""


@dataclass(frozen=True)
class FailureRate:
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


NAME = "case.json"


class Original(msgspec.Struct):
    """The graph that a case was reduced from, and how many of how many runs of it failed (0 of 0: not recorded)."""

    nodes: int
    input_bytes: int = 0
    failing: int = 0
    runs: int = 0


class CaseFile(msgspec.Struct, kw_only=True):
    """The failure of a case (None: it passes), the verdict on it, and where it came from; `original` None: not reduced.

    `told`: sentences about what the failure needs; `needs`, `unneeded`, `neighbour`: the same as data (see
    minified.Minified). `verified`: how many of how many runs of it failed. `options`: the options of the search.
    """

    signature: Signature | None = None
    record: Verdict | None = None
    rung: str = "inductor"
    check: str = "auto"
    seed: int = 0
    original: Original | None = None
    told: list[str] = []
    needs: list[dict[str, Any]] = []
    unneeded: list[str] = []
    neighbour: dict[str, str] = {}
    verified: tuple[int, int] = (0, 0)
    spec: dict[str, Any] = {}
    options: dict[str, Any] = {}

    @property
    def rate(self) -> FailureRate | None:
        """How many of all known runs failed, of the case and of the original; None where none failed."""
        failing, runs = self.verified
        if self.original is not None:
            failing, runs = failing + self.original.failing, runs + self.original.runs
        return FailureRate(failing, runs) if failing else None

    @property
    def imports(self) -> tuple[str, ...]:
        """The modules that the case was minified with; never the trust, which the user gives each time."""
        return without_trust(self.options.get("imports") or ())

    @property
    def recorded_at(self) -> str:
        """The stage that the case was recorded at, where it is replayed at another one; else empty."""
        return str(self.spec.get("recorded_at", ""))

    @property
    def only_compiled(self) -> bool:
        """Whether eager could not run the case where it was minified, so that it was compiled and never run."""
        return bool(self.spec.get("only_compiled"))


def read(folder: Path) -> CaseFile | None:
    """The file of a case folder; None when there is none. Raises UnreadableError for a damaged one."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(read_bytes(path), type=CaseFile)
    except UnreadableError as error:
        raise DamagedError(error.what, error.why, "minify the graph again") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(f"cannot read {path}", str(error), "minify the graph again") from error
