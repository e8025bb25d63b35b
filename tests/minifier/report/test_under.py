"""`graphdbg verify`: other Pythons, their torch, what programs show there, and builds. A torch here is a line of
Python."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from graphdbg.cli import run as graphdbg
from graphdbg.dumps import written
from graphdbg.dumps.errors import UsageError
from graphdbg.minifier.commands.verify import program_of
from graphdbg.minifier.report import verify as verify_module
from graphdbg.minifier.report.verify import Shown, TorchThere, builds, interpreter, torch_of
from graphdbg.toolkit.isolation.fresh import FreshRun

from .cases import ACCURACY, relu_record

SHOWS = """import sys
import torch
sys.exit("BUG: as before" if torch.__version__ < "9.9" else 0)
"""


def python_with(path: Path, text: str | None) -> Path:
    """A Python whose torch is that text; None: it has none."""
    if text is not None:
        (path / "torch").mkdir(parents=True)
        (path / "torch" / "__init__.py").write_text(text)
    path.mkdir(exist_ok=True)
    program = path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


def out_with(path: Path, program: str = SHOWS) -> Path:
    """A folder with a repro.py that was written here."""
    path.mkdir(parents=True)
    (path / "repro.py").write_text(program)
    written.remember(path / "repro.py")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written here is forgotten afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verify_module, "toolchain_seed", lambda: None)


def verify(*words: object) -> int:
    with pytest.raises(SystemExit) as end:
        graphdbg(["verify", *map(str, words)])
    return int(end.value.code or 0)


def test_a_repro_is_run_under_the_torch_that_was_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = out_with(tmp_path / "small")
    old, new = (python_with(tmp_path / name, f"__version__ = '{name}'") for name in ("9.8", "9.9"))
    assert verify(out, "--python", old, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["repro"], document["shown"], document["times"], document["torch"], document["codes"]) == (
        "shows",
        3,
        3,
        "9.8",
        [1, 1, 1],
    )
    assert document["output"] == "BUG: as before"
    assert verify(out / "repro.py", "--python", new) == 1
    assert f"the failure shows in 0 of 3 fresh processes under torch 9.9 of {new}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (None, "it has no torch"),
        ("raise OSError('libtorch.so is gone')", "its torch cannot be imported: OSError: libtorch.so is gone"),
        ("import os; os.abort()", "its torch dies when it is imported"),
    ],
)
def test_a_torch_that_does_not_start_is_no_failure(tmp_path: Path, text: str | None, reported: str) -> None:
    out = out_with(tmp_path / "small")
    python = str(python_with(tmp_path / "py", text))
    result = torch_of(python, out / "repro.py")
    assert (result.problem, Shown(out, result).exit_code) == (reported, 4)


def test_a_program_that_this_python_cannot_read_is_no_failure(tmp_path: Path) -> None:
    out = out_with(tmp_path / "small", "import torch\nmatch = = 1\n")
    python = python_with(tmp_path / "py", "__version__ = '1'")
    assert "it cannot read the program" in torch_of(str(python), out / "repro.py").problem


@pytest.mark.parametrize(
    ("codes", "flaky", "code"),
    [
        ([1, 1, 1], False, 0),
        ([1, 0, 1], False, 1),
        ([0, 0, 0], False, 1),
        ([2, 2, 2], False, 4),
        ([1, 2, 1], False, 4),
        ([None, None, None], False, 4),
        ([-11, -11, -11], False, 4),
        ([1, 0, 0], True, 0),
        ([0, 0, 0], True, 1),
        ([0, 2, 2], False, 1),
    ],
)
def test_exit_codes(codes: list[int | None], flaky: bool, code: int) -> None:
    assert (
        Shown(Path("repro.py"), TorchThere("python", "2"), [FreshRun(code, "", 1.0) for code in codes], flaky).exit_code
        == code
    )


def test_what_was_not_written_here_needs_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, python = out_with(tmp_path / "small"), python_with(tmp_path / "9.8", "__version__ = '9.8'")
    (out / "repro.py").write_text(SHOWS + "# mine\n")
    assert graphdbg(["verify", str(out), "--python", str(python)]) == 2
    printed = capsys.readouterr().err
    assert (
        "was not written on this machine, or was changed since" in printed
        and f"graphdbg verify {out} --trust" in printed
    )
    assert verify(out, "--python", python, "--trust") == 0


def test_modules_that_a_case_names_need_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = out_with(tmp_path / "small")
    (out / "case").mkdir()
    (out / "case" / "case.json").write_text(json.dumps({"options": {"imports": ["my_ops"]}}))
    assert graphdbg(["verify", str(out)]) == 2
    assert f"verifying {out} imports 'my_ops'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="imports 'my_ops'"), program_of(str(out), False, ["another"]):
        pass
    with program_of(str(out), False, ["my_ops", "another"]) as (program, _):  # the user has named it
        assert program == out / "repro.py"


def test_a_case_has_the_repro_beside_it_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, python = out_with(tmp_path / "small"), python_with(tmp_path / "9.8", "__version__ = '9.8'")
    for name in ("case", "passes"):
        (out / name).mkdir()
        (out / name / "graph.json").write_bytes(msgspec.json.encode(relu_record()))
    (out / "case" / "case.json").write_text(json.dumps({"signature": msgspec.to_builtins(ACCURACY)}))
    (out / "passes" / "case.json").write_text(json.dumps({"signature": None}))
    assert verify(out / "case", "--python", python) == 0
    assert graphdbg(["verify", str(out / "passes")]) == 2
    assert "there is nothing to verify" in capsys.readouterr().err


def test_a_link_to_a_python_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert interpreter(str(link)) == str(link)
    with pytest.raises(UsageError, match="it is a folder"):
        interpreter(str(tmp_path))
    with pytest.raises(UsageError, match="there is no such program"):
        interpreter(str(tmp_path / "none"))


def test_a_build_is_seen_when_its_files_are_still(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libtorch.so").write_bytes(b"old")
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        for _ in builds(folder, poll_s=0.01, quiet_s=0.1):
            seen.append((folder / "lib" / "libtorch.so").stat().st_size)
            done.set()
            return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    (folder / "README").write_text("no part of it")
    assert not done.wait(0.2)
    for size in range(4, 12):  # it is being linked
        (folder / "lib" / "libtorch.so").write_bytes(bytes(size))
        os.utime(folder / "lib" / "libtorch.so", ns=(size, size))
        done.wait(0.02)
    assert done.wait(30)
    thread.join(30)
    assert seen == [11]


def test_the_watch_goes_on_until_it_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, python = out_with(tmp_path / "small"), python_with(tmp_path / "py", "__version__ = '9.8'")

    def built(folder: Path) -> object:
        (folder / "__init__.py").write_text("__version__ = '9.9.1'")
        yield
        raise KeyboardInterrupt

    monkeypatch.setattr(verify_module, "builds", built)
    assert graphdbg(["verify", str(out), "--python", str(python), "--watch", "--json"]) == 130
    messages = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(item["torch"], item["repro"]) for item in messages] == [("9.8", "shows"), ("9.9.1", "passes")]


def test_an_empty_program_is_no_proof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "repro.py").touch()
    assert graphdbg(["verify", str(tmp_path), "--trust"]) == 2
    assert "the file is empty" in capsys.readouterr().err
