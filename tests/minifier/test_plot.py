"""The plot: what is seen where, in braille and in ASCII, at any size; and that many queries are drawn quickly."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from graphdbg.minifier.progress.plot import BRAILLE, Marks, Series, drawn

NODES = [180] * 5 + [40] * 3 + [9] * 4 + [3] * 8


def plotted(width: int = 60, height: int = 10, *, ascii_only: bool = False, values: list[int] = NODES) -> list[str]:
    marks = Marks([("o", "")] * len(values), [(0, "sanity"), (5, "windows"), (8, "atoms"), (9, "late")])
    rows = drawn([Series(values, "", "*", ("180", "1"))], width, height, marks, ascii_only=ascii_only)
    return [row.plain for row in rows]


def dots(rows: list[str], left: int = 4) -> set[tuple[int, int]]:
    """The dots that are set, by column and row; of braille characters or stars."""
    names: set[tuple[int, int]] = set()
    for y, row in enumerate(rows):
        for x, letter in enumerate(row[left:]):
            bits = ord(letter) - BRAILLE
            if 0 < bits < 256:
                order = (0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80)
                names |= {
                    (2 * x + i, 4 * y + j)
                    for i, column in enumerate(order)
                    for j, bit in enumerate(column)
                    if bits & bit
                }
            elif letter == "*":
                names.add((x, y))
    return names


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_line_starts_above_never_rises_and_ends_low(ascii_only: bool) -> None:
    rows = plotted(ascii_only=ascii_only)[:8]
    points = dots(rows)
    lowest = [max(y for x, y in points if x == column) for column in sorted({x for x, _ in points})]
    assert lowest[0] == 0 and lowest == sorted(lowest)
    scale = len(rows) * (1 if ascii_only else 4) - 1
    assert 0.5 * scale < lowest[-1] < scale  # 3 of 180, on a logarithmic scale
    assert len(lowest) == (60 - 4) * (1 if ascii_only else 2)  # every column has a place


def test_halving_the_size_goes_down_equally_anywhere() -> None:
    points = dots(plotted(80, 12, values=[64, 32, 16, 8, 4, 2, 1])[:10])
    ends = [max(y for x, y in points if x == 2 * (80 - 4) * query // 7 + 10) for query in range(7)]
    steps = {after - before for before, after in pairwise(ends)}
    assert max(steps) - min(steps) <= 1 and ends[0] == 0


def test_labels_marks_and_turns_are_where_they_belong() -> None:
    rows = plotted()
    assert rows[0].startswith("180│") and rows[7].startswith("  1│")
    assert rows[8].count("o") == 20
    turn = rows[9]
    assert turn.index("sanity") == 4 and turn.index("windows") == 4 + 5 * 56 // 20
    assert "late" not in turn  # no room beside atoms
    assert "┊" in rows[1][turn.index("atoms")]
    assert "|" in plotted(ascii_only=True)[0] and all(
        letter.isascii() for row in plotted(ascii_only=True) for letter in row
    )


@pytest.mark.parametrize("size", [(0, 0), (5, 1), (14, 1), (20, 3), (60, 20), (250, 80)])
@pytest.mark.parametrize("values", [[], [1], [0, 0, 7], NODES])
def test_any_size_has_as_many_rows_and_columns_as_asked(size: tuple[int, int], values: list[int]) -> None:
    for ascii_only in (False, True):
        rows = plotted(*size, ascii_only=ascii_only, values=values)
        assert len(rows) == size[1] and all(len(row) <= max(size[0], 0) for row in rows)


def test_two_series_have_an_axis_each() -> None:
    rows = drawn([Series(NODES, "cyan", "*", ("180", "1")), Series([1000] * 20, "yellow", "+", ("1k", "1"))], 60, 8)
    assert rows[0].plain.endswith("│1k") and rows[-1].plain.endswith("│1 ")
    assert {str(span.style) for span in rows[0].spans} >= {"cyan", "yellow"}


def test_a_hundred_thousand_queries_are_drawn_within_a_blink() -> None:
    values = [max(1, 100_000 - number) for number in range(100_000)]
    began = time.process_time()
    drawn([Series(values, "", "*", ("", ""))], 200, 40, Marks([("o", "")] * len(values)))
    assert time.process_time() - began < 0.25


def test_over_time_the_axes_have_ticks_and_what_is_drawn_stays_where_it_is() -> None:
    times = [3.0, 5.0, 6.0, 7.5, *(8 + number for number in range(20))]
    series = [Series(NODES, "", "*", ("180", "1"), {10: "10", 100: "100"})]

    def rows(upto: int) -> list[str]:
        values = [Series(sery.values[:upto], labels=sery.labels, ticks=sery.ticks) for sery in series]
        marks = Marks([("o", "")] * upto, [(0, "sanity")], times[:upto])
        return [row.plain for row in drawn(values, 60, 14, marks)]

    before, after = rows(13), rows(16)  # 16 s and 19 s: both axes go to 20 s
    assert any(row.startswith(" 10┤") for row in after) and not any(row.startswith("100┤") for row in after), (
        "too near to 180"
    )
    assert "0" in after[11] and "10 s" in after[11]
    assert before[11] == after[11] and all(item[:40] == other[:40] for item, other in zip(before, after, strict=True))
