"""What is left out to stay within a limit: the oldest first, never what failed or is in flight, and always counted."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphdbg.dumps import index, journal
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.graph_folder import JOURNAL_FILE
from graphdbg.dumps.store import open_run
from graphdbg.dumps.writer import LeftOutError, ProcessWriter, RunWriter
from graphdbg.toolkit.recorder.budget import Budget, Disk
from graphdbg.toolkit.recorder.options import Options, checked

from ...dumps.graphs import chain, new_run
from .conftest import SCRIPTS, Runner


class _Recording:
    """A process that captures graphs within a budget, as the recorder does, without torch."""

    def __init__(self, process: ProcessWriter, **limits: object) -> None:
        self.process = process
        self.budget = Budget(Options(run="", **limits), self._left_out)  # type: ignore[arg-type]
        self.budget.attach(process)

    def _left_out(self, graph: str, reason: str) -> None:
        self.process.journal.event("left_out", graph, reason=reason)

    def event(self, kind: str, graph: str, **fields: object) -> None:
        if self.budget.event(kind, graph):
            self.process.journal.event(kind, graph, **fields)

    def compile(self, name: str, *, last: str = "ran", nodes: int = 5) -> bool:
        try:
            self.process.save_graph(chain(f"{name}/forward", nodes), self.process.tensors)
        except LeftOutError:
            return False
        self.event("compiling", f"{name}/forward")
        self.event(last, f"{name}/forward", message="planted")
        return True

    def kept(self) -> list[str]:
        return [graph.local_id.partition("/")[0] for graph in open_run(self.process.run.path).graphs()]


def _blocks(folder: Path) -> int:
    results = {path.lstat().st_ino: path.lstat() for path in [folder, *folder.rglob("*")]}
    return sum(status.st_blocks * 512 for status in results.values())


@pytest.fixture
def run(tmp_path: Path) -> tuple[RunWriter, ProcessWriter]:
    return new_run(tmp_path / "run")


def test_keep_drops_the_oldest_of_the_same_function(run: tuple[RunWriter, ProcessWriter]) -> None:
    recording = _Recording(run[1], keep=2)
    for name in ("0_0", "1_0", "0_1", "0_2", "0_3"):
        recording.compile(name)
    assert recording.kept() == ["1_0", "0_2", "0_3"]
    (process,) = open_run(run[0].path).processes
    assert process.left_out == {"--keep 2": 2}
    assert index.left_out_text(index.left_out([process])) == "left out: 2 graphs by --keep 2"


def test_what_failed_or_is_in_flight_stays(run: tuple[RunWriter, ProcessWriter]) -> None:
    recording = _Recording(run[1], keep=1)
    recording.compile("0_0", last="failed")
    recording.compile("0_1", last="compiling")
    recording.compile("0_2")
    recording.compile("0_3")
    assert recording.kept() == ["0_0", "0_1", "0_3"]


def test_max_disk_holds_on_the_disk(run: tuple[RunWriter, ProcessWriter]) -> None:
    recording = _Recording(run[1], max_disk=1_500_000)
    for number in range(120):
        assert recording.compile(f"0_{number}", nodes=40)
        assert _blocks(run[0].path) <= 1_500_000
    kept = recording.kept()
    assert kept == [f"0_{number}" for number in range(120 - len(kept), 120)]
    assert len(kept) > 20
    assert _blocks(run[0].path) > 1_000_000  # the room is used, too
    (process,) = open_run(run[0].path).processes
    assert sum(process.left_out.values()) == 120 - len(kept)


def test_without_anything_to_drop_the_new_graph_is_left_out_and_counted(run: tuple[RunWriter, ProcessWriter]) -> None:
    recording = _Recording(run[1], max_disk=1_100_000)
    done = [recording.compile(f"0_{number}", last="failed", nodes=40) for number in range(80)]
    assert done[0]
    assert not done[-1]
    assert done == sorted(done, reverse=True)
    assert _blocks(run[0].path) <= 1_100_000
    (process,) = open_run(run[0].path).processes
    assert process.left_out == {"--max-disk 1100000": done.count(False)}


def test_two_processes_share_one_limit(run: tuple[RunWriter, ProcessWriter]) -> None:
    recordings = [_Recording(run[0].process(rank=rank), max_disk=1_500_000) for rank in range(2)]
    for number in range(60):
        for rank, recording in enumerate(recordings):
            recording.compile(f"{rank}_{number}", nodes=40)
    assert _blocks(run[0].path) <= 1_500_000
    assert {name.partition("_")[0] for name in recordings[0].kept()} == {"0", "1"}


def test_a_reservation_is_seen_by_the_others(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = Disk(tmp_path, "a", 100), Disk(tmp_path, "b", 100)
    assert first.reserve(60)
    assert not second.reserve(60)
    assert second.reserve(40)
    first.set(10)
    assert second.reserve(50)


def test_only_is_asked_of_id_function_and_place() -> None:
    budget = Budget(Options(run="", only=r"forward .*Block.* model\.py"), lambda *_: None)
    assert budget.refusal("0_0/forward", "Block.forward model.py:31") is None
    assert budget.refusal("0_0/backward", "Block.forward model.py:31") == r"--only forward .*Block.* model\.py"


@pytest.mark.parametrize("limits", [{"only": "("}, {"keep": -1}, {"after_step": -2}, {"max_disk": 3000}])
def test_limits_that_make_no_sense_are_refused(limits: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        checked(Options(run="x", **limits))  # type: ignore[arg-type]


def test_a_journal_counts_what_came_back_as_kept(tmp_path: Path) -> None:
    log = journal.Journal(tmp_path / JOURNAL_FILE)
    for graph in ("0_0/forward", "0_1/forward"):
        log.event("left_out", graph, reason="--after-step 5")
    log.event("captured", "0_1/forward", nodes=3)
    contents = journal.read(tmp_path / JOURNAL_FILE)
    assert contents.ending().left_out == {"--after-step 5": 1}
    assert list(contents.states()) == ["0_1/forward"]


@pytest.mark.slow
def test_after_a_step_what_still_runs_is_recorded_with_its_inputs(runner: Runner) -> None:
    done = runner.dump("late", "--after-step", "5", "--inputs", "first", "--", str(SCRIPTS / "limits.py"), "1")
    assert done.code == 0, done.stderr
    assert done.stdout == runner.script("limits.py", "1").stdout
    assert done.graphs() == {f"1_{i}/{stage}" for i in (0, 1) for stage in ("dynamo", "joint", "forward", "backward")}
    assert "left out: 2 graphs by --after-step 5" in done.stderr
    assert done.run is not None
    saved = open_run(done.run).graph("1_0/forward")
    assert saved.status == "ran"
    weight = next(item for item in saved.inputs(seed=0) if tuple(item.shape) == (4, 4))
    torch.manual_seed(0)
    assert not torch.equal(weight, torch.nn.Linear(4, 4).weight)  # it was trained for five steps by then


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "kept"), [("--after-step=5", {"0_0", "1_0"}), ("--when=nan", {"0_0", "0_1", "1_0"})]
)
def test_a_step_that_is_compiled_whole_stays_whole_and_is_counted(runner: Runner, option: str, kept: set[str]) -> None:
    done = runner.dump("whole" + option, option, "--", str(SCRIPTS / "whole_step.py"))
    assert (done.code, done.stdout) == (0, runner.script("whole_step.py").stdout), done.stderr
    assert {name.partition("/")[0] for name in done.graphs()} == kept
    assert "graph break" not in done.stderr


@pytest.mark.slow
def test_many_recompiles_stay_within_the_limit(runner: Runner) -> None:
    done = runner.dump("many", "--max-disk", "1M", "--", str(SCRIPTS / "limits.py"), "45")
    assert done.code == 0, done.stderr
    assert done.run is not None
    assert _blocks(done.run) <= 1 << 20
    graphs = done.graphs()
    assert {"0_44/dynamo", "0_44/inference"} <= graphs
    assert f"left out: {90 - len(graphs)} graphs by --max-disk 1048576" in done.stderr
