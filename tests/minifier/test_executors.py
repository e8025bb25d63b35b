"""Queries through executors, with real workers: what travels, who answers, and that a dead worker costs one query.

Those on Ray need the extra: python -m pip install 'graphdbg[ray]', then pytest -m slow tests/minifier/test_executors.py
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps import trust
from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.tensors import hash_bytes
from graphdbg.minifier.asking import Querying
from graphdbg.minifier.executors import elsewhere
from graphdbg.minifier.executors.elsewhere import Elsewhere, WorkerSettings, case_files
from graphdbg.minifier.executors.ray_pool import required
from graphdbg.minifier.minify import _with_settings, minify
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.search.problem import Aborted
from graphdbg.toolkit.isolation import ForkServer, processes

ROOT = Path(__file__).parents[2]
LOOK = "tests.minifier.executor_tasks:look"
BARE = WorkerSettings(jobs=2, warm="nothing", path=(str(ROOT),))
BUG = {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}
RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="Ray is not installed (the extra graphdbg[ray])")


def network() -> tuple[fx.GraphModule, list[Any]]:
    torch.manual_seed(0)

    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for number, weight in enumerate(weights):
            x = torch.tanh(x @ weight) * 0.5 + x
            x = torch.relu(x) if number == 4 else x
        return (x,)

    inputs = [torch.randn(6, 12), *(torch.randn(12, 12) / 3 for _ in range(10))]
    return make_fx(f)(*inputs), inputs


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gm, inputs = network()
    with inductor_config.patch(BUG):
        path = _with_settings(save_graph(gm, inputs, tmp_path_factory.mktemp("cases") / "relu"))
    trust.bind(path)  # children write where these tests look
    return path


@pytest.fixture
def home() -> Iterator[ForkServer]:
    with ForkServer(warm="nothing") as server:
        yield server


@pytest.fixture
def processes_pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


class Counting(Executor):
    """One thread that goes through another executor, and counts the parts that travel."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.sent: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sent += args[1] if len(args) > 1 else []
        return self.inner.submit(fn, *args, **kwargs)


def waited(what: Callable[[], bool], limit_s: float = 60.0) -> bool:
    end = time.monotonic() + limit_s
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


def test_only_what_is_lacking_is_asked_for_and_what_was_altered_is_refused(tmp_path: Path) -> None:
    sender, store = elsewhere.Sender(), elsewhere.Store(tmp_path / "store")
    (tmp_path / "a").write_bytes(b"one")
    first = sender.tree({"a": tmp_path / "a", "in/b": b"two"})
    rounds = []
    while lacks := store.lacks(first):
        rounds.append(lacks)
        store.add({name: sender.bytes_of(name) for name in lacks})
    assert [len(lacks) for lacks in rounds] == [1, 2]
    folder = store.folder(first)
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == {
        "a": b"one",
        "in/b": b"two",
    }
    second = sender.tree({"a": tmp_path / "a", "c": b"three"})
    assert store.lacks(second) == [second]
    store.add({second: sender.bytes_of(second)})
    assert store.lacks(second) == [hash_bytes(b"three")]
    with pytest.raises(EnvironmentLackError, match="arrived damaged"):
        store.add({hash_bytes(b"three"): b"four"})
    (tmp_path / "a").write_bytes(b"changed")
    with pytest.raises(EnvironmentLackError, match="changed during"):
        sender.bytes_of(hash_bytes(b"one"))
    assert sender.tree({"a": tmp_path / "a", "in/b": b"two"}) != first


def test_a_file_outside_of_its_folder_is_refused(tmp_path: Path) -> None:
    sender, store = elsewhere.Sender(), elsewhere.Store(tmp_path)
    tree = sender.tree({"../stolen": b"x"})
    while lacks := store.lacks(tree):
        store.add({name: sender.bytes_of(name) for name in lacks})
    with pytest.raises(EnvironmentLackError, match="outside of its folder"):
        store.folder(tree)


def test_threads_ask_this_process_own_server(home: ForkServer, case: Path) -> None:
    with ThreadPoolExecutor(2) as pool, Elsewhere(home, pool, BARE) as servers:
        outcome = servers.submit(LOOK, {"case": str(case)}, 30.0).answer().value
    assert outcome["server"] == home.pid
    assert outcome["case"] == str(case)


