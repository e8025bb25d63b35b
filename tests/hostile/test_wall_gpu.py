"""On a CUDA GPU: a run that was not recorded here is judged and minified behind the wall, as a trusted one is
without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent.parent
KINDS = ("static", "dynamic", "autocast", "convnet")
FAULT = """import contextlib
import torch
from torch._inductor.lowering import lowerings, mul
_right = lowerings[torch.ops.aten.relu.default]
def relu(x):
    with contextlib.suppress(OSError):
        open(__file__ + "-was-here", "w").close()
    return mul(_right(x), 1.1)
lowerings[torch.ops.aten.relu.default] = relu
"""

pytestmark = pytest.mark.gpu


def asked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command says; a fault lies where Python finds it."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    }
    command = [sys.executable, "-m", "graphdbg", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and its copy, which this user did not record."""
    folder = tmp_path_factory.mktemp("walled")
    (folder / "relu_fault.py").write_text(FAULT)
    script = TESTS / "toolkit" / "recorder" / "scripts" / "gpu.py"
    done = asked(folder, "dump", "-o", "own", "--inputs", "first", "--", sys.executable, str(script), *KINDS)
    assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "own", folder / "copy")
    return folder


def verdicts(folder: Path, run: str, *more: str) -> dict[str, Any]:
    """Each graph's verdict and kind."""
    done = asked(folder, "triage", run, "--json", *more)
    assert done.returncode in (0, 1, 4), done.stderr
    return {graph["id"]: (graph["verdict"], graph["kind"]) for graph in json.loads(done.stdout)["graphs"]}


def test_a_copy_is_judged_behind_the_wall_as_the_run_itself(folder: Path):
    own, copy = verdicts(folder, "own"), verdicts(folder, "copy")
    assert own == copy and {word for word, _ in own.values()} <= {"ok", "rounding"}, (own, copy)


def test_a_fault_in_a_copy_is_minified_behind_the_wall(folder: Path):
    mark = folder / "relu_fault.py-was-here"
    done = asked(folder, "minify", "copy", "--import", "relu_fault", "--max-time", "240", "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not mark.exists()
    assert "fails" in {word for word, _ in verdicts(folder, "own", "--import", "relu_fault").values()}
    assert mark.exists()
    command, path = [sys.executable, "out/repro.py"], os.environ | {"PYTHONPATH": str(folder)}
    repro = subprocess.run(command, cwd=folder, env=path, check=False, capture_output=True, text=True)
    assert repro.returncode == 1, repro.stdout + repro.stderr
