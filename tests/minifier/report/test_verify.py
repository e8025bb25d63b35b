"""Fresh processes: their exit codes, their clean environment, their end."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from graphdbg.minifier.report import verify
from graphdbg.toolkit.isolation import fresh

ENVIRONMENT = 'import json, os\nprint(json.dumps({"env": dict(os.environ), "cwd": os.listdir(".")}))\n'


def program(folder: Path, text: str) -> Path:
    """A stand-in for a repro."""
    path = folder / "repro.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "code"), [("raise SystemExit(1)", 1), ("", 0), ("raise SystemExit(2)", 2)])
def test_exit_codes(text: str, code: int, tmp_path: Path) -> None:
    assert fresh.run_once(program(tmp_path, text)).code == code


def test_a_killed_process_has_its_signal(tmp_path: Path) -> None:
    assert fresh.run_once(program(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")).code == -11


def test_a_hanging_process_ends_with_all_its_children(tmp_path: Path) -> None:
    text = "import subprocess, sys, time\nprint(subprocess.Popen(['sleep', '97531']).pid, flush=True)\ntime.sleep(1000)"
    trial = fresh.run_once(program(tmp_path, text), limit_s=1.5)
    assert trial.code is None
    child = int(trial.output)
    for _ in range(50):
        if not Path(f"/proc/{child}").exists() or "zombie" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.1)
    else:
        subprocess.run(["kill", "-9", str(child)], check=False)
        pytest.fail("the child of a repro outlived it")


def test_the_environment_is_clean_and_each_cache_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDBG", "somewhere")
    monkeypatch.setenv("TORCH_LOGS", "+dynamo")
    monkeypatch.setenv("MY_TOKEN", "secret")
    seen = [json.loads(trial.output) for trial in fresh.run_many(program(tmp_path, ENVIRONMENT), 2)]
    for item in seen:
        assert not {"GRAPHDBG", "TORCH_LOGS", "MY_TOKEN"} & set(item["env"])
        assert item["cwd"] == []
        assert item["env"]["PATH"] == os.environ["PATH"]


def test_folders_of_the_run_do_not_reach_the_output(tmp_path: Path) -> None:
    text = "import os\nprint(__file__, os.environ['TORCHINDUCTOR_CACHE_DIR'], os.environ['TMPDIR'])"
    assert fresh.run_once(program(tmp_path, text)).output.split() == ["repro.py", "cache", "tmp"]


def test_the_rate_counts_what_was_shown(tmp_path: Path) -> None:
    trials = [fresh.FreshRun(code, f"run {code}", 0.1) for code in (0, 1, 2)]
    runs = verify.Verification(tuple(trials))
    assert runs.rate == "1 of 3 fresh processes"
    assert runs.output == "run 1"


def test_a_seed_brings_probes_but_no_lock(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    (seed / "files" / "ab").mkdir(parents=True)
    (seed / "files" / "ab" / "probe.so").write_text("x")
    (seed / "files" / "precompiled_headers").mkdir()
    (seed / "files" / "precompiled_headers" / "h.gch").write_text("x")
    (seed / "complete").touch()
    text = (
        "import os, pathlib\nfor name in ('TORCHINDUCTOR_CACHE_DIR', 'TMPDIR'):\n"
        "    for path in sorted(pathlib.Path(os.environ[name]).rglob('*.*')): print(path.name)"
    )
    assert fresh.run_once(program(tmp_path, text), seed=seed).output.split() == ["probe.so", "h.gch"]


def test_an_interrupt_ends_every_process(tmp_path: Path) -> None:
    import signal
    import threading

    started = time.monotonic()
    threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        fresh.run_many(program(tmp_path, "import time; time.sleep(60)"), 2)
    assert time.monotonic() - started < 20
