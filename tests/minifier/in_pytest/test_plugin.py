"""`pytest --graphdbg` on suites of its own: what it costs where nothing fails, and what it says of tests that
failed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.minifier.in_pytest import FOLDER
from graphdbg.minifier.in_pytest.failing import Failing, _words

from .test_ci import look_at_a_red_run

SUITE = """
import pytest, torch
import torch._inductor.config as config

def model(x):
    return torch.relu(x.sin() + 1) * 2 - x

def test_wrong():
    x = torch.randn(4, 5)
    with config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        torch.testing.assert_close(torch.compile(model)(x), model(x))

@pytest.mark.parametrize("size", [3])
def test_own_mistake(size):
    x = torch.randn(size)
    assert torch.compile(lambda x: x.cos() + 1, backend="aot_eager")(x).sum() > 100

def test_plain():
    assert 1 == 2
"""


def run(folder: Path, *words: str, suite: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_suite.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--graphdbg", *words, "test_suite.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_where_nothing_compiles_torch_and_our_rooms_are_not_imported(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        suite="""
import sys

def test_green():
    pass

def test_red():
    ours = [name for name in sys.modules if name.startswith("graphdbg.")]
    assert ours == [] or "torch" in sys.modules, ours
""",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (ours,) = re.findall(r"AssertionError: (\[.*\])", done.stdout)[:1]
    rooms = {"_version", "dumps", "dumps.displayed", "minifier", "minifier.in_pytest", "minifier.in_pytest.plugin"}
    assert set(json.loads(ours.replace("'", '"'))) == {f"graphdbg.{name}" for name in rooms}
    assert "= graphdbg =" not in done.stdout and not (tmp_path / FOLDER).exists()


def test_the_arguments_of_the_run_are_kept_but_for_the_places_of_tests(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    given, places = SimpleNamespace(args=("--rootdir", ".", "-x", ".")), SimpleNamespace(file_or_dir=["."])
    manager = pytestconfig.pluginmanager
    config: Any = SimpleNamespace(invocation_params=given, option=places, rootpath=tmp_path, pluginmanager=manager)
    words = _words(config, "a/test_b.py::test_c[1]")
    assert words[:3] == ["--rootdir", ".", "-x"] and words[-1] == f"{tmp_path}/a/test_b.py::test_c[1]"


def test_of_a_repro_of_a_whole_test_the_rate_is_said_in_one_line(pytestconfig: pytest.Config) -> None:
    done = {
        "verdict": "fails",
        "kind": "wrong_numbers",
        "repro": "shows",
        "repro_path": "program/repro.py",
        "repro_rate": "3 of 3",
        "repro_told": "FAILS (values): call 1 of 1: result[0] differs\n",
    }
    lines = Failing(pytestconfig, "test_a.py::test_b", 60.0, print)._outcome_lines(1, done, None, "")
    assert not any("\n" in line for line in lines) and "shows the failure 3 of 3 in processes" in lines[-1], lines


@pytest.mark.slow
def test_where_nothing_can_be_written_a_sentence_says_so_and_pytest_ends_as_always(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    done = run(tmp_path, "-k", "mistake", suite=SUITE)
    assert done.returncode == 1 and "nothing could be written" in done.stdout, done.stdout


@pytest.mark.slow
def test_failing_tests_that_compiled_end_in_a_repro_or_in_what_agrees(tmp_path: Path) -> None:
    done = run(tmp_path, "-n", "2", "--graphdbg-time", "500", suite=SUITE)
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout.partition("= graphdbg =")[2]
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {
        "test_suite-test_own_mistake-3",
        "test_suite-test_wrong",
    }
    first = "test_suite.py::test_wrong: FAILS: wrong numbers at relu, test_suite.py:6 (compiler: inductor)"
    assert first in said, done.stdout
    assert "test_own_mistake[3]: it fails without torch.compile, too (TORCHDYNAMO_DISABLE=1), and no graph" in said
    assert "test_plain" not in said.split("= short")[0]
    repro = tmp_path / FOLDER / "test_suite-test_wrong" / "minified" / "repro.py"
    assert f"python {repro.relative_to(tmp_path)}" in said
    assert subprocess.run([sys.executable, repro], check=False, capture_output=True).returncode == 1
    look_at_a_red_run(tmp_path)


@pytest.mark.long
def test_a_failing_test_that_calls_what_an_earlier_one_compiled_is_judged(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "--graphdbg-time",
        "1",
        suite="""
import torch

model = torch.compile(lambda x: x.cos() + 1, backend="aot_eager")

def test_compiles():
    assert model(torch.ones(3)).sum() < 100

def test_calls():
    assert model(torch.ones(3)).sum() > 100
""",
    )
    said = done.stdout.partition("= graphdbg =")[2]
    assert f"test_suite.py::test_calls: {FOLDER}/test_suite-test_calls/run is judged and minified" in said, done.stdout
    assert "test_suite.py::test_compiles" not in said


@pytest.mark.slow
def test_a_test_in_which_dynamo_itself_raises_is_judged_beside_eager(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "--graphdbg-time",
        "300",
        suite="""
import sys, torch

def test_frames():
    f = lambda x: x * len(sys._getframe().f_code.co_name)
    torch.compile(f, fullgraph=True)(torch.ones(2))
""",
    )
    said = done.stdout.partition("= graphdbg =")[2]
    assert "too (TORCHDYNAMO_DISABLE=1)" not in said, "eager passes"
    assert "test_suite.py::test_frames: FAILS: crash" in said and "(compiler: dynamo)" in said, done.stdout


@pytest.mark.slow
def test_where_only_a_rounding_parts_them_that_is_said_and_its_repro_is_left(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "--graphdbg-time",
        "300",
        suite="""
import torch

def model(x):
    return x.to(torch.float16).to(torch.float32)

def test_rounded():
    x = torch.arange(20.0).reshape(4, 5) / 7
    torch.testing.assert_close(torch.compile(model)(x), model(x), rtol=1e-5, atol=1e-5)
""",
    )
    said = done.stdout.partition("= graphdbg =")[2]
    assert "test_suite.py::test_rounded: ROUNDING: nothing shows that the compiler is wrong" in said, done.stdout
    assert "shows the failure in 3 of 3" in said and "work-around: import torch._inductor.config" in said
