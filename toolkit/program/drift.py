"""A drift over steps: how far each step's values are from eager's, from the same start, beside what rounding alone does
to them.

Eager itself, run once more with every result rounded at random, shows by how much two builds may differ. From the same
start nothing adds up over steps, so a fault that acts at every step stands above that line from its first step on.
Imports no torch.

For example:

    print(drift(calls).lines[0])  # -> step(): result              ▂▂▁▂▂▂▁▂  at most 3.0e-07; rounding alone 2.1e-07
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from ...dumps.wording import counted
from .records import Call

BLOCKS = "▁▂▃▄▅▆▇█"
FACTOR = 16.0
"""So many times what rounding alone does, at most of the steps, is a fault that acts at every step."""
_SHOWN = 8


class Series(msgspec.Struct):
    """One value of one function over its calls: the relative differences of the last rung, and what rounding alone
    does."""

    function: str
    value: str
    calls: list[int]
    differences: list[float]
    rounding: list[float]

    @property
    def acts(self) -> bool:
        """Whether most steps are far beyond rounding."""
        beyond = [
            difference > FACTOR * max(noise, 1e-7)
            for difference, noise in zip(self.differences, self.rounding, strict=True)
        ]
        return sum(beyond) * 2 > len(beyond)


class Drift(msgspec.Struct):
    """All series, the worst first, and the sentence about them."""

    series: list[Series]
    sentence: str

    @property
    def lines(self) -> list[str]:
        """A line for each of the worst series, with a picture: one block per step, a factor of ten per height."""
        shown = self.series[:_SHOWN]
        width = max((len(f"{series.function}(): {series.value}") for series in shown), default=0)
        return [f"{f'{series.function}(): {series.value}':<{width}}  {_line(series)}" for series in shown]


def _line(series: Series) -> str:
    picture = "".join(_block(value) for value in series.differences)
    return f"{picture}  at most {max(series.differences):.1e}; rounding alone {max(series.rounding):.1e}"


def _block(value: float) -> str:
    at = 0 if value <= 0.0 else round(math.log10(value)) + 8
    return BLOCKS[min(max(at, 0), len(BLOCKS) - 1)]


def drift(calls: Sequence[Call]) -> Drift | None:
    """The drift of the calls that were looked at; None for fewer than three of a function."""
    by_value: dict[tuple[str, str], Series] = {}
    for call in calls:
        for part in ("", "backward"):
            rows: list[Any] = [row for row in call.rows if row.part == part]
            if len(rows) < 2:
                continue
            for value, far in rows[-1].differences.items():
                curve = by_value.setdefault((call.function, value), Series(call.function, value, [], [], []))
                curve.calls.append(call.number)
                curve.differences.append(far)
                curve.rounding.append(rows[0].differences.get(value, 0.0))
    long = [curve for curve in by_value.values() if len(curve.calls) > 2]
    series = sorted(long, key=lambda curve: -statistics.median(curve.differences))
    if not series:
        return None
    acting = [curve for curve in series if curve.acts]
    steps = counted(max(len(curve.calls) for curve in series), "step")
    if acting:
        worst = acting[0]
        text = (
            f"{worst.value} of {worst.function}() is {statistics.median(worst.differences):.1e} off at most of {steps}"
        )
        text += f", where rounding alone does {max(worst.rounding):.1e}: a fault that acts at every step"
        return Drift(sorted(series, key=lambda curve: not curve.acts), text)
    most = max(max(curve.differences) for curve in series)
    text = f"over {steps} no value is further off than rounding moves it in any two builds (at most {most:.1e})"
    return Drift(series, text)
