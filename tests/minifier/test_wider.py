"""Where the graph that failed in the run fails in eager, too, the graph that it was made from is minified in its
place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).parents[1] / "planted"
PROGRAM = """import planted_wide_decomposition, torch
print(torch.compile(lambda x, w: torch.nn.functional.silu(x) @ w)(torch.ones(4, 4), torch.ones(4, 4)))
"""


@pytest.mark.slow
def test_a_wrong_dtype_of_a_decomposition_is_minified_before_it(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    def graphdbg(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "graphdbg", *words]
        env = os.environ | {"PYTHONPATH": str(PLANTED)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)

    graphdbg("dump", "-o", "run", "--inputs", "first", "--", sys.executable, "program.py")
    done = graphdbg("minify", "run", "-o", "out", "--import", "planted_wide_decomposition", "--json")
    assert "; minifying run/0_0/dynamo, which it was made from" in done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, document["verdict"], document["repro"]) == (0, "fails", "shows"), done.stderr
