"""A command is run once per backend in a process group of its own; exit codes, hangs and numbers are told apart."""

from __future__ import annotations

import json
import os
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphdbg.dumps.errors import UsageError
from graphdbg.toolkit.commands.triage import triage as command
from graphdbg.toolkit.triage.script import ScriptTriage, triage_script
from graphdbg.toolkit.verdict_words import word

PROGRAM = """
import os, subprocess, sys, time
backend = os.environ.get("TORCH_COMPILE_OVERRIDE_BACKENDS", "as written")
print("started", time.time_ns(), "pid", os.getpid())
print("step 1 loss 2.07")
if backend == sys.argv[1]:
    {fault}
print("step 2 loss 1.55")
"""


def triaged(tmp_path: Path, backend: str, fault: str, **options: object) -> ScriptTriage:
    """A program that goes wrong under one backend, under all of them."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(fault=fault))
    return triage_script([str(script), backend], output=tmp_path / "out", **options)  # type: ignore[arg-type]


def verdicts(found: ScriptTriage) -> list[str]:
    return [word(row.verdict) for row in found.rows]


def test_wrong_numbers_of_the_script_as_it_is(tmp_path: Path) -> None:
    found = triaged(tmp_path, "as written", "print('step 2 loss 1.99'); sys.exit()")
    assert found.first_failing == "as written"
    assert verdicts(found) == ["ok", "ok", "ok", "ok", "fails: wrong numbers"]
    assert (found.rows[-1].line, found.rows[-1].expected, found.rows[-1].got) == (3, 1.55, 1.99)
    assert "eager and aot_eager and aot_eager_decomp_partition agree" in found.summary
    assert "1.99 where eager has 1.55" in found.summary
    assert (tmp_path / "out" / "as-written.stdout").read_text().endswith("step 2 loss 1.99\n")


def test_a_crash_stops_the_legs_unless_told_to_go_on(tmp_path: Path) -> None:
    found = triaged(tmp_path, ">=0:aot_eager", "raise ValueError('no way')")
    assert verdicts(found) == ["ok", "ok", "fails: crash", "skipped", "skipped"]
    assert found.rows[2].exit_code == 1
    assert "ValueError: no way" in found.rows[2].reason
    assert found.rows[3].reason.startswith("aot_eager failed")


def test_a_signal_and_all_legs(tmp_path: Path) -> None:
    found = triaged(tmp_path, ">=0:aot_eager_decomp_partition", "os.kill(os.getpid(), 11)", all=True)
    assert verdicts(found) == ["ok", "ok", "ok", "fails: signal", "ok"]
    assert found.rows[3].exit_code == 139


def test_a_leg_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    fault = (
        f"child = subprocess.Popen(['sleep', '600']); open({str(note)!r}, 'w').write(str(child.pid)); "
        "import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    )
    began = time.monotonic()
    found = triaged(tmp_path, "as written", fault, limit_s=2.0)
    assert time.monotonic() - began < 60
    assert found.first_failing == "as written"
    assert found.rows[-1].verdict.kind == "hang"
    pid = int(note.read_text())
    for _ in range(100):
        if (
            not Path(f"/proc/{pid}").exists()
            or "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        ):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("what the leg started is still there")


def test_time_that_is_over_is_no_hang(tmp_path: Path) -> None:
    found = triaged(tmp_path, "as written", "time.sleep(600)", max_time_s=6.0)
    assert found.first_failing is None
    assert found.rows[-1].verdict.verdict == "cannot_tell"
    assert "Not judged: as written" in found.summary


def test_eager_itself_failing_is_not_the_compilers(tmp_path: Path) -> None:
    found = triaged(tmp_path, ">=0:eager", "sys.exit(3)")
    assert verdicts(found) == ["cannot tell", "skipped", "skipped", "skipped", "skipped"]
    assert "eager itself ends with code 3" in found.summary


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="never overwritten"):
        triaged(tmp_path, "none", "pass")


def test_the_command_takes_the_words_behind_two_dashes(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM).format(fault="print('step 2 loss nan'); sys.exit()"))
    done = CliRunner().invoke(command, ["--json", "-o", str(tmp_path / "out"), "--", str(script), "as written"])
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["first_failing"] == "as written"
    assert found["rows"][-1]["kind"] == "nan"
    assert CliRunner().invoke(command, ["RUN", "--", "x.py"]).exception is not None


@pytest.mark.slow
def test_a_training_script_with_dropout_and_options(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import sys, torch, torch._inductor.config as config
        if "bug" in sys.argv: config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4))
        compiled = torch.compile(model, options={"epilogue_fusion": False})
        for step in range(3):
            loss = compiled(torch.randn(16, 8)).square().mean(); loss.backward()
            print("loss", loss.item())
    """)
    )
    fine = triage_script([str(script)], output=tmp_path / "fine")
    assert verdicts(fine) == ["ok"] * 5, fine.rows
    assert fine.rows[0].graphs == 1
    bug = triage_script([str(script), "bug"], output=tmp_path / "bug")
    assert bug.first_failing == "as written"
    assert bug.rows[-1].line == 1


@pytest.mark.slow
def test_a_script_that_compiles_nothing(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import torch\nprint(torch.ones(2).sum())\n")
    found = triage_script([str(script)], output=tmp_path / "out")
    assert "torch.compile was never called" in found.summary
    assert verdicts(found)[1:] == ["skipped"] * 4


def test_a_script_that_is_not_there_is_a_wrong_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such script"):
        triage_script(["python", "nothing.py"], output=tmp_path / "legs")
    assert not (tmp_path / "legs").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train.py"], "graphdbg triage -- python train.py"),
        (["train.py", "--steps", "3"], "graphdbg triage -- python train.py --steps 3"),
        (["--limit", "9", "--all", "train.py", "-n", "a b"], "graphdbg triage --limit 9 --all -- python train.py -n 'a b'"),
        (["python", "train.py", "-x"], "graphdbg triage -- python train.py -x"),
        (["tool", "-x"], "graphdbg triage -- ./tool -x"),
    ],
)
def test_a_command_without_dashes_gets_the_line_that_triages_it(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("tool").write_text("#!/bin/sh\n")
    Path("tool").chmod(0o755)
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, UsageError) and error.exit_code == 2
    assert f"`{line}`" in str(error)


def test_a_run_whose_name_ends_like_a_script_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.py").mkdir()
    assert "neither a run" in str(CliRunner().invoke(command, ["run.py"]).exception)
