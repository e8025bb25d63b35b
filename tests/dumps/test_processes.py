"""Real processes: several join one run at once, one is killed while it saves, one forks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphdbg.dumps.deaths import ProcessEnding, sentence
from graphdbg.dumps.store import open_run

from .graphs import chain, new_run

ROOT = Path(__file__).parents[2]


WRITER = """
import sys, time
from pathlib import Path
from tests.dumps.graphs import stored_chain
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter
while time.time() < {start!r}:
    pass
process = RunWriter.create({run!r}, RunRecord(format=FORMAT, command=sys.argv), join=True).process(rank={rank!r})
print("ready", flush=True)
for number in range({count!r}):
    record, tensors = stored_chain(process.unique_id(f"{{number}}/0", "forward"))
    process.save_graph(record, tensors)
    process.journal.event("compiling", graph=record.id)
process.close()
"""


def start(run: Path, rank: int, count: int, at: float = 0.0) -> subprocess.Popen[str]:
    """A process that saves `count` graphs into the run, starting at the wall clock time `at`."""
    program = WRITER.format(run=str(run), rank=rank, count=count, start=at)
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_processes_that_start_together_make_one_run(tmp_path: Path) -> None:
    at = time.time() + 1.0
    children = [start(tmp_path / "run", rank, 3, at) for rank in range(4)]
    for child in children:
        assert child.communicate(timeout=60)[1] == ""
        assert child.returncode == 0
    run = open_run(tmp_path / "run")
    assert [process.rank for process in run.processes] == [0, 1, 2, 3]
    assert [graph.id for graph in run.graphs()] == [
        f"{rank}:{number}_0/forward" for rank in range(4) for number in range(3)
    ]
    assert all(
        bytes(graph.tensors.get(graph.record.graph.attrs["w"].storage)) == bytes(range(16)) for graph in run.graphs()
    )
    assert not list((tmp_path / "run").rglob(".tmp-*"))


@pytest.mark.parametrize("delay_s", [0.0, 0.013, 0.05])
def test_killed_while_saving_every_graph_that_is_visible_is_whole(tmp_path: Path, delay_s: float) -> None:
    child = start(tmp_path / "run", 0, 100_000)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(delay_s)
    child.kill()
    child.communicate()
    run = open_run(tmp_path / "run")
    for graph in run.graphs():
        assert len(graph.record.graph.nodes) == len(graph.table) == 5
        assert len(graph.tensors.get(graph.record.graph.attrs["w"].storage)) == 16
    assert [row.status for row in run.rows if row.local != run.rows[-1].local] == ["compiling"] * (len(run.rows) - 1)
    assert run.processes[0].liveness == "dead"


def test_a_forked_child_does_not_end_its_parents_journal(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    pid = os.fork()
    if pid == 0:
        owned = process.owned
        process.close()
        os._exit(int(owned))
    assert os.waitpid(pid, 0)[1] == 0
    assert open_run(tmp_path / "run").processes[0].liveness == "alive"
    process.close()
    assert open_run(tmp_path / "run").processes[0].liveness == "ended"


def test_a_cuda_error_is_told_without_the_advice_that_each_of_them_has() -> None:
    uncaught = (
        "AcceleratorError: CUDA error: device-side assert triggered\n"
        "Search for `cudaErrorAssert' in https://docs.nvidia.com for more information.\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    )
    process: Any = SimpleNamespace(rank=None, name="pid7", uncaught=uncaught, last=None)
    ending = ProcessEnding(process, "failed", 1, None, None, None)
    assert sentence(ending, [process]) == (
        "process 7 ended by AcceleratorError: CUDA error: device-side assert triggered, before its first graph"
    )
