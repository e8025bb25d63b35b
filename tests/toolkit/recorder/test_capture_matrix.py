"""Rows of the capture matrix: recorded in one process, loaded, run and replayed in another
(tests/matrix/capture_matrix.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.capture_matrix import matrix, table
from tests.models.capture_programs import PROGRAMS, ROWS

FEW = ("expanded_input", "sparse", "inference_graph")


def test_there_are_sixty_programs_each_with_a_sentence() -> None:
    assert len(PROGRAMS) == len(ROWS) >= 60
    assert all(program.about for program in ROWS)


@pytest.mark.slow
def test_a_few_rows(tmp_path: Path) -> None:
    rows = {row.program.name: row for row in matrix([PROGRAMS[name] for name in FEW], tmp_path / "runs")}
    assert [name for name, row in rows.items() if not row.whole] == ["sparse"], list(table(list(rows.values())))
    assert rows["sparse"].reasons() == [
        "api: api: inductor: skipped, because Inductor takes no sparse tensors (input s)"
    ]


@pytest.mark.slow
def test_all_rows(tmp_path: Path) -> None:
    rows = matrix(ROWS, tmp_path / "runs")
    broken = {row.program.name: row.reasons() for row in rows if not row.whole and not row.program.known}
    assert not broken
    assert sum(row.whole for row in rows) >= 54
