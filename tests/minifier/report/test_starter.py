"""Processes that have imported torch before they are needed: the same exit codes, environment and end as whole new ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphdbg.minifier.report import layers, verify
from graphdbg.minifier.report.repro import candidates
from graphdbg.minifier.report.starter import Starter

from .cases import ACCURACY, case_of, relu_record

TELL = """
import json, os, sys
modules = [name for name in sys.modules if name.partition(".")[0] == "graphdbg"]
print(json.dumps({"env": dict(os.environ), "cwd": os.listdir("."), "ours": modules, "torch": "torch" in sys.modules,
                  "argv": sys.argv, "path": sys.path[0], "pid": os.getpid()}))
"""


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    with verify.starting(seed=verify.toolchain_seed()) as starter:
        yield starter


def program(folder: Path, text: str) -> Path:
    path = folder / "repro.py"
    path.write_text(text)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code"),
    [("raise SystemExit(1)", 1), ("", 0), ("import sys; sys.exit(2)", 2), ("1 / 0", 1), ("raise SystemExit('words')", 1),
     ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV)],
)  # fmt: skip
def test_a_program_ends_as_it_would_alone(text: str, code: int, tmp_path: Path, starter: Starter) -> None:
    told = verify.run_once(program(tmp_path, text), starter=starter)
    alone = subprocess.run([sys.executable, program(tmp_path, text)], capture_output=True, text=True)
    assert told.code == code == alone.returncode
    assert told.output.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


def test_it_finds_a_clean_world_of_its_own(tmp_path: Path, starter: Starter, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, torch; print(*[name for name in sys.modules if name.partition('.')[0] == 'graphdbg'])"
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    monkeypatch.setenv("GRAPHDBG", "somewhere")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    file = program(tmp_path, TELL)
    one, two = (json.loads(verify.run_once(file, starter=starter).output) for _ in range(2))
    assert one["pid"] != two["pid"]
    assert set(one["ours"]) == set(new)  # what torch itself loads of an installed package, and nothing more
    assert (one["torch"], one["cwd"]) == (True, [])
    assert (one["argv"], one["path"]) == (["repro.py"], str(tmp_path))
    assert not {"GRAPHDBG", "TORCH_LOGS"} & set(one["env"])


def test_a_hanging_program_ends_with_its_children(tmp_path: Path, starter: Starter) -> None:
    text = "import subprocess, time\nprint(subprocess.Popen(['sleep', '97531']).pid, flush=True)\ntime.sleep(1000)"
    trial = verify.run_once(program(tmp_path, text), limit_s=1.5, starter=starter)
    assert trial.code is None
    assert gone(int(trial.output))


@pytest.mark.own_server
def test_a_dead_starter_is_replaced_by_whole_new_processes(tmp_path: Path) -> None:
    with verify.starting() as starter:
        os.kill(starter.pids[0], signal.SIGKILL)
        assert verify.run_once(program(tmp_path, "raise SystemExit(3)"), starter=starter).code == 3


@pytest.mark.slow
def test_nothing_is_left_when_the_asking_process_is_killed(tmp_path: Path) -> None:
    text = (
        "import sys, time\nfrom pathlib import Path\nfrom graphdbg.minifier.report import verify\n"
        "with verify.starting() as starter:\n"
        "    print(starter.pids[0], flush=True)\n"
        f"    verify.run_once(Path({str(program(tmp_path, 'import time; time.sleep(1000)'))!r}), starter=starter)\n"
    )
    asking = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    pid = int(asking.stdout.readline())
    asking.kill()
    asking.wait()
    assert gone(pid)


def test_a_repro_shows_its_bug_and_its_layer(tmp_path: Path, starter: Starter) -> None:
    script = next(one for one in candidates(case_of(relu_record("accuracy"), ACCURACY)) if one.entry == "torch.compile")
    file = program(tmp_path, script.text)
    trial = verify.run_once(file, seed=verify.toolchain_seed(), starter=starter)
    assert trial.code == verify.BUG, trial.output
    assert layers.probe(file, starter=starter) == {"eager": 0, "aot_eager": 0, "aot_eager_decomp_partition": 0}


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds (a starter looks up from its imports first)."""
    for _ in range(300):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "zombie" in status.read_text():
            return True
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    return False
