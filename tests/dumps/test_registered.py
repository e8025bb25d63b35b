"""Objects that stand one in a file: what is wrong with one is said with its file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from graphdbg.dumps.registered import all_described


class Row(NamedTuple):
    """What the files of this test describe."""

    order: float
    words: str = ""


def test_they_come_in_their_order(tmp_path: Path) -> None:
    for name, order in (("a", 20), ("b", 10)):
        (tmp_path / f"{name}.py").write_text(f'\nROW = Row(order={order}, words="{name}")\n')
    (tmp_path / "c.py").write_text("\nX = 1\n")
    assert all_described(tmp_path, "ROW", Row) == {"b": Row(10, "b"), "a": Row(20, "a")}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ('words="x"', "ROW needs an order=..., written out"),
        ("order=10 + 5", "order=... of ROW has to be written out"),
        ('order=10, wrods="x"', "ROW: .* unexpected keyword argument 'wrods'"),
    ],
)
def test_a_file_that_says_it_wrongly_is_named(words: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"\nROW = Row({words})\n")
    with pytest.raises(ValueError, match=rf"mine\.py: {why}"):
        all_described(tmp_path, "ROW", Row)
