"""Processes that others start: ranks of launchers, children of multiprocessing, jobs without a wrapper, Inductor's
workers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import graphdbg
from graphdbg.dumps import deaths
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.recorder import origin

SCRIPTS = Path(__file__).parent / "scripts"
RANKS, CHILDREN = str(SCRIPTS / "ranks.py"), str(SCRIPTS / "children.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def _endings(run):
    return {ending.process.name.partition("_pid")[0]: ending for ending in deaths.endings(run.processes)}


def _graph_files(run, rank, restart=0):
    (process,) = [p for p in run.processes if p.rank == rank and p.record.restart == restart]
    names = ("graph.json", "graph.json.gz", "graph.py", "graph.py.gz")
    return {
        str(p.relative_to(process.path)): p.read_bytes() for p in process.path.glob("graphs/*/*/*") if p.name in names
    }


@pytest.mark.slow
def test_two_ranks_of_which_one_is_killed(runner):
    done = runner.dump("ranks", *TORCHRUN, RANKS, "aot_eager", "kill")
    assert done.code == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == [b"0 0 0.006502", b"1 0 0.006226"]
    run = graphdbg.open_run(done.run)
    parts = ["", ".1", ".2"]
    stages = ["dynamo", *(f"{stage}{part}" for stage in ("joint", "forward", "backward") for part in parts)]
    for rank in (0, 1):
        assert sorted(g.local_id.partition("/")[2] for g in run.graphs() if g.rank == rank) == sorted(stages)
    assert {g.status for g in run.graphs() if g.stage in ("forward", "backward")} == {"ran"}
    files = _graph_files(run, 0)
    assert files and files == _graph_files(run, 1), (
        "what differs between ranks lies in inputs, journal and process.json"
    )
    endings = _endings(run)
    assert (endings["rank1"].status, endings["rank1"].signal) == ("killed", "SIGKILL")
    assert endings["rank0"].status in ("killed", "failed")  # torchrun ends it, if its own error does not do so first
    pid = endings["rank1"].process.record.pid
    sentence = (
        f"rank 1 (pid {pid}) was killed by SIGKILL (by kill -9, or by the kernel for lack of memory), last event 4_0/"
    )
    assert f"graphdbg: {sentence}" in done.stderr
    listed = runner.python("-m", "graphdbg", "ls", "ranks")
    assert sentence in listed.stderr
    shown = json.loads(runner.python("-m", "graphdbg", "ls", "--json", "ranks").stdout)
    assert {"run", "graphs", "processes"} <= set(shown)
    killed = next(process for process in shown["processes"] if process["rank"] == 1)
    assert (killed["status"], killed["signal"], killed["exit_code"]) == ("killed", "SIGKILL", None)
    assert killed["last"]["graph"].startswith("4_0/")


@pytest.mark.slow
def test_restarts_get_folders_of_their_own_and_parts_of_ddp_are_paired(runner):
    done = runner.dump("again", *TORCHRUN, "--max-restarts", "3", RANKS, "inductor", "early")
    assert done.code == 0, done.stderr
    run = graphdbg.open_run(done.run)
    endings = _endings(run)
    last = max(process.record.restart for process in run.processes)  # a busy machine may need more than one
    assert {"rank1", f"rank0_restart{last}", f"rank1_restart{last}"} <= set(endings)
    assert (endings["rank1"].status, endings["rank1"].code) == ("failed", 7)
    assert {endings[f"rank{rank}_restart{last}"].status for rank in (0, 1)} == {"ended"}
    assert _graph_files(run, 0, last) == _graph_files(run, 1, last)
    of_last = [g for g in run.graphs() if g.process.startswith(f"rank0_restart{last}_")]
    parts = [g for g in of_last if g.stage in ("forward", "backward")]
    of_rank = {g.local_id: g.record.compile_kwargs["graph_id"] for g in parts}
    for part in ("", ".1", ".2"):
        assert of_rank[f"4_0/backward{part}"] == of_rank[f"4_0/forward{part}"]


@pytest.mark.slow
def test_a_planted_difference_is_recorded_in_both_ranks(runner):
    done = runner.dump("planted", "torchrun", *TORCHRUN[2:], RANKS, "aot_eager", "planted")
    assert done.code == 0, done.stderr
    run = graphdbg.open_run(done.run)
    nodes = [len(run.graph(f"{rank}:4_0/joint.2").record.graph.nodes) for rank in (0, 1)]
    assert nodes[0] < nodes[1]
    assert len(run.graph("0:4_0/joint").record.graph.nodes) == len(run.graph("1:4_0/joint").record.graph.nodes)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate_launch(runner):
    words = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
    more = ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0")
    done = runner.dump("accelerate", *words, *more, RANKS, "aot_eager", ACCELERATE_USE_CPU="true")
    assert done.code == 0, done.stderr
    assert {process.rank for process in graphdbg.open_run(done.run).processes} == {0, 1}


@pytest.mark.slow
def test_children_of_multiprocessing(runner):
    done = runner.dump("children", CHILDREN, "fork_raise", "forkserver", "spawn_kill", "loader")
    assert done.code == 0, done.stderr
    run = graphdbg.open_run(done.run)
    assert [row.status for row in run.rows] == ["ran"] * 8
    endings = {ending.status: ending for ending in deaths.endings(run.processes)}
    assert len(run.processes) == 4, "workers of a DataLoader that compile nothing leave no trace"
    assert set(endings) == {"failed", "killed", "ended"}
    assert endings["failed"].process.uncaught == "ValueError: a child broke"
    assert endings["killed"].signal == "SIGKILL"


@pytest.mark.slow
def test_more_children_without_a_wrapper(runner):
    plain = runner.script("children.py", "fork", "spawn", "other_python", "threads")
    done = runner.script("children.py", "fork", "spawn", "other_python", "threads", GRAPHDBG="alone")
    assert (done.code, sorted(done.stdout.split())) == (plain.code, sorted(plain.stdout.split())), done.stderr
    run = graphdbg.open_run(runner.folder / "alone")
    assert {ending.status for ending in deaths.endings(run.processes)} == {"ended"}
    assert len(run.processes) == 4
    assert not (runner.folder / "alone-2").exists()


ONE = "import torch; torch.compile(lambda x: x.sin() + 1, backend='aot_eager')(torch.ones(3)); print('done')"


def _job(runner, name, count):
    """Tasks of one Slurm step that start at once, without hard links on their file system."""
    results = []

    def task(rank):
        ranks = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": "2"}
        paths = {"PYTHONPATH": str(SCRIPTS / "no_links")}
        results.append(runner.python("-c", ONE, GRAPHDBG=name, **ranks, **paths))

    tasks = [threading.Thread(target=task, args=(rank,)) for rank in range(count)]
    for thread in tasks:
        thread.start()
    for thread in tasks:
        thread.join()
    assert all(done.code == 0 and done.stdout == b"done\n" for done in results), results
    return results


@pytest.mark.slow
def test_tasks_of_slurm_share_a_run_and_the_next_job_has_its_own(runner):
    for name, count in (("slurm", 2), ("slurm-2", 1)):
        done = _job(runner, "slurm", count)
        run = graphdbg.open_run(runner.folder / name)
        assert [process.rank for process in run.processes] == list(range(count))
        assert len(run.graphs()) == 2 * count
        assert sum("graphdbg: next, try" in item.stderr for item in done) == 1, "rank 0 tells, the others do not"


def test_names_of_runs_without_a_wrapper(tmp_path):
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    assert origin.job(1, slurm) == origin.job(0, slurm) == "SLURM_JOB_ID=7 SLURM_STEP_ID=0"
    assert origin.job(0, {"TORCHELASTIC_RUN_ID": "none"}) == ""
    assert origin.job(None, slurm) != origin.job(None, slurm)
    assert origin.job(None, {origin.JOB: "inherited"}) == "inherited"

    from graphdbg.dumps.schema import FORMAT, RunRecord

    def record(job):
        return RunRecord(format=FORMAT, command=["train.py"], job=job)

    run = origin.open_run(tmp_path / "run", tmp_path / "run", record("a"))
    run.process(rank=0)
    assert origin.choose(tmp_path / "run", job="a", rank=1, restart=0).name == "run"
    assert origin.choose(tmp_path / "run", job="a", rank=0, restart=0).name == "run-2", "rank 0 has been here"
    assert origin.choose(tmp_path / "run", job="a", rank=0, restart=1).name == "run"
    assert origin.choose(tmp_path / "run", job="b", rank=1, restart=0).name == "run-2"
    assert origin.open_run(tmp_path / "run", tmp_path / "run", record("b")).path.name == "run-2"
    assert origin.open_run(tmp_path / "run", tmp_path / "run", record("a")).path.name == "run"


def test_two_hosts_with_the_same_process_ids(tmp_path, monkeypatch):
    from graphdbg.dumps import process
    from graphdbg.dumps.schema import FORMAT, RunRecord

    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"]))
    here = run.process()
    monkeypatch.setattr(process, "host_name", lambda: "elsewhere")
    there = run.process()
    assert there.name == f"{here.name}_2"
    results = {p.record.host: p for p in graphdbg.open_run(run.path).processes}
    assert results["elsewhere"].liveness == "alive"  # asked on that host
    monkeypatch.undo()
    results = {p.record.host: p for p in graphdbg.open_run(run.path).processes}
    assert results["elsewhere"].liveness == "unknown"
    (line,) = deaths.lines(list(results.values()))
    assert line.endswith("only their host knows whether they still run (elsewhere)")


def test_a_container_of_the_same_name_is_another_place():
    from graphdbg.dumps import process

    mine = process.describe("pid1")
    assert process.liveness(mine, ended=False) == "alive"
    boot, _, _ = mine.where.partition(" ")
    if boot:
        mine.where = f"{boot} pid:[1]"
        assert process.liveness(mine, ended=False) == "unknown"
        mine.where, mine.started = "another-boot pid:[1]", 1.0
        assert process.liveness(mine, ended=False) == "dead", "this machine was started anew since then"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FORK", pytest.param("SPAWN", marks=pytest.mark.slow)])
def test_the_recorder_is_not_loaded_in_inductors_compile_workers(runner, kind):
    """Asks a real worker of a real pool for its modules."""
    program = (
        "import json, os, sys, torch\n"
        "from torch._inductor.compile_worker.subproc_pool import SubprocPool, SubprocKind\n"
        "from worker_modules import modules\n"
        "assert 'graphdbg.toolkit.recorder.session' in sys.modules, 'this process itself is recorded'\n"
        "pool = SubprocPool(1, kind=getattr(SubprocKind, sys.argv[1]))\n"
        "print(json.dumps(pool.submit(modules).result()))\n"
        "pool.shutdown()\n"
    )
    _is_left_alone(runner.dump(f"workers-{kind}", "-c", program, kind, PYTHONPATH=str(SCRIPTS)))


@pytest.mark.slow
def test_the_recorder_is_not_loaded_in_inductors_autotuning_process(runner):
    program = (
        "import json, torch\n"
        "from torch._inductor.autotune_process import TuningProcess\n"
        "from worker_modules import modules\n"
        "process = TuningProcess(None)\n"
        "process.put(modules)\n"
        "print(json.dumps(process.get(120)))\n"
        "process.kill()\n"
    )
    _is_left_alone(runner.dump("autotune", "-c", program, PYTHONPATH=str(SCRIPTS)))


def _is_left_alone(done):
    assert done.code == 0, done.stderr
    document = json.loads(done.stdout)
    assert "torch" in document["modules"]
    ours = {name for name in document["modules"] if name.startswith("graphdbg")}
    of_import = {"graphdbg", "graphdbg._version", "graphdbg.dumps", "graphdbg.dumps.displayed"}
    assert ours <= of_import | {"graphdbg.toolkit", "graphdbg.toolkit.autoload"}, ours
    assert document["hooks"] == []


@pytest.mark.long
def test_a_kernel_that_never_exits_can_be_read_while_it_lives(runner):
    """A notebook: lines come one by one, and the process is killed in the end."""
    environment = {**os.environ, "GRAPHDBG": "notebook", "TORCHINDUCTOR_CACHE_DIR": str(runner.cache)}
    kernel = subprocess.Popen(
        [sys.executable, "-i", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=runner.folder,
        env=environment,
    )
    try:
        kernel.stdin.write("import torch\nf = torch.compile(lambda x: x.sin() + 1, backend='aot_eager')\n")
        kernel.stdin.write("print('value', f(torch.ones(1)).shape)\n")
        kernel.stdin.flush()
        assert kernel.stdout.readline().startswith("value")
        run = graphdbg.open_run(runner.folder / "notebook")
        assert [row.status for row in run.rows] == ["ran", "ran"]
        assert [ending.status for ending in deaths.endings(run.processes)] == ["running"]
    finally:
        kernel.kill()
        kernel.communicate(timeout=60)
    run = graphdbg.open_run(runner.folder / "notebook")
    assert [ending.status for ending in deaths.endings(run.processes)] == ["died"]
