"""Bad ends: the program's exit code and output stay its own, every captured graph loads, and `ls` says what
happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import graphdbg
from graphdbg.dumps import deaths
from graphdbg.dumps.graph_folder import JOURNAL_FILE
from graphdbg.dumps.journal import read

SCRIPT = str(Path(__file__).parent / "scripts" / "deaths.py")


def _loads_all(run):
    """Every graph that a journal calls captured is there and loads."""
    for process in run.processes:
        captured = {event.graph for event in read(process.path / JOURNAL_FILE).events if event.kind == "captured"}
        assert captured <= process.saved
    graphs = run.graphs()
    assert graphs
    for saved in graphs:
        assert saved.record.graph.nodes
    return graphs


def _start(runner, *words):
    """A running process of its own group, with its output in pipes."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(runner.cache)}
    return subprocess.Popen(
        words,
        cwd=runner.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.long
def test_every_kind_of_death_is_seen_from_outside(runner):
    plain = runner.script("deaths.py", "all")
    done = runner.dump("all", SCRIPT, "all")
    assert (done.code, done.stdout) == (plain.code, plain.stdout) and plain.code == 0, done.stderr
    run = graphdbg.open_run(done.run)
    _loads_all(run)
    parent, *endings = deaths.endings(run.processes)
    assert (parent.status, parent.code) == ("ended", 0)
    seen = [(ending.status, ending.signal or ending.code) for ending in endings]
    expected = [
        ("killed", "SIGSEGV"),
        ("killed", "SIGABRT"),
        ("failed", 9),
        ("ended", 0),
        ("killed", "SIGKILL"),
        ("killed", "SIGTERM"),
        ("failed", 1),
    ]
    assert seen == expected
    assert endings[-1].process.uncaught == "MemoryError"
    assert len(deaths.lines(run.processes)) == 6
    assert "was killed by SIGSEGV, last event 1_0/" in done.stderr


@pytest.mark.long
def test_a_compiler_that_hangs_is_seen_while_it_does_and_after_ctrl_c(runner):
    child = _start(runner, sys.executable, "-m", "graphdbg", "dump", "-o", "hang", SCRIPT, "hang")
    try:
        assert [child.stdout.readline() for _ in range(2)] == ["2\n", "hanging\n"]
        time.sleep(1.2)
        listed = runner.python("-m", "graphdbg", "ls", "hang")
        line = next(line for line in listed.stdout.decode().splitlines() if line.startswith("1_0 "))
        seconds = int(line.partition("compiling for ")[2].partition(" s")[0])
        assert seconds >= 1
        assert "died" not in listed.stderr
        os.killpg(child.pid, signal.SIGINT)
        rest, reported = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    assert (child.returncode, rest) == (130, "")
    assert "KeyboardInterrupt" in reported
    run = graphdbg.open_run(runner.folder / "hang")
    _loads_all(run)
    (ending,) = deaths.endings(run.processes)
    assert (ending.status, ending.signal, ending.process.uncaught) == ("killed", "SIGINT", "KeyboardInterrupt")


@pytest.mark.long
def test_a_full_disk_is_told_and_changes_nothing(runner):
    done = runner.dump("full", SCRIPT, "full")
    assert (done.code, done.stdout.split()) == (5, [str(n).encode() for n in range(2, 13)]), done.stderr
    assert "File too large" in done.stderr and "not recorded, " in done.stderr
    run = graphdbg.open_run(done.run)
    _loads_all(run)
    assert not list(done.run.rglob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_small_disk_and_a_read_only_one(runner):
    """Real file systems, mounted where nobody else sees them."""
    (runner.folder / "disk").mkdir()
    small, closed = "mount -t tmpfs -o size=100k none disk", "mount -t tmpfs -o ro none disk"
    dump = f"{sys.executable} -m graphdbg dump -o disk/run {SCRIPT} many; code=$?; cp -r disk/run copy; exit $code"
    done = runner._run(["unshare", "-m", "sh", "-c", f"{small} || exit 77; {dump}"])
    if done.returncode == 77:
        pytest.skip("no mount allowed here")
    expected = (5, [str(n).encode() for n in range(2, 13)])
    assert (done.returncode, done.stdout.split()) == expected, done.stderr
    assert b"more: CannotWriteError: cannot write" in done.stderr and b"No space left on device" in done.stderr
    assert 0 < len(_loads_all(graphdbg.open_run(runner.folder / "copy"))) < 22

    plain = f"GRAPHDBG=disk/run {sys.executable} {SCRIPT} many"
    done = runner._run(["unshare", "-m", "sh", "-c", f"{closed}; {plain}"])
    assert (done.returncode, done.stdout.split()) == expected, done.stderr
    assert b"Read-only file system" in done.stderr and b"nothing could be recorded" in done.stderr


@pytest.mark.slow  # what cannot be written is told in the same way where the disk is full
def test_a_run_that_is_deleted_meanwhile_is_told_and_does_not_come_back(runner):
    done = runner.dump("deleted", SCRIPT, "deleted")
    assert (done.code, done.stdout) == (5, b"2\n3\n"), done.stderr
    assert "graphdbg: the run folder deleted is gone" in done.stderr
    assert not done.run.exists()


@pytest.mark.slow
def test_timeout_and_kill_of_the_wrapper_end_the_program(runner):
    child = _start(runner, sys.executable, "-m", "graphdbg", "dump", "-o", "late", SCRIPT, "hang")
    assert [child.stdout.readline() for _ in range(2)] == ["2\n", "hanging\n"]
    child.terminate()  # what timeout(1) does
    rest, _ = child.communicate(timeout=60)
    assert (child.returncode, rest) == (143, "")
    run = graphdbg.open_run(runner.folder / "late")
    assert deaths.endings(run.processes)[0].signal == "SIGTERM"
    assert [row.local for row in run.rows if row.lost] == ["1_0/dynamo"]

    child = _start(runner, sys.executable, "-m", "graphdbg", "dump", "-o", "shot", SCRIPT, "hang")
    assert [child.stdout.readline() for _ in range(2)] == ["2\n", "hanging\n"]
    child.kill()
    rest, _ = child.communicate(timeout=60)  # ends only when the recorded program has closed its end too
    assert rest == ""
    for _ in range(50):  # it closes its files before it is gone
        run = graphdbg.open_run(runner.folder / "shot")
        if deaths.endings(run.processes)[0].status != "running":
            break
        time.sleep(0.1)
    assert deaths.endings(run.processes)[0].status == "died"
    assert [row.local for row in run.rows if row.lost] == ["1_0/dynamo"]
