"""A seeded sample of the zoo: healthy programs that nothing may be said of (tests/zoo/zoo.py runs all of them)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.zoo.catalog import programs
from tests.zoo.page import holds, page

ROOT = Path(__file__).parents[2]


def test_there_are_150_programs_and_each_has_its_script() -> None:
    assert len(programs()) >= 150
    assert all(program.script.is_file() for program in programs())


def test_one_fails_or_an_error_breaks_the_page_and_one_rounding_of_a_hundred_does_not() -> None:
    row = {"program": "gru", "seconds": 1.0, "verdicts": [{"verdict": "ok"}] * 99}
    odd = {"by": "triage", "graph": "0_0/dynamo", "kind": None, "reason": "a sum of halves"}
    rounding, fails = (
        {**row, "program": word, "verdicts": [{**odd, "verdict": word}]} for word in ("rounding", "fails")
    )
    assert holds([row]) and holds([row, rounding])
    assert not holds([row, fails]) and not holds([row, rounding, rounding, rounding])
    assert not holds([row, {"program": "lstm", "seconds": 1.0, "verdicts": [], "error": "RuntimeError: no"}])
    assert "  rounding: triage 0_0/dynamo: a sum of halves" in list(page([row, rounding], 2, "2.13.0"))


@pytest.mark.slow
def test_a_sample_of_twelve(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    words = [sys.executable, "-m", "tests.zoo.zoo", "--sample", "12", "--out", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, env=clean, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
