"""Amounts as people read them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from graphdbg.dumps.wording import age_text, ago_text, clock_text, count_text, size_text


def test_bytes_have_binary_units() -> None:
    sizes = [size_text(count) for count in (None, 0, 1, 1023, 1536, 3 * 2**20, 2**20 - 1, 2**50)]
    assert sizes == ["?", "0 B", "1 B", "1023 B", "1.5 KiB", "3.0 MiB", "1.0 MiB", "1.0 PiB"]
    assert size_text(5 * 2**28, digits=2) == "1.25 GiB"


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "?"), (0, "0"), (999, "999"), (1000, "1.00k"), (2_100_000, "2.10M"), (34_400_000_000, "34.4G")],
)
def test_counts_have_decimal_prefixes(number: int | None, text: str) -> None:
    assert count_text(number) == text


def test_rates_are_counts_with_a_unit() -> None:
    assert [count_text(rate, "B/s") for rate in (12, 3.14e12)] == ["12 B/s", "3.14 TB/s"]


def test_lengths_of_time() -> None:
    assert [age_text(seconds) for seconds in (-1, 5, 750, 7200, 300_000)] == [
        "a moment",
        "5 seconds",
        "12 minutes",
        "2 hours",
        "3 days",
    ]
    assert ago_text(750) == "12 minutes ago"
    clocks = [clock_text(seconds) for seconds in (0, 8, 60, 125, 3723, 36_000)]
    assert clocks == ["0 s", "8 s", "1:00", "2:05", "1:02:03", "10:00:00"]


def test_a_command_that_prints_no_amount_does_not_wait_for_the_library() -> None:
    check = (
        "import sys; import graphdbg.dumps.wording, graphdbg.dumps.commands.ls; assert 'humanize' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
