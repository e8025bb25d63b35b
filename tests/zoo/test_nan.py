"""Eight programs that end in NaN: ls, triage, the values and minify of the run say the same, and whose it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "nan"
OWN = {
    "own": "NaN first at log of scale = -0.02, own.py:11",
    "backward": "NaN first at mul_2, backward.py:16, whose input expand_1 is infinite since div (backward.py:16)",
    "overflow": "NaN first at div, overflow.py:11, whose input mul_1 is infinite since exp (overflow.py:8)",
    "branch": "NaN first at sqrt, branch.py:16",
    "masked": "NaN first at sub, masked.py:18, whose input where is infinite (masked.py:17)",
    "later": "NaN first at log, later.py:15",
    "optimizer": "NaN first at div, rmsprop.py:",
}


def said(folder: Path, *words: str) -> str:
    """What a command prints, stderr and stdout."""
    ran = subprocess.run(
        [sys.executable, "-m", "graphdbg", *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    return ran.stderr + ran.stdout


def judged(folder: Path) -> dict[str, Any]:
    """What triage says of the run."""
    command = [sys.executable, "-m", "graphdbg", "triage", "run", "--json"]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300).stdout)


@pytest.mark.slow
@pytest.mark.own_server
@pytest.mark.parametrize("name", OWN)
def test_the_models_own(name: str, tmp_path: Path) -> None:
    text = OWN[name]
    assert text in said(tmp_path, "dump", "--when", "nan", "-o", "run", "--", str(PROGRAMS / f"{name}.py"))
    assert text in said(tmp_path, "ls", "run")
    judgement = judged(tmp_path)
    assert (judgement["verdict"], judgement["kind"], judgement["fault"]) == ("fails", "nan", "model")
    for words in (["ls", "run"], ["replay", "run", "--values"], ["minify", "run", "-o", "small"]):
        assert text in said(tmp_path, *words)
    if name == "own":
        again = said(tmp_path, "minify", "run", "-o", "again", "--check", "nan", "--rung", "eager")
        assert "repro.py shows the failure in 3 of 3" in again


@pytest.mark.slow
@pytest.mark.own_server
def test_the_compiled_programs_alone(tmp_path: Path) -> None:
    dumped = said(tmp_path, "dump", "--when", "nan", "-o", "run", "--", str(PROGRAMS / "compiled.py"))
    assert "eager gives no NaN on the same inputs: only the compiled program does" in dumped
    judgement = judged(tmp_path)
    assert (judgement["verdict"], judgement["kind"], judgement["fault"], judgement["layer"]) == (
        "fails",
        "nan",
        "compiler",
        "inductor",
    )
    text = "grad of gain: 64 of 64 elements are nan where eager's are finite"
    for words in (["ls", "run"], ["replay", "run", "--values"], ["minify", "run", "-o", "small"]):
        assert text in said(tmp_path, *words)