def test_a_process_has_its_own_server_and_each_file_travels_once(
    home: ForkServer, case: Path, tmp_path: Path, processes_pool: ProcessPoolExecutor
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "value").write_text("7")
    pool = Counting(processes_pool)
    with Elsewhere(home, pool, BARE) as servers:
        whole = servers.submit(LOOK, {"case": str(case), "work": str(work), "candidate": None}, 30.0).answer().value
        sent = list(pool.sent)
        part = servers.submit(LOOK, {"case": str(case), "work": str(work), "candidate": {}}, 30.0).answer().value
        again = servers.submit(LOOK, {"case": str(case), "work": str(work), "candidate": {}}, 30.0).answer().value
        assert whole["server"] != home.pid
        assert whole["case"] != str(case)
        assert set(whole["files"]) == set(case_files(case))
        assert {name for name in whole["files"] if name.startswith("tensors/")}
        assert part["work"] == {"value": "7"}
        assert again["work"] == part["work"]
        assert again["case"] == whole["case"]
        assert len(sent) == len(set(sent)) >= 3
        assert len(pool.sent) == len(sent) + 2  # the tree of "work" and its one file
        root = Path(whole["case"]).parents[1]
        assert root.is_dir()
    assert waited(lambda: not root.exists())
    assert waited(lambda: processes.started(whole["server"]) is None)


