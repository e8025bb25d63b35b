"""`pytest --graphdbg-baseline FILE`: what tests compile to, held against a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.minifier.in_pytest.baseline import CountsBaseline

PLAIN = """
import sys

def test_nothing():
    assert "torch" not in sys.modules
"""

SUITE = """
import os, torch, graphdbg

def f(x):
    y = x.sin()
    if os.environ.get("WORSE"):
        print("here")
    return y + 1

compiled = torch.compile(f, backend="eager")

def test_first():
    compiled(torch.ones(3))

def test_again():  # with what the first left in torch's own caches it would compile nothing
    compiled(torch.ones(3))
    compiled(torch.ones(5))

def test_asserts():
    graphdbg.assert_graphs(compiled, torch.ones(3))

def test_red():
    compiled(torch.ones(3))
    assert 0

def test_nothing():
    pass
"""


def run(folder: Path, *words: str, suite: str = SUITE, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "test_suite.py"]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("name", "content", "update", "sentence"),
    [
        (
            "counts.json",
            None,
            False,
            "no counts.json; pytest --graphdbg-baseline counts.json --graphdbg-update writes it",
        ),
        ("counts.json", '{"a": {"breaks": 1}}', True, "counts.json is not a baseline (Object missing required field"),
        (
            "counts.json",
            "{",
            False,
            "counts.json is not a baseline (Input data was truncated); move it away, then pytest",
        ),
        ("no/counts.json", None, True, "there is no folder"),
        (".", None, True, "cannot read .: it is a folder"),
    ],
)
def test_a_file_that_is_none_is_said(
    tmp_path: Path, name: str, content: str | None, update: bool, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    option = SimpleNamespace(graphdbg_baseline=name, graphdbg_update=update)
    config: Any = SimpleNamespace(option=option, invocation_params=SimpleNamespace(dir=tmp_path))
    with pytest.raises(pytest.UsageError, match=re.escape(sentence)):
        CountsBaseline(config)


def test_such_a_file_stays_and_where_nothing_compiles_torch_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text("{")
    done = run(tmp_path, "--graphdbg-baseline", "counts.json", "--graphdbg-update", suite=PLAIN)
    assert (done.returncode, done.stdout) == (4, "") and "ERROR: --graphdbg-baseline: " in done.stderr, done.stderr
    assert (tmp_path / "counts.json").read_text() == "{"
    (tmp_path / "counts.json").write_text("{}")
    done = run(tmp_path, "--graphdbg-baseline", "counts.json", suite=PLAIN)
    assert done.returncode == 0 and "graphdbg baseline" not in done.stdout, done.stdout


@pytest.mark.slow
def test_counts_are_written_held_and_told_also_by_workers(tmp_path: Path) -> None:
    words, file = ("--graphdbg-baseline", "counts.json"), tmp_path / "counts.json"
    done = run(tmp_path, *words, "--graphdbg-update")
    assert "counts.json is written: 3 tests; 3 new, 0 changed" in done.stdout, done.stdout
    written = file.read_text()
    entry = {"breaks": 0, "recompiles": 0, "graphs": 1, "nodes": 4, "kernels": 0}
    assert json.loads(written) == {
        "test_suite.py::test_again": entry | {"recompiles": 1},
        "test_suite.py::test_asserts": entry,
        "test_suite.py::test_first": entry,
    }
    same = run(tmp_path, *words, "-n", "2")
    assert "1 failed, 4 passed" in same.stdout and "graphdbg baseline" not in same.stdout, same.stdout
    worse = run(tmp_path, *words, "-n", "2", WORSE="1")
    assert "4 failed, 1 passed" in worse.stdout, worse.stdout
    assert (
        "test_suite.py::test_first compiled to more than counts.json says: graph breaks 0 -> 1, graphs" in worse.stdout
    )
    assert 'test_suite.py:7: print("here"): ' in worse.stdout
    assert "pytest --graphdbg-baseline counts.json --graphdbg-update test_suite.py::test_first" in worse.stdout
    assert file.read_text() == written
    file.write_text(json.dumps({"test_suite.py::test_first": entry | {"nodes": 9}, "test_other.py::test_x": entry}))
    better = run(tmp_path, *words, "-k", "first or asserts").stdout
    assert (
        "1 test better than counts.json says; to write it down: pytest --graphdbg-baseline counts.json --graph"
        in better
    )
    assert "test_suite.py::test_first: nodes 9 -> 4" in better and "1 test not in counts.json" in better
    run(tmp_path, *words, "--graphdbg-update", "-k", "first")
    assert json.loads(file.read_text()) == {"test_suite.py::test_first": entry, "test_other.py::test_x": entry}
    nothing = run(tmp_path, *words, suite=SUITE.replace("compiled(torch.ones(3))", "pass"))
    assert "test_first compiled nothing; counts.json says" in nothing.stdout
    command = [sys.executable, "-m", "graphdbg", "dump", "-o", "run", "--", "-m", "pytest", *words, "test_suite.py"]
    recorded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "nothing was counted and counts.json is as it was" in recorded.stdout, recorded.stdout
