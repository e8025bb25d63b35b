"""Programs of the capture matrix, minified against a planted fault, in the shortest of its runs: all of it is a
bench."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_collective_a_custom_operator_and_a_vmap_are_left_alone_and_their_repros_run(tmp_path: Path) -> None:
    names = ("custom_op_list", "reduced_in_place", "vmap")
    command = [
        sys.executable,
        "-m",
        "tests.matrix.minify_matrix",
        "--only",
        f"^({'|'.join(names)})$",
        "--cells",
        str(tmp_path / "cells"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert "3 of 3 programs: every graph minified, its repro runs" in done.stdout
    cells = [json.loads(line) for line in (tmp_path / "cells").read_text().splitlines()]
    left = {(cell["program"], cell["stage"]): cell["after"] for cell in cells}
    assert left["reduced_in_place", "dynamo"] == left["reduced_in_place", "inference"] == left["vmap", "inference"] == 3
    assert left["vmap", "dynamo"] <= 8, "the region stays whole"
    assert all(cell["clean"] and not cell["sidecar"] for cell in cells)
