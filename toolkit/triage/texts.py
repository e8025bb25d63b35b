"""Do two runs of one program print the same numbers? Numbers are aligned by the text around them.

A number's place is the text of its line with the numbers taken out, and its position there; a line is found again in the other
run by a diff of those texts. What says how long or how fast something was is left out, and so is every place where two eager
runs differ: timings, dates, addresses, process ids.

>>> departures("loss 2.07\\n", "loss 2.07\\n", "loss 2.31\\n").first
Departure(line=1, place='loss #', expected=2.07, got=2.31, text='loss 2.31')
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

RELATIVE = 1e-2
"""Of the value: rounding that a few hundred training steps have amplified stays below; a wrong kernel seldom does."""

SMALL = 1e-5
"""Of the largest value ever printed at that place: what is a difference of two almost equal numbers is not looked at closer."""

NOISE = 1e-3
"""Two eager runs that differ more than this somewhere: that place says nothing."""

SPREADS = 8.0
MOST_LINES = 50_000

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?\d+\.?\d*(?=(?:ms|us|µs|ns|s|sec|secs|seconds|min|mins|h|it|MB|GB|MiB|GiB|KB|kB|B|x)\b)"
    r"|(?<![\w.])[-+]?(?:\d+(?:[\d_,]*\d)?\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf|NaN|Inf|infinity)(?!\w)"
)
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d{1,3}:\d\d(?::\d\d(?:[.,]\d+)?)?|0x[0-9a-fA-F]+")
_UNIT = re.compile(
    r"\s*(?:ms|us|µs|ns|s|secs?|seconds?|mins?|minutes?|h|hours?|it/s|s/it|MB|GB|MiB|GiB|KB|kB|[KMG]?B/s|"
    r"(?:tok|tokens|samples|img|images|examples|steps|batches|iters?|it)\s?/\s?(?:s|sec|second))\b"
)
_TIME_WORD = re.compile(
    r"(?:time|elapsed|took|duration|eta|throughput|speed|latency|pid|memory|mem|date)\W*\w*\W*$", re.IGNORECASE
)


class Departure(NamedTuple):
    """Where a run departs: its line number, the place, what eager printed there, what this run printed, the line."""

    line: int
    place: str
    expected: float
    got: float
    text: str

    @property
    def is_nan(self) -> bool:
        """Whether it is a NaN or an Inf that eager does not have."""
        return not math.isfinite(self.got)


class Comparison(NamedTuple):
    """The first departure (None: none), how many numbers were compared, and the places left out because eager itself differs."""

    first: Departure | None
    compared: int
    noisy: list[str]
    aligned: float


class _Line(NamedTuple):
    number: int
    place: str
    values: list[float | None]
    text: str


def departures(eager: str, again: str, other: str) -> Comparison:
    """Compares a run's stdout with eager's; `again` is a second eager run, for what differs by itself."""
    one, two, three = (_lines(text) for text in (eager, again, other))
    spread, noisy = _spread(one, two)
    largest: dict[tuple[str, int], float] = {}
    for line in one:
        for index, value in enumerate(line.values):
            if value is not None and math.isfinite(value):
                key = (line.place, index)
                largest[key] = max(largest.get(key, 0.0), abs(value))
    first: Departure | None = None
    compared = 0
    pairs = _pairs(one, three)
    for mine, theirs in pairs:
        for index, (want, have) in enumerate(zip(mine.values, theirs.values, strict=True)):
            key = (mine.place, index)
            if want is None or have is None or key in noisy:
                continue
            compared += 1
            room = RELATIVE * abs(want) + SMALL * largest.get(key, 0.0) + SPREADS * spread.get(key, 0.0)
            if first is None and not _near(want, have, room):
                first = Departure(theirs.number, mine.place.strip(), want, have, theirs.text.strip())
    return Comparison(first, compared, sorted({place.strip() for place, _ in noisy}), len(pairs) / max(len(one), 1))


def nan_lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text with a NaN in it."""
    return [
        (line.number, line.text.strip())
        for line in _lines(text)
        if any(value is not None and math.isnan(value) for value in line.values)
    ]


def _near(want: float, have: float, room: float) -> bool:
    if math.isnan(want) or math.isnan(have):
        return math.isnan(want)  # eager's own NaN says nothing of another run
    return want == have or abs(want - have) <= room


def _spread(one: Sequence[_Line], two: Sequence[_Line]) -> tuple[dict[tuple[str, int], float], set[tuple[str, int]]]:
    """By place: how far two eager runs are apart, and the places where they are so far apart that nothing can be said."""
    spread: dict[tuple[str, int], float] = {}
    noisy: set[tuple[str, int]] = set()
    for mine, theirs in _pairs(one, two):
        for index, (a, b) in enumerate(zip(mine.values, theirs.values, strict=True)):
            if a is None or b is None or a == b or (math.isnan(a) and math.isnan(b)):
                continue
            key = (mine.place, index)
            gap = abs(a - b)
            spread[key] = max(spread.get(key, 0.0), gap if math.isfinite(gap) else math.inf)
            if not gap <= NOISE * max(abs(a), abs(b)):
                noisy.add(key)
    return spread, noisy


def _pairs(one: Sequence[_Line], two: Sequence[_Line]) -> list[tuple[_Line, _Line]]:
    places, others = [line.place for line in one], [line.place for line in two]
    if places == others:
        return list(zip(one, two, strict=True))
    matcher = difflib.SequenceMatcher(None, places, others, autojunk=False)
    blocks = matcher.get_matching_blocks() if len(one) * len(two) < 4_000_000 else _by_count(places, others)
    return [(one[a + k], two[b + k]) for a, b, size in blocks for k in range(size)]


def _by_count(places: Sequence[str], others: Sequence[str]) -> list[tuple[int, int, int]]:
    """The k-th line of a place with the k-th of the same place, for texts too long for a diff."""
    seen: dict[str, list[int]] = {}
    for index, place in enumerate(others):
        seen.setdefault(place, []).append(index)
    taken: dict[str, int] = {}
    found = []
    for index, place in enumerate(places):
        count = taken.get(place, 0)
        if count < len(seen.get(place, ())):
            found.append((index, seen[place][count], 1))
            taken[place] = count + 1
    return found


def _lines(text: str) -> list[_Line]:
    found = []
    for number, line in enumerate(text.replace("\r", "\n").splitlines()[:MOST_LINES], 1):
        line = _CLOCK.sub("<clock>", line)
        values: list[float | None] = []
        parts: list[str] = []
        end = 0
        for match in _NUMBER.finditer(line):
            parts += [line[end : match.start()], "#"]
            values.append(_value(line, match))
            end = match.end()
        if values:
            found.append(_Line(number, "".join([*parts, line[end:]]), values, line))
    return found


def _value(line: str, match: re.Match[str]) -> float | None:
    """The number, or None for one that tells a time, a speed or a size of memory."""
    if _UNIT.match(line, match.end()) or _TIME_WORD.search(line[: match.start()]):
        return None
    try:
        return float(match.group().replace(",", "").replace("_", ""))
    except ValueError:
        return None
