"""Programs in a server that imported torch before they are needed: exit codes, environment and end as in whole new
processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from graphdbg.dumps.pack.redact import Redactor
from graphdbg.dumps.store import SavedGraph
from graphdbg.minifier.report import verify
from graphdbg.minifier.report.trying import ReportRuns, candidates, tried
from graphdbg.toolkit.isolation import ForkServer, fresh, programs
from graphdbg.toolkit.isolation.cache import toolchain_seed

from .cases import ACCURACY, case_of, relu_record

TELL = """
import json, os, sys
modules = [name for name in sys.modules if name.partition(".")[0] == "graphdbg"]
print(json.dumps({"env": dict(os.environ), "cwd": os.listdir("."), "ours": modules, "torch": "torch" in sys.modules,
                  "argv": sys.argv, "path": sys.path[0], "pid": os.getpid()}))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with programs() as bare:
        fresh.run_once(program(tmp_path_factory.mktemp("first"), ""), bare=bare)  # its start counts in no limit
        yield bare


def program(folder: Path, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("raise SystemExit(1)", 1),
        ("", 0),
        ("import sys; sys.exit(2)", 2),
        ("1 / 0", 1),
        ("raise SystemExit('words')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_a_program_ends_as_it_would_alone(text: str, code: int, tmp_path: Path, bare: ForkServer) -> None:
    reported = fresh.run_once(program(tmp_path, text), bare=bare)
    alone = subprocess.run([sys.executable, program(tmp_path, text)], capture_output=True, text=True)
    assert reported.code == code == alone.returncode
    assert reported.output.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


@pytest.mark.long
def test_it_finds_a_clean_world_of_its_own(tmp_path: Path, bare: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDBG", "somewhere")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    file = program(tmp_path, TELL)
    first, second = (json.loads(fresh.run_once(file, bare=bare).output) for _ in range(2))
    assert first["pid"] != second["pid"]
    assert first["ours"] == []
    assert (first["torch"], first["cwd"]) == (True, [])
    assert (first["argv"], first["path"]) == (["repro.py"], str(tmp_path))
    assert not {"GRAPHDBG", "TORCH_LOGS"} & set(first["env"])


def test_a_hanging_program_ends_with_its_children(tmp_path: Path, bare: ForkServer) -> None:
    text = "import subprocess, time\nprint(subprocess.Popen(['sleep', '97531']).pid, flush=True)\ntime.sleep(1000)"
    trial = fresh.run_once(program(tmp_path, text), limit_s=1.5, bare=bare)
    assert trial.code is None
    assert gone(int(trial.output))


@pytest.mark.long
@pytest.mark.own_server
def test_a_dead_server_is_replaced(tmp_path: Path) -> None:
    with programs() as bare:
        assert bare.pid is not None
        os.kill(bare.pid, signal.SIGKILL)
        assert fresh.run_once(program(tmp_path, "raise SystemExit(3)"), bare=bare).code == 3


@pytest.mark.slow
def test_nothing_is_left_when_the_asking_process_is_killed(tmp_path: Path) -> None:
    text = (
        "import sys, time\nfrom pathlib import Path\nfrom graphdbg.toolkit.isolation import fresh, programs\n"
        "with programs() as bare:\n"
        "    print(bare.pid, flush=True)\n"
        f"    fresh.run_once(Path({str(program(tmp_path, 'import time; time.sleep(1000)'))!r}), bare=bare)\n"
    )
    asking = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    pid = int(asking.stdout.readline())
    asking.kill()
    asking.wait()
    assert gone(pid)


@pytest.mark.long
def test_a_repro_shows_its_bug_and_its_layer(tmp_path: Path, bare: ForkServer) -> None:
    script = next(
        candidate
        for candidate in candidates(case_of(relu_record("accuracy"), ACCURACY))
        if candidate.entry == "torch.compile"
    )
    file = program(tmp_path, script.text)
    trial = fresh.run_once(file, seed=toolchain_seed(), bare=bare)
    assert trial.code == fresh.BUG, trial.output
    assert verify.probe(file, bare=bare) == {"eager": 0, "aot_eager": 0, "aot_eager_decomp_partition": 0}


@pytest.mark.slow
def test_one_of_the_runs_that_count_imports_all_by_itself(bare: ForkServer) -> None:
    script = next(candidates(case_of(relu_record("accuracy"), ACCURACY)))
    lacking = replace(script, text="import sys\nsys.exit('torch._inductor.compile_fx' in sys.modules)\n")
    how = {"seed": None, "path": [], "bare": bare, "wall": None}
    result = tried(lacking, ReportRuns(cast("SavedGraph", None), 3, Redactor(), lambda text: None, how, ""))
    assert ([trial.code for trial in result.runs.trials], result.shows, result.settled) == ([1, 1, 0], True, False)


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds (a server looks up from its imports first)."""
    for _ in range(300):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "zombie" in status.read_text():
            return True
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return False
