"""Real servers and real children: what happens to a child is a verdict, and nothing is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.toolkit.isolation import ForkServer, ask

ROOT = Path(__file__).parents[2]
TASKS = "tests.toolkit.isolated_tasks"


@pytest.fixture
def server() -> Iterator[ForkServer]:
    with ForkServer(warm="nothing") as server:
        yield server


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(what: Callable[[], bool], limit_s: float = 10.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if not what():
            return True
        time.sleep(0.05)
    return False


def test_a_value_comes_back(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:echo", {"n": [1, 2.5, "ü", None]}, limit_s=30, server=server).answer()
    assert (answer.status, answer.value) == ("done", {"n": [1, 2.5, "ü", None]})
    assert answer.peak_bytes > 1 << 20
    assert 0 < answer.seconds < 10


def test_a_large_value_comes_back(server: ForkServer) -> None:
    text = "x" * 5_000_000
    assert ask(f"{TASKS}:echo", {"text": text}, limit_s=60, server=server).answer().value == {"text": text}


def test_a_value_without_json_form_says_so(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:no_json", {}, limit_s=30, server=server).answer()
    assert answer.status == "exception"
    assert answer.error is not None
    assert "no JSON form" in answer.error.message


def test_an_exception_keeps_type_text_and_frames(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:fail", {"text": "no 7"}, limit_s=30, server=server).answer()
    assert answer.status == "exception"
    assert answer.error is not None
    assert (answer.error.type, answer.error.message) == ("ValueError", "no 7")
    assert answer.error.frames[0] == f"{TASKS}:fail"
    assert "line" in answer.error.traceback


def test_a_task_that_does_not_exist_is_an_exception(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:nothing_like_it", {}, limit_s=30, server=server).answer()
    assert answer.error is not None
    assert answer.error.type == "AttributeError"


def test_a_segfault_tells_where_and_in_which_stage(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:segfault", {}, limit_s=30, server=server).answer()
    assert (answer.status, answer.signal, answer.stage) == ("signal", "SIGSEGV", "run")
    assert "just before" in answer.output
    assert "in segfault" in answer.output


@pytest.mark.parametrize(("task", "name"), [("abort", "SIGABRT"), ("kill_itself", "SIGKILL")])
def test_a_signal_is_named(server: ForkServer, task: str, name: str) -> None:
    answer = ask(f"{TASKS}:{task}", {}, limit_s=30, server=server).answer()
    assert (answer.status, answer.signal) == ("signal", name)


def test_leaving_through_the_back_door_is_noticed(server: ForkServer) -> None:
    for code in (0, 3):
        answer = ask(f"{TASKS}:leave", {"code": code}, limit_s=30, server=server).answer()
        assert answer.status == "exception"
        assert answer.error is not None
        assert answer.error.type == "ProcessExit"
        assert f"code {code}" in answer.error.message


def test_a_hang_is_ended_and_tells_where_it_hung(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:spin", {}, limit_s=0.5, server=server).answer()
    assert (answer.status, answer.stage) == ("timeout", "compile")
    assert "in spin" in answer.output
    assert answer.seconds < 10


def test_a_hang_inside_c_is_ended(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:spin_in_c", {}, limit_s=0.5, server=server).answer()
    assert answer.status == "timeout"


def test_a_hang_takes_the_programs_that_it_started_along(server: ForkServer, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    answer = ask(f"{TASKS}:hang_with_child", {"pid_file": str(pid_file)}, limit_s=2, server=server).answer()
    assert answer.status == "timeout"
    assert gone(lambda: alive(int(pid_file.read_text())))


def test_a_memory_hog_is_a_verdict() -> None:
    with ForkServer(warm="nothing", memory_bytes=512 << 20) as server:
        answer = ask(f"{TASKS}:hog", {"blocks": 100}, limit_s=60, server=server).answer()
        assert answer.status == "memory"
        assert ask(f"{TASKS}:hog", {"blocks": 2}, limit_s=60, server=server).answer().value == 2


def test_output_is_kept_at_both_ends(server: ForkServer) -> None:
    answer = ask(f"{TASKS}:shout", {"lines": 50_000}, limit_s=60, server=server).answer()
    assert answer.status == "done"
    assert answer.output.startswith("first line\n")
    assert answer.output.endswith("last line\n")
    assert "bytes left out" in answer.output
    assert len(answer.output) < 100_000


@pytest.mark.parametrize(("ends", "status"), [("well", "done"), ("killed", "signal")])
def test_what_a_child_reports_comes_before_its_end(server: ForkServer, ends: str, status: str) -> None:
    asked = ask(f"{TASKS}:count", {"upto": 3, "ends": ends}, 30, server=server)
    assert [event["number"] for event in asked] == [0, 1, 2]
    assert asked.end().status == status
    assert list(asked) == []


def test_more_is_reported_than_a_pipe_holds(server: ForkServer) -> None:
    asked = [ask(f"{TASKS}:count", {"upto": 300, "width": 1000, "ends": "well"}, 30, server=server) for _ in range(2)]
    assert [[event["number"] for event in item] for item in asked] == [[*range(300)]] * 2


def test_what_a_task_refuses_is_raised_at_its_end(server: ForkServer) -> None:
    asked = ask(f"{TASKS}:count", {"upto": 1, "ends": "refuses"}, 30, server=server)
    assert asked.answer().status == "exception"
    with pytest.raises(UsageError, match="never made"):
        asked.end()


def test_a_server_that_is_gone_is_an_end(server: ForkServer) -> None:
    asked = ask(f"{TASKS}:nap", {"seconds": 1000}, 2000, server=server)
    server.wait_ready()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert list(asked) == []
    with pytest.raises(EnvironmentLackError, match=r"the fork server, .* ended by itself"):
        asked.end()


def test_children_run_side_by_side(server: ForkServer) -> None:
    ask(f"{TASKS}:echo", {}, limit_s=30, server=server).answer()
    began = time.monotonic()
    pending = [server.submit(f"{TASKS}:nap", {"seconds": 1.0}, limit_s=30) for _ in range(4)]
    assert [item.answer().value for item in pending] == [1.0] * 4
    assert time.monotonic() - began < 3.0


def test_a_child_is_bound_to_its_server(server: ForkServer) -> None:
    state = ask(f"{TASKS}:process_state", {}, limit_s=30, server=server).answer().value
    assert state == {"leader": True, "core": 0, "parent": server.pid}


def test_nobody_records_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHDBG", "somewhere")
    monkeypatch.setenv("TORCH_TRACE", "somewhere")
    with ForkServer(warm="nothing") as server:
        seen = ask(f"{TASKS}:environment", {}, limit_s=30, server=server).answer().value
    assert not {name for name in seen if name.startswith("GRAPHDBG") or name == "TORCH_TRACE"}
    assert seen["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert seen["OMP_NUM_THREADS"] == seen["MKL_NUM_THREADS"] == seen["TORCHINDUCTOR_COMPILE_THREADS"] == "1"
    assert seen["TORCHINDUCTOR_CACHE_DIR"] != os.environ.get("TORCHINDUCTOR_CACHE_DIR")


def test_closing_leaves_no_process_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = ForkServer(warm="nothing")
    orphan = ask(f"{TASKS}:leave_orphan", {}, limit_s=30, server=server).answer().value
    waiting = server.submit(f"{TASKS}:nap", {"seconds": 1000}, limit_s=2000)
    pid = server.pid
    assert pid is not None
    assert list(tmp_path.iterdir())
    server.close()
    server.close()
    assert waiting.answer(10).status == "lost"
    assert not alive(pid)
    assert gone(lambda: alive(orphan))
    assert not list(tmp_path.iterdir())
    with pytest.raises(EnvironmentLackError, match="closed"):
        ask(f"{TASKS}:echo", {}, server=server).answer()


def test_a_given_cache_folder_stays(tmp_path: Path) -> None:
    with ForkServer(tmp_path / "cache", warm="nothing") as server:
        seen = ask(f"{TASKS}:environment", {}, limit_s=30, server=server).answer().value
    assert seen["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "cache")
    assert (tmp_path / "cache").is_dir()


def test_a_lost_server_is_told_and_replaced(server: ForkServer) -> None:
    ask(f"{TASKS}:echo", {}, limit_s=30, server=server).answer()
    pending = server.submit(f"{TASKS}:nap", {"seconds": 1000}, limit_s=2000)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert pending.answer(20).status == "lost"
    assert ask(f"{TASKS}:echo", {"again": True}, limit_s=30, server=server).answer().value == {"again": True}


CLIENT = """
import os, tempfile
tempfile.tempdir = {tmp!r}
from graphdbg.toolkit.isolation import ForkServer, ask
with ForkServer(warm="nothing") as server:
    server.submit("tests.toolkit.isolated_tasks:hang_with_child", {{"pid_file": {pid_file!r}}}, limit_s=2000)
    while not (os.path.exists({pid_file!r}) and os.path.getsize({pid_file!r})):
        ask("tests.toolkit.isolated_tasks:echo", {{}}, limit_s=30, server=server).answer()
    print(server.pid, flush=True)
    ask("tests.toolkit.isolated_tasks:nap", {{"seconds": 1000}}, limit_s=2000, server=server).answer()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_client(tmp_path: Path, number: signal.Signals) -> None:
    folder, pid_file = tmp_path / "tmp", tmp_path / "pid"
    folder.mkdir()
    program = textwrap.dedent(CLIENT).format(tmp=str(folder), pid_file=str(pid_file))
    client = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert client.stdout is not None
    server = int(client.stdout.readline())
    program_of_child = int(pid_file.read_text())
    assert alive(server)
    client.send_signal(number)
    client.wait(20)
    client.stdout.close()
    assert gone(lambda: alive(server))
    assert gone(lambda: alive(program_of_child))
    assert gone(lambda: any(folder.iterdir()))


