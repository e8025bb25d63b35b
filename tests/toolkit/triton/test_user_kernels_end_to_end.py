"""A model with a Triton kernel of its own, without a GPU: recorded, shown, replayed, minified, and the repro runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

EXAMPLE = Path(__file__).parents[3] / "examples" / "triton_softmax.py"
SAYS_NAN = """
import subprocess, sys
done = subprocess.run([sys.executable, "-I", sys.argv[1] + "/graph.py"], capture_output=True, text=True)
print(done.stdout)
sys.exit(2 if done.returncode else int("nan" in done.stdout))
"""


def graphdbg(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdbg", *words]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=280, env=environment
    )


@pytest.mark.slow
def test_from_the_recording_to_the_repro(tmp_path: Path) -> None:
    graphdbg(
        tmp_path, "dump", "-o", "run", "--inputs", "first", "--", sys.executable, str(EXAMPLE), "--plant", "overflow"
    )
    shown = graphdbg(tmp_path, "show", "run/0_0/inference", "--kernel", "softmax_kernel").stdout
    assert "def softmax_kernel(" in shown
    assert "grid (24, 1, 1)" in shown

    refused = graphdbg(tmp_path, "replay", "run/0_0/inference", "--rung", "eager")
    assert refused.returncode == 2
    assert "Read it: graphdbg show" in refused.stderr
    assert "--kernel softmax_kernel; then add --trust" in refused.stderr
    for rung in ("eager", "triton_interpret"):
        done = graphdbg(tmp_path, "replay", "run/0_0/inference", "--rung", rung, "--trust")
        assert done.returncode == 0, done.stderr
        assert "no independent reference for softmax_kernel: eager runs on the interpreter too" in done.stdout

    (tmp_path / "says_nan.py").write_text(SAYS_NAN)
    check = f"cmd: {sys.executable} says_nan.py {{case}}"
    words = ("minify", "run/0_0/inference", "--trust", "--without", "needs", "--check", check, "-o", "small")
    done = graphdbg(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    program = (tmp_path / "small" / "case" / "graph.py").read_text()
    assert program.count("softmax_kernel, (") <= 1
    assert "def softmax_kernel(" in program
    alone = subprocess.run(
        [sys.executable, "-I", "small/repro.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 1
    assert "mean nan" in alone.stdout


@pytest.mark.slow
def test_an_access_out_of_bounds_is_named_where_it_happens(tmp_path: Path) -> None:
    done = graphdbg(
        tmp_path, "dump", "-o", "run", "--inputs", "first", "--", sys.executable, str(EXAMPLE), "--plant", "mask"
    )
    assert done.returncode == 1
    replayed = graphdbg(tmp_path, "replay", "run/0_0/inference", "--rung", "eager", "--trust").stdout
    assert "store out of bounds: element 288 of out, whose storage has 288" in replayed
