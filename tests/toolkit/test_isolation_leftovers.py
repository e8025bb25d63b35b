"""What a dying child, server or client could leave: processes in other sessions, shared memory, folders, half
libraries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphdbg.toolkit.isolation import ForkServer, ask, child, default_memory_bytes, processes, warming
from graphdbg.toolkit.isolation import server as server_module

HERE = Path(__file__).parent
SHARED = Path("/dev/shm")
TASKS = "tests.toolkit.isolated_tasks"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(warm="nothing") as server:
        yield server


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(what: Callable[[], bool], limit_s: float = 15.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if not what():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not SHARED.is_dir(), reason="no /dev/shm")
def test_a_dead_child_leaves_no_orphan_and_no_shared_memory_of_torch(server: ForkServer, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    payload = {"pid_file": str(pid_file), "shared": str(SHARED / "torch_PID_1_0")}
    foreign = SHARED / f"torch_{os.getpid()}_1_0"
    foreign.touch()
    try:
        assert ask(f"{TASKS}:leave_orphan_and_die", payload, limit_s=30, server=server).answer().signal == "SIGSEGV"
        assert gone(lambda: alive(int(pid_file.read_text())))
        assert [path for path in SHARED.glob("torch_*") if path.owner() == foreign.owner()] == [foreign]
    finally:
        foreign.unlink()


def test_an_orphan_waits_for_a_job_that_may_own_it(server: ForkServer, tmp_path: Path) -> None:
    other = server.submit(f"{TASKS}:nap", {"seconds": 1.5}, limit_s=30)
    time.sleep(0.3)
    pid_file = tmp_path / "pid"
    ask(f"{TASKS}:leave_orphan_and_die", {"pid_file": str(pid_file)}, limit_s=30, server=server).answer()
    assert other.answer(30).status == "done"
    assert gone(lambda: alive(int(pid_file.read_text())))


def test_half_a_library_of_a_killed_compiler_goes(server: ForkServer, tmp_path: Path) -> None:
    said = tmp_path / "said"
    answer = ask(f"{TASKS}:half_a_library", {"said": str(said)}, limit_s=1.5, server=server).answer()
    assert answer.status == "timeout"
    assert not Path(said.read_text()).exists()


def test_a_stage_has_a_limit_of_its_own(server: ForkServer) -> None:
    payload = {"stages": [["compile", 2.0], ["run", 30.0]]}
    answer = ask(f"{TASKS}:dwell", payload, limit_s=60, stage_limits={"run": 1.0}, server=server).answer()
    assert (answer.status, answer.stage) == ("timeout", "run")
    assert answer.seconds < 20
    answer = ask(f"{TASKS}:dwell", {"stages": [["a", 0.2], ["b", 0.4]]}, limit_s=60, server=server).answer()
    assert [stage for stage, _ in answer.marks] == ["a", "b"]
    assert answer.marks[1][1] - answer.marks[0][1] == pytest.approx(0.2, abs=0.15)


def test_what_was_told_before_death_is_there(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:tell_and_die", {}, limit_s=30, server=server).answer()
    assert (answer.signal, answer.value, answer.event) == ("SIGABRT", None, {"nodes": 7})


def test_memory_is_limited_where_address_space_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks at resident memory; the child here has no limit of address space, as with a GPU about."""
    server = ForkServer(warm="nothing", memory_bytes=300 << 20, preload=[f"{TASKS}:no_address_limit"])
    with server:
        assert ask(f"{TASKS}:hog_slowly", {}, limit_s=60, server=server).answer().status == "memory"


def test_a_share_of_the_memory_for_each_job() -> None:
    assert default_memory_bytes(4) == pytest.approx(default_memory_bytes() / 4, rel=0.01)


def test_a_folder_that_nobody_holds_goes_with_what_runs_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with processes.owned("graphdbg-minify-") as held:
        (held / "values").touch()
        left = tmp_path / "graphdbg-server-left"
        (left / "tmp").mkdir(parents=True)
        (left / "alive").touch()
        unmade = tmp_path / "graphdbg-server-unmade"
        unmade.mkdir()
        stray = subprocess.Popen(
            ["sleep", "1000"], env={**os.environ, "TMPDIR": str(left / "tmp")}, start_new_session=True
        )
        deadline = time.monotonic() + 10
        while processes.started_under(left / "tmp") != [stray.pid]:  # until it is `sleep`, it has our environment
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert processes.remove_left_over() == [left]
        assert stray.wait(10) == -signal.SIGKILL
        assert held.exists()
        assert unmade.exists()
    assert not held.exists()


