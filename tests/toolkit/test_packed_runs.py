"""A failure that was recorded here still fails when somebody else replays it from the packed file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphdbg.cli import run
from graphdbg.dumps.errors import NotRegisteredError
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.wording import TYPED, UNPACKED
from graphdbg.toolkit.live.case import Case
from graphdbg.toolkit.verdicts.verdict import unloadable
from tests.dumps.graph_text import graph

SCRIPT = """
import torch
import torch._inductor.config as config

config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"


def confidential(x):
    return (x * 3).relu()  # nobody may read this


torch.compile(confidential)(torch.ones(3))
"""


def graphdbg(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdbg", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_a_packed_failure_fails_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / "home" / "anneliese"
    away = tmp_path / "away"
    for folder in (home / "project", away):
        folder.mkdir(parents=True)
    (home / "project" / "train.py").write_text(SCRIPT)
    person = {"HOME": str(home), "LOGNAME": "anneliese"}
    assert graphdbg(home / "project", "dump", "-o", "run", "--inputs", "first", "train.py", **person).returncode == 1
    done = graphdbg(home / "project", "pack", "run", "-o", str(away / "bug.zip"), **person)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, str(away / "bug.zip")), done.stderr
    replayed = graphdbg(away, "replay", "bug.zip/0_0/inference")
    assert replayed.returncode == 1, replayed.stderr
    assert "CppCompileError" in replayed.stdout
    assert "train.py:9" in graphdbg(away, "show", "bug.zip/0_0/inference").stdout
    text = (
        graphdbg(away, "show", "bug.zip/0_0/inference", "--json").stdout
        + graphdbg(away, "ls", "bug.zip", "--json").stdout
    )
    assert not [word for word in ("anneliese", "nobody may read", "project") if word in text]


def test_a_graph_of_an_archive_that_cannot_be_loaded_is_named_below_the_archive(tmp_path: Path) -> None:
    folder, archive = tmp_path / f"{UNPACKED}1", tmp_path / "bug.zip"
    path = folder / "run" / "case"
    write_graph_folder(path, graph("x: [2]\ny = nowhere.op.default(x) [2]\nreturn y"))
    (folder / TYPED).write_text(str(archive))
    with pytest.raises(NotRegisteredError) as raised:
        Case.at(path).live()
    assert str(raised.value).startswith(f"{archive / 'case'}: node y: ")
    assert unloadable(raised.value, path).reason.startswith("node y: ")


@pytest.mark.long
@pytest.mark.parametrize("command", ["replay", "check", "bisect", "triage"])
def test_a_graph_whose_operator_nothing_brings_back_cannot_be_told(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_graph_folder(tmp_path / "case", graph("x: [2]\ny = nowhere.op.default(x) [2]\nreturn y"))
    with pytest.raises(SystemExit) as ended:
        run([command, str(tmp_path / "case")])
    assert ended.value.code == 4
    assert capsys.readouterr().out.startswith("CANNOT TELL: node y: the op 'nowhere.op.default' is not registered")
