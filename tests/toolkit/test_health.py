"""`graphdbg doctor`: what its rows say on this machine, and on ones that lack something."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphdbg.toolkit import health
from graphdbg.toolkit.commands.doctor import doctor
from graphdbg.toolkit.health import running
from graphdbg.toolkit.isolation import TaskResult
from graphdbg.toolkit.isolation.protocol import ChildError

BROKEN = {
    "numpy": "raise ImportError('libblas is gone')",
    "triton": "raise RuntimeError('0 active drivers')",
    "pygraphviz": "import os; os.abort()",
    "textual": "raise ModuleNotFoundError(\"No module named 'textual'\", name='textual')",
    "ray": "print('hello from ray'); __version__ = '9.9'",
}


@pytest.mark.long
def test_doctor_finds_this_machine_fit() -> None:
    done = CliRunner().invoke(doctor, ["--json", "--full"])
    assert done.exit_code == 0, done.output
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["torch"]["ok"]
    assert findings["isolation"]["ok"]
    assert "as eager" in findings["compile"]["found"]
    assert set(findings) >= {
        "python",
        "C++ compiler",
        "triton",
        "CUDA",
        "graphviz",
        "cache folder",
        "wall",
        "recorder hooks",
    }


def test_doctor_exits_3_when_something_essential_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = health.HealthCheck(False, "none found", "install one", name="C++ compiler")
    monkeypatch.setattr(health, "CHECKS", (lambda: missing,))
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 3
    assert "MISSING" in done.stdout
    assert "install one" in done.stdout


def test_what_is_absent_says_who_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = health.HealthCheck(
        False, "not installed", "pip install textual", "tui", "all other commands", name="textual", essential=False
    )
    monkeypatch.setattr(health, "CHECKS", (lambda: [absent],))
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "absent   textual  not installed",
        "                  needed by tui; all other commands do without: pip install textual",
    ]
    document = json.loads(CliRunner().invoke(doctor, ["--json", "--full"]).stdout)
    assert document["ok"]
    assert document["findings"][0]["without"] == "all other commands"


@pytest.mark.parametrize("error", [RuntimeError("two\nlines"), ModuleNotFoundError("No module named 'torch'")])
def test_a_check_that_raises_is_a_row(error: Exception) -> None:
    @running.row("compile", essential=False)
    def check() -> running.HealthCheck:
        raise error

    assert not check().ok
    assert " ".join(str(error).split()) in check().found


def test_packages_that_cannot_be_imported_are_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in BROKEN.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(body)
    (tmp_path / "rich").mkdir()  # left by an uninstall
    asked = [package for package in running.PACKAGES if package.name in {*BROKEN, "rich"}]
    monkeypatch.setattr(running, "PACKAGES", asked)
    monkeypatch.setattr(running, "declared", list)
    monkeypatch.setattr(running.sys, "path", [str(tmp_path)])
    rows = {row.name: row for row in running.packages()}
    assert {name: row.found for name, row in rows.items()} == {
        "numpy": "cannot be imported: ImportError: libblas is gone",
        "triton": "cannot be imported: RuntimeError: 0 active drivers",
        "pygraphviz": "its import ended the process by SIGABRT",
        "textual": "not installed",
        "ray": "9.9",
        "rich": "an empty folder of its name is there, and no package",
    }
    assert [name for name, row in rows.items() if row.ok] == ["ray"]
    assert rows["textual"].advice() == "needed by tui; all other commands do without: pip install textual"
    assert "-c 'import numpy' shows where it fails" in rows["numpy"].advice()
    assert not any(row.essential for row in rows.values())


def test_an_import_that_hangs_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ray.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(running, "PACKAGES", [package for package in running.PACKAGES if package.name == "ray"])
    monkeypatch.setattr(running, "declared", list)
    monkeypatch.setattr(running.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(running, "LIMIT_S", 0.5)
    (row,) = running.packages()
    assert row.found == "its import had not ended after 0.5 s"


def test_every_declared_package_has_its_words() -> None:
    declared = running.declared()
    assert {"msgspec", "textual-serve", "triton", "ray"} <= set(declared)
    assert set(declared) <= {package.name for package in running.PACKAGES}
    assert "pytest" not in declared


def test_without_a_compiler_the_rungs_that_need_it_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    row = running.compiler()
    assert (row.ok, row.essential) == (False, False)
    assert "inductor" in row.needed_by
    assert "eager" in row.without
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert running.compiling().found == "not tried: there is no C++ compiler, see its row"


def test_a_compiler_that_cannot_compile_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'no headers here' >&2; exit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr(running, "compiler_name", lambda: str(broken))
    assert running.compiler().found.endswith("cannot compile a small program: no headers here")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TaskResult(1, "timeout", seconds=120.2), "had not ended after 120 s"),
        (
            TaskResult(1, "signal", signal="SIGSEGV", output="Fatal Python error\n\n"),
            "died by SIGSEGV: Fatal Python error",
        ),
        (
            TaskResult(1, "exception", error=ChildError("torch.x.CppCompileError", "no omp.h")),
            "failed: CppCompileError: no omp.h",
        ),
        (TaskResult(1, "done", {"same": False, "seconds": 2.0}), "in 2.0 s, and the result is not eager's"),
    ],
)
def test_what_became_of_the_compile_is_said(answer: TaskResult, said: str) -> None:
    assert running._compiled(answer) == said


def test_without_a_renderer_a_dot_file_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdbg.toolkit.drawing.picture.renderers", list)
    row = running.drawing()
    assert not row.ok
    assert ".dot" in row.without


def test_a_lost_hook_names_the_stage_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdbg.toolkit.torch_private import names

    gone = names.HOOKS[0]._replace(names="OutputGraph.renamed")
    monkeypatch.setattr(names, "HOOKS", (gone, *names.HOOKS[1:]))
    row = running.hooks()
    assert not row.ok
    assert not row.essential
    assert f"{gone.whole()} (dynamo not recorded)" in row.found


def test_a_lost_name_says_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert running.names().ok
    monkeypatch.delattr("torch._inductor.lowering.make_fallback")
    row = running.names()
    assert not row.ok
    assert "1 of" in row.found and "torch._inductor.lowering.make_fallback (needed by bisect)" in row.found


def test_a_cache_folder_without_probes_is_not_said_to_be_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "graphdbg").mkdir()
    assert running.cache_folder().found.endswith(": empty")
    (tmp_path / "graphdbg" / "written.txt").write_text("abc")
    assert running.cache_folder().found.endswith(": 3 B, which doctor --clean removes")


def test_a_cache_folder_that_cannot_be_written_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    row = running.cache_folder()
    assert not row.ok
    assert not row.essential
    assert "20 s more" in row.fix
