"""The plot of a minification: up to two series over the queries or over time, each on a logarithmic scale of its own,
in braille or ASCII. The live view of the command and the workbench show it.

Steps, not slopes: a size holds until it changes. Draws in no terminal itself.

>>> rows = drawn([Series([8, 4, 1], "cyan")], 24, 6)
>>> len(rows), len(rows[0].plain)
(6, 24)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from rich.text import Text

from ...dumps.wording import clock_text, counted, size_text
from ...toolkit.verdicts.verdict_words import query_words
from ..events import QueryAnswered
from ..story import Story

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille cell by row and column."""
BRAILLE = 0x2800
_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
_ENDS_S = [unit * step for unit in (10, 60, 600, 3600, 36_000, 360_000) for step in (1, 1.5, 2, 3, 4, 5, 6, 8)]
"""Ends of a time axis: few, so that the picture seldom moves."""
LEAST_S = 5.0
"""Seconds below which time says less than the number of queries."""
LEAST = 10
"""Columns below which there is no plot."""


@dataclass
class Series:
    """Values over the queries (0: none yet), how they are coloured and marked in ASCII, and what is written at their
    axis."""

    values: Sequence[int]
    style: str = ""
    mark: str = "*"
    labels: tuple[str, str] = ("", "")
    """The labels at the top and the bottom of its axis; the scale goes from 1 to the largest value."""
    ticks: Mapping[int, str] = field(default_factory=dict[int, str])
    """Other labels at its axis, by value, where there is room."""

    def axis(self, down: int) -> dict[int, str]:
        """The labels beside each of so many rows."""
        shown = {down - 1: self.labels[1], 0: self.labels[0]}
        span = log(max(2, max(self.values, default=2))) if self.ticks else 1.0
        for value, text in self.ticks.items():
            row = down - 1 - round(log(value) / span * (4 * down - 1)) // 4
            if not {row - 1, row, row + 1} & set(shown) and 0 < row < down - 1:
                shown[row] = text
        return shown


@dataclass
class Marks:
    """The marks below: a character and style per query, and words at queries where something began."""

    verdicts: Sequence[tuple[str, str]] = ()
    turns: Sequence[tuple[int, str]] = ()
    times: Sequence[float] = ()
    """Seconds from the start to each query; where given, time is the horizontal axis."""