def test_dead_orphans_are_collected(server: ForkServer, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    ask(f"{TASKS}:hang_with_child", {"pid_file": str(pid_file)}, limit_s=2, server=server).answer()
    orphan = Path("/proc") / pid_file.read_text()
    assert gone(orphan.exists)


def test_a_fork_of_the_client_does_not_end_its_parents_server(server: ForkServer) -> None:
    ask(f"{TASKS}:echo", {}, limit_s=30, server=server).answer()
    pid = os.fork()
    if pid == 0:
        server.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert ask(f"{TASKS}:echo", {"alive": True}, limit_s=30, server=server).answer().value == {"alive": True}


def test_children_side_by_side_end_in_any_order(server: ForkServer) -> None:
    """One that ends while others hold its pipe must not have the server look at a later child's twice."""
    with ThreadPoolExecutor(4) as pool:
        naps = [{"seconds": number * 7 % 13 / 100, "log": f"{number}"} for number in range(80)]
        answers = list(pool.map(lambda item: ask(f"{TASKS}:doze", item, limit_s=30, server=server).answer(), naps))
    assert [(answer.status, answer.output.strip()) for answer in answers] == [("done", nap["log"]) for nap in naps]


def test_what_a_child_prints_can_be_watched_while_it_runs(server: ForkServer, tmp_path: Path) -> None:
    live = tmp_path / "live"
    payload = {"live": str(live), "until": str(tmp_path / "end")}
    asked = ask(f"{TASKS}:chatter", payload, limit_s=30, server=server)
    assert gone(lambda: not live.exists() or live.read_text() != "compile\nhalf way\n"), (
        live.exists() and live.read_text()
    )
    (tmp_path / "end").touch()
    assert asked.answer().value == "done" and not live.exists()
