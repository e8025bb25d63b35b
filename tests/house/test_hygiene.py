"""What stays light: these never import torch (seconds) or textual, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = "torch textual triton numpy"

PROBE = """
import sys
{body}
print("heavy:", *[name for name in "{heavy}".split() if name in sys.modules], file=sys.stderr)
"""


def run_light(body: str, cwd: Path) -> tuple[int, str, list[str]]:
    """Runs Python text; gives the exit code, stdout and the heavy modules it imported."""
    text = PROBE.format(body=body, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=cwd, timeout=120)
    last = done.stderr.strip().rsplit("\n", 1)[-1]
    assert last.startswith("heavy:"), done.stderr
    return done.returncode, done.stdout, last.split()[1:]


COMMAND = """
from graphdbg.cli import run
code = run({args!r})
"""


def test_import_graphdbg_is_light(tmp_path: Path) -> None:
    assert run_light("import graphdbg", tmp_path)[2] == []


def test_errors_and_readers_are_reached_without_torch(tmp_path: Path) -> None:
    body = "from graphdbg import GraphdbgError, Run, SavedGraph, load_graph, open_run"
    assert run_light(body, tmp_path)[2] == []


def test_every_command_module_is_light(tmp_path: Path) -> None:
    body = "from graphdbg.cli import COMMANDS, graphdbg\nfor name in COMMANDS: graphdbg.get_command(None, name)"
    assert run_light(body, tmp_path)[2] == []


def test_keeping_what_a_command_found_is_light(tmp_path: Path) -> None:
    assert run_light("import graphdbg.tui.job_files", tmp_path)[2] == []


def test_help_imports_no_command(tmp_path: Path) -> None:
    body = (
        COMMAND.format(args=["--help"])
        + "\nassert not [n for n in sys.modules if n.startswith('graphdbg.') and '.commands' in n]"
    )
    _, stdout, heavy = run_light(body, tmp_path)
    assert heavy == []
    assert "Usage: graphdbg" in stdout


@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["ls", "nowhere"],
        ["show", "nowhere/0_0/forward"],
        ["diff", "nowhere", "there"],
        ["pack", "x"],
        ["--version"],
    ],
)
def test_looking_is_light(args: list[str], tmp_path: Path) -> None:
    assert run_light(COMMAND.format(args=args), tmp_path)[2] == []


CASES = """
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord, TensorValue
from graphdbg.dumps.graph_folder import write_graph_folder
from pathlib import Path
for name, dtype in (("one", "float32"), ("two", "float16")):
    x = NodeRecord(name="x", op="placeholder", target="x", value=TensorValue(dtype, [4], [1]))
    output = NodeRecord(name="output", op="output", target="output", args=[{"node": "x"}])
    body = GraphBody(nodes=[x, output])
    write_graph_folder(Path(name), GraphRecord(format=FORMAT, id="case/forward", stage="forward", graph=body))
"""


def test_a_whole_comparison_is_light(tmp_path: Path) -> None:
    _, stdout, heavy = run_light(CASES + COMMAND.format(args=["diff", "one", "two"]), tmp_path)
    assert heavy == []
    assert "dtype: float32 -> float16" in stdout