def test_a_command_that_a_child_becomes_ends_with_all_that_it_leaves(server: ForkServer, tmp_path: Path) -> None:
    def run(*command: str) -> int | None:
        about = {
            "argv": list(command),
            "environment": dict(os.environ),
            "cwd": str(tmp_path),
            "log": str(tmp_path / "log"),
        }
        return ask(child.COMMAND, about, 30, server=server).answer().exit_code

    assert run("sh", "-c", "echo said; exit 3") == 3
    assert run("sh", "-c", "kill -SEGV $$") == -signal.SIGSEGV
    assert run("no-such-program") == 127
    assert (tmp_path / "log").read_text().splitlines() == ["said", "no-such-program: No such file or directory"]
    pid = tmp_path / "pid"
    assert run("sh", "-c", f"setsid sleep 1000 & echo $! > {pid}; sleep 0.3") == 0
    assert gone(lambda: alive(int(pid.read_text())))


def test_a_command_ends_when_its_caller_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    about = {
        "argv": ["sh", "-c", f"setsid sleep 1000 & echo $! > {pid}; sleep 1000"],
        "environment": dict(os.environ),
        "cwd": str(tmp_path),
        "log": str(tmp_path / "log"),
    }
    code = (
        "from graphdbg.toolkit.isolation import ask, fork_server\nfrom graphdbg.toolkit.isolation.child "
        "import COMMAND\n"
        f"with fork_server('nothing', ()) as server: ask(COMMAND, {about!r}, server=server).answer()"
    )
    caller = subprocess.Popen([sys.executable, "-c", code])
    assert gone(lambda: not (pid.exists() and pid.read_text().strip()))
    caller.kill()
    caller.wait()
    assert gone(lambda: alive(int(pid.read_text())))


def test_time_that_the_machine_spends_on_others_is_not_a_childs() -> None:
    stalls = processes.Stalls()
    assert stalls.seconds([os.getpid()], 0.0) >= 0.0
    before = stalls.seconds([os.getpid()], 1.0)
    assert before <= stalls.seconds([os.getpid()], 2.0) <= before + 1.0
    assert server_module._MOST_STALLED > 1


@pytest.mark.long
def test_a_folder_that_is_being_made_is_not_taken_for_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many threads make folders, and each removes what is left over first: nobody loses the one that it works in."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def work(number: int) -> int:
        lost = 0
        for _ in range(60):
            with processes.owned("graphdbg-verify-") as folder:
                (folder / "work").mkdir()
                lost += not (folder / "work").is_dir()
        return lost

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, range(6))) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_fork_of_a_process_with_openmp_threads_computes() -> None:
    program = """
import os, signal, sys, torch
from graphdbg.toolkit.isolation.processes import end_openmp_threads
torch.set_num_threads(2)
given = torch.ones(2000, 2000)
given.clone()
end_openmp_threads()
if not os.fork():
    signal.alarm(20)
    torch.set_num_threads(2)
    os._exit(int(given.clone().sum() != 4e6))
sys.exit(os.wait()[1])
"""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False).returncode == 0


def test_the_header_is_named_once_for_all_processes(tmp_path: Path) -> None:
    """A child of the next server passes other objects, whose repr holds an address, for the same header."""
    asked: list[str] = []

    class Isa:
        def __str__(self) -> str:
            return "AVX512"

    def precompile(header: str, words: str, **command: object) -> str:
        asked.append(header)
        (tmp_path / "made.h").touch()
        return str(tmp_path / "made.h")

    for isa in [Isa(), Isa()]:
        remembering = warming._remembering(precompile, tmp_path)
        assert remembering("prefix.h", "g++ -O3", vec_isa=isa, shared=True) == str(tmp_path / "made.h")
    assert asked == ["prefix.h"]
    warming._remembering(precompile, tmp_path)("prefix.h", "g++ -O3", vec_isa=isa, shared=False)
    assert len(asked) == 2
