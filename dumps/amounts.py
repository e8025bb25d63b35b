"""Amounts as people read them: bytes in binary units, counts and rates in decimal ones, lengths of time.

>>> size_text(1536), count_text(2_100_000), age_text(750), clock_text(125)
('1.5 KiB', '2.10M', '12 minutes', '2:05')
"""

from __future__ import annotations

from datetime import timedelta


def size_text(size_bytes: float | None, *, digits: int = 1) -> str:
    """A number of bytes: 512 B, 1.5 KiB, 3.0 MiB; "?" where it is not known."""
    if size_bytes is None:
        return "?"
    from humanize import naturalsize  # late: a command that prints none does not wait for it

    return naturalsize(size_bytes, binary=True, format=f"%.{digits}f").replace("Bytes", "B").replace("Byte", "B")


def count_text(number: float | None, unit: str = "") -> str:
    """A number in three digits with a decimal prefix: 134M, 2.10k, 1.33 TB/s; "?" where it is not known."""
    if number is None:
        return "?"
    if isinstance(number, int) and abs(number) < 1000:
        return f"{number} {unit}".rstrip()
    from humanize import metric

    text = metric(number, unit, precision=3)
    return text if unit else text.replace(" ", "")


def age_text(seconds: float) -> str:
    """A length of time in one unit: 43 seconds, 12 minutes, 3 hours, 2 days."""
    from humanize import naturaldelta

    return naturaldelta(max(0.0, seconds))


def ago_text(seconds: float) -> str:
    """How long ago: 12 minutes ago."""
    return f"{age_text(seconds)} ago"


def clock_text(seconds: float) -> str:
    """A length of time to the second: 8 s, 2:05, 1:02:03."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else str(timedelta(seconds=whole)).lstrip("0:")