def drawn(
    series: Sequence[Series], width: int, height: int, marks: Marks | None = None, *, ascii_only: bool = False
) -> list[Text]:
    """`height` rows of `width` characters: the plot with its axes, then verdicts and words where there is room for
    them."""
    marks = marks or Marks()
    both = (*series, Series(()), Series(()))[:2]
    left, right = (max(len(text) for text in (*plotted.labels, *plotted.ticks.values())) for plotted in both)
    across = width - left - 1 - (right + 1 if right else 0)
    below = (1 if marks.verdicts and height > 3 else 0) + (1 if marks.turns and height > 5 else 0)
    ticked = bool(marks.times) and marks.times[-1] >= LEAST_S and height > 7
    below += ticked
    down = height - below
    count = max((len(plotted.values) for plotted in series), default=0)
    if across < LEAST or down < 1:
        return [Text() for _ in range(height)]
    dots = across * (1 if ascii_only else 2)
    end = next((end for end in _ENDS_S if ticked and end >= marks.times[-1]), 0.0)
    places = _in_time(marks.times, end, dots) if end else _places(count, dots)
    turns = {bisect_left(places, query) // (1 if ascii_only else 2): words for query, words in marks.turns}
    cells = _ascii(series, places, across, down) if ascii_only else _braille(series, places, across, down)
    lines = {} if end else turns  # over time they would move, and be painted, with each answer
    axes = [plotted.axis(down) for plotted in series]
    rows = [_row(cells[row], row, down, series, axes, left, right, lines, ascii_only) for row in range(down)]
    if ticked:
        rows.append(_clock(end, across, left, ascii_only) if end else Text())
    if marks.verdicts and height > 3:
        rows.append(_verdicts(marks.verdicts, places, across, left, 1 if ascii_only else 2))
    if marks.turns and height > 5:
        rows.append(_words(turns, across, left))
    return rows


def _places(count: int, across: int) -> list[int]:
    """For each dot column the query that it shows: one each where all fit, else the last of those that share it."""
    if count <= 0:
        return []
    if count == 1:
        return [0] * across
    return [((column + 1) * count - 1) // across for column in range(across)]


def _in_time(times: Sequence[float], end: float, across: int) -> list[int]:
    """For each dot column the query at its time; -1 before the first, their number after the last."""
    last = -int(-times[-1] / end * across // 1)
    answered = [bisect_right(times, end * (column + 1) / across) - 1 for column in range(across)]
    return [query if column < last else len(times) for column, query in enumerate(answered)]


def _clock(seconds: float, across: int, left: int, ascii_only: bool) -> Text:
    """The times along the axis, round ones, about 15 columns apart."""
    step = next((step for step in _STEPS_S if step * across / seconds >= 15), _STEPS_S[-1])
    line = ""
    for number in range(1 + int(seconds / step)):
        column, text = round(number * step / seconds * across), clock_text(number * step) if number else "0"
        if column >= len(line) and column + len(text) < across:
            line = f"{line:<{column}}{'|' if ascii_only else '╵'}{text}"
    return Text(" " * (left + 1) + line, "dim", no_wrap=True, end="")


def _levels(line: Series, places: list[int], dots: int) -> list[int | None]:
    """The height of each column in dots; None where there is no value."""
    span = log(max([*line.values, 2]))
    levels: list[int | None] = []
    for query in places:
        value = line.values[max(query, 0)] if query < len(line.values) else 0  # before the first answer it was as large
        levels.append(round(log(max(value, 1)) / span * (dots - 1)) if value else None)
    return levels


def _strokes(series: Sequence[Series], places: list[int], dots: int) -> Iterator[tuple[Series, int, int, int]]:
    """For each column of dots of each series: its level and the level before. The first series comes last, so that it
    is in front."""
    for line in reversed(series):
        before: int | None = None
        for column, level in enumerate(_levels(line, places, dots)):
            if level is not None:
                yield line, column, level, level if before is None else before
            before = level


def _braille(series: Sequence[Series], places: list[int], across: int, down: int) -> list[list[tuple[str, str]]]:
    bits = [[0] * across for _ in range(down)]
    styles = [[""] * across for _ in range(down)]
    for plotted, column, level, before in _strokes(series, places, 4 * down):
        for dot in range(min(before, level), max(before, level) + 1):
            row = 4 * down - 1 - dot
            bits[row // 4][column // 2] |= DOTS[row % 4][column % 2]
            styles[row // 4][column // 2] = plotted.style
    return [
        [(chr(BRAILLE + bit) if bit else " ", style) for bit, style in zip(line, tones, strict=True)]
        for line, tones in zip(bits, styles, strict=True)
    ]


def _ascii(series: Sequence[Series], places: list[int], across: int, down: int) -> list[list[tuple[str, str]]]:
    cells = [[(" ", "")] * across for _ in range(down)]
    for line, column, level, before in _strokes(series, places, down):
        for between in range(min(level, before) + 1, max(level, before)):
            cells[down - 1 - between][column] = "|", line.style
        cells[down - 1 - level][column] = line.mark, line.style
    return cells


def _row(
    cells: list[tuple[str, str]],
    row: int,
    down: int,
    series: Sequence[Series],
    axes: Sequence[dict[int, str]],
    left: int,
    right: int,
    turns: dict[int, str],
    ascii_only: bool,
) -> Text:
    """One row with the ends of the axes; where a step began, a thin line is drawn through empty cells."""
    text = Text(no_wrap=True, end="")
    label = axes[0].get(row, "")
    text.append(f"{label:>{left}}", series[0].style)
    text.append("|" if ascii_only else "┤" if label and 0 < row < down - 1 else "│", "dim")
    line = ":" if ascii_only else "┊"
    run, style = "", ""
    for column, (mark, tone) in enumerate(cells):
        if mark == " " and column in turns:
            mark, tone = line, "dim"
        if tone != style:
            text.append(run, style)
            run, style = "", tone
        run += mark
    text.append(run, style)
    if right:
        label = axes[1].get(row, "")
        text.append("|" if ascii_only else "├" if label and 0 < row < down - 1 else "│", "dim")
        text.append(f"{label:<{right}}", series[1].style)
    return text


def _verdicts(verdicts: Sequence[tuple[str, str]], places: list[int], across: int, left: int, dots: int) -> Text:
    """A character per column: of several queries the last; wide columns show it once."""
    text = Text(" " * (left + 1), no_wrap=True, end="")
    before = -1
    for column in range(across):
        query = max((at for at in places[column * dots :][:dots] if at < len(verdicts)), default=-1)
        mark, style = verdicts[query] if query >= 0 and query != before else (" ", "")
        text.append(mark, style)
        before = query
    return text


def _words(turns: dict[int, str], across: int, left: int) -> Text:
    """The words at their columns, without those that would run into the one before."""
    line = ""
    for column, words in sorted(turns.items()):
        if column >= len(line) + (1 if line else 0) and column + len(words) <= across:
            line = f"{line:<{column}}{words}"
    return Text(" " * (left + 1) + line, "dim", no_wrap=True, end="")


@dataclass
class Picture:
    """The contents of a plot."""

    series: list[Series] = field(default_factory=list[Series])
    marks: Marks = field(default_factory=Marks)


def mark_of(query: QueryAnswered, ascii_only: bool) -> tuple[str, str]:
    """The character of a query's answer, and its style."""
    said = query_words(query.verdict)
    return (said.letter if ascii_only else said.mark), said.style


def picture(story: Story, *, ascii_only: bool = False) -> Picture:
    """The numbers of a followed minification as a picture."""
    if not story.points:
        return Picture()
    nodes, sizes = [point[0] for point in story.points], [point[1] for point in story.points]
    tens = [10**power for power in range(1, 12)]
    ticks = {ten: str(ten) for ten in tens if ten < max(nodes)}
    series = [Series(nodes, "bold cyan", "*", (counted(max(nodes), "node"), "1"), ticks)]
    if max(sizes) > 1:
        powers = [1 << power for power in range(5, 40, 5)]
        ticks = {size: size_text(size, digits=0) for size in powers if size < max(sizes)}
        series.append(Series(sizes, "yellow", "+", (size_text(max(sizes)), "1 B"), ticks))
    turns = [(query, step) for query, step in story.turns if query < len(story.points)]
    return Picture(series, Marks([mark_of(query, ascii_only) for query in story.queries], turns, list(story.times)))