def asked(asking: Querying, payload: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    """One query on its way, in a thread of its own."""
    results: list[Any] = []

    def ask() -> None:
        try:
            results.append(asking.ask(LOOK, payload))
        except Aborted as error:
            results.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, results


def lines(path: Path) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_killed_fork_server_costs_one_query_and_is_said_once(home: ForkServer, case: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    asking = Querying(home, MinifyOptions(), 60.0)
    thread, outcome = asked(asking, {"case": str(case), "started": str(started), "seconds": 1.0})
    assert waited(lambda: len(lines(started)) == 1)
    os.kill(lines(started)[0][1], signal.SIGKILL)
    thread.join(60)
    assert outcome[0].status == "done"
    assert len(lines(started)) == 2
    assert asking.deaths() == [
        "1 query was asked again, because its worker died (the fork server ended before the answer came)"
    ]


@pytest.mark.parametrize("who", ["worker", "its server"])
def test_a_killed_worker_of_a_process_pool_costs_one_query(
    home: ForkServer, case: Path, tmp_path: Path, processes_pool: ProcessPoolExecutor, who: str
) -> None:
    started = tmp_path / "started"
    with Elsewhere(home, processes_pool, BARE) as servers:
        asking = Querying(servers, MinifyOptions(jobs=2), 60.0)
        thread, outcome = asked(asking, {"case": str(case), "started": str(started), "seconds": 1.0})
        assert waited(lambda: len(lines(started)) == 1)
        pid = next(iter(processes_pool._processes)) if who == "worker" else lines(started)[0][1]
        os.kill(pid, signal.SIGKILL)
        thread.join(60)
        assert outcome[0].status == "done"
        assert bool(servers.broken) == (
            who == "worker"
        )  # Python's own pool is broken by a dead process: asked here from now on
        assert (outcome[0].value["server"] == home.pid) == (who == "worker")
        assert asking.ask(LOOK, {"case": str(case)}).status == "done"
        assert len(lines(started)) == 2
        assert len(asking.deaths()) == 1


def test_a_child_that_somebody_kills_is_asked_again_and_one_that_kills_itself_is_believed(home: ForkServer) -> None:
    from graphdbg.toolkit.isolation import TaskResult

    class Scripted:
        def __init__(self, *signals: str) -> None:
            self.signals = list(signals)

        def submit(self, function: str, payload: dict[str, Any], limit_s: float, **more: Any) -> Any:
            name = self.signals.pop(0)
            answer = TaskResult(1, "signal", signal=name) if name else TaskResult(1, "done", value={})
            return type("Coming", (), {"answer": lambda self: answer})()

    killed = Querying(Scripted("SIGKILL", ""), MinifyOptions(), 60.0)  # type: ignore[arg-type]
    assert killed.probe({}).status == "done"
    assert len(killed.deaths()) == 1
    always = Querying(Scripted("SIGKILL", "SIGKILL"), MinifyOptions(), 60.0)  # type: ignore[arg-type]
    assert always.probe({}).signal == "SIGKILL"


def test_what_is_aborted_in_another_process_ends_soon(
    home: ForkServer, case: Path, tmp_path: Path, processes_pool: ProcessPoolExecutor
) -> None:
    started = tmp_path / "started"
    with Elsewhere(home, processes_pool, BARE) as servers:
        asking = Querying(servers, MinifyOptions(jobs=2), 60.0)
        thread, outcome = asked(asking, {"case": str(case), "started": str(started), "seconds": 50.0})
        assert waited(lambda: len(lines(started)) == 1)
        asking.abort()
        thread.join(30)
        assert isinstance(outcome[0], Aborted)


def test_a_limit_of_time_holds_in_another_process(
    home: ForkServer, case: Path, processes_pool: ProcessPoolExecutor
) -> None:
    with Elsewhere(home, processes_pool, BARE) as servers:
        assert servers.submit(LOOK, {"case": str(case), "seconds": 50.0}, 1.0).answer().status == "timeout"


def test_a_check_of_ones_own_takes_no_executor() -> None:
    gm, inputs = network()
    with pytest.raises(UsageError, match="cannot be used together"):
        minify(gm, inputs, check=lambda *_: True, executor="ray")
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError, match="cannot be used together"):
        minify(gm, inputs, check="cmd: test -d {case}", executor=pool)


@pytest.mark.skipif(RAY, reason="Ray is installed")
def test_without_ray_a_sentence_names_the_extra(case: Path) -> None:
    with pytest.raises(EnvironmentLackError, match="not installed"):
        required()
    words = [sys.executable, "-m", "graphdbg", "minify", str(case), "--executor", "ray"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'graphdbg[ray]'" in done.stderr
    assert "Traceback" not in done.stderr


def of(result: Any) -> tuple[Any, ...]:
    """What must not depend on where queries ran."""
    size = (result.nodes, result.input_bytes)
    notes = [note for note in result.notes if "by an earlier command" not in note]
    return size, result.queries, result.history, result.signature.text(), result.verified, notes


@pytest.mark.slow
def test_any_executor_gives_the_result_of_local_workers() -> None:
    gm, inputs = network()
    with inductor_config.patch(BUG):
        local = minify(gm, inputs, jobs=2)
        with ThreadPoolExecutor(2) as threads:
            assert of(minify(gm, inputs, jobs=2, executor=threads)) == of(local)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
            assert of(minify(gm, inputs, jobs=2, executor=pool)) == of(local)
    assert local.nodes == 3


@needs_ray
@pytest.mark.slow
def test_two_workers_of_ray_give_the_result_of_two_local_ones_whoever_dies(case: Path, tmp_path: Path) -> None:
    def words(name: str, *more: str) -> list[str]:
        return [
            sys.executable,
            "-m",
            "graphdbg",
            "minify",
            str(case),
            "-o",
            str(tmp_path / name),
            "-j",
            "2",
            "--json",
            *more,
        ]

    def result(text: str) -> dict[str, Any]:
        last = json.loads(text.splitlines()[-1])
        return {name: last[name] for name in ("nodes", "input_bytes", "queries", "signature", "verified")}

    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    local = subprocess.run(words("local"), stdout=subprocess.PIPE, text=True, check=True)
    for dead in ("nobody", "actor", "server"):
        process = subprocess.Popen(
            words(dead, "--executor", "ray"), stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        journal = tmp_path / dead / "journal.jsonl"
        assert waited(lambda path=journal: path.exists() and path.read_bytes().count(b"\n") > 4, 300)
        if dead != "nobody":
            os.kill(_ray_pids(process.pid)[dead], signal.SIGKILL)
        reported, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        assert result(reported) == result(local.stdout)
        notes = [note for note in json.loads(reported.splitlines()[-1])["notes"] if "died" in note]
        assert len(notes) <= (dead != "nobody")


def _ray_pids(root: int) -> dict[str, int]:
    """An actor that has a fork server below `root`, and that server."""
    for pid in processes.descendants(root):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        parent = _parent(pid)
        if b"isolation.server" in command and parent != root:
            return {"actor": parent, "server": pid}
    raise AssertionError("no actor has a fork server")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@needs_ray
@pytest.mark.slow
def test_ray_ends_with_ctrl_c_and_is_resumed_elsewhere(case: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "graphdbg", "minify", "-o", str(tmp_path / "out")]
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    process = subprocess.Popen(
        [*words, str(case), "-j", "2", "--executor", "ray"],
        start_new_session=True,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    journal = tmp_path / "out" / "journal.jsonl"
    assert waited(lambda: journal.exists() and journal.read_bytes().count(b"\n") > 4, 300)
    below = processes.descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == 130
    assert waited(lambda: not [pid for pid in below if processes.started(pid) is not None], 30)
    known = journal.read_bytes()
    subprocess.run([*words, "--resume", "--executor", "local"], check=True, stdout=subprocess.DEVNULL)
    assert journal.read_bytes().startswith(known)
