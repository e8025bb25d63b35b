"""`dump --on-failure`: which graph is taken, what is said when there is none, and that the command's own end stays its
own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphdbg.dumps import index
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.replaying import after_failure
from graphdbg.toolkit.replaying.after_failure import suspects, triggered

ENDS = Path(__file__).parent / "recorder" / "scripts" / "ends.py"


def row(
    name: str, error: str | None = None, *, process: str = "pid1", status: str = "failed", lost: bool = False
) -> index.ListedGraph:
    return index.ListedGraph(
        id=f"{process}:{name}",
        local=name,
        process=process,
        rank=None,
        stage=name.partition("/")[2],
        nodes=3,
        status=status,
        error=error,
        saved=True,
        path=Path(name),
        lost=lost,
    )


def dump(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graphdbg", "dump", "-o", "run", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def chosen(*rows: index.ListedGraph) -> list[str]:
    return [suspect.id for suspect in suspects(rows)]


def test_the_stages_of_one_compile_count_once_and_the_inner_one_is_taken() -> None:
    stages = ("dynamo", "pre_grad", "inference", "joint_passed")
    assert chosen(*(row(f"0_0/{stage}", "TypeError: no") for stage in stages)) == ["pid1:0_0/inference"]


def test_the_same_error_counts_once_whatever_its_numbers() -> None:
    first = row("0_0/forward", "RuntimeError: buf12 of size [4, 8]")
    again = row("1_0/forward", "RuntimeError: buf3 of size [16, 2]")
    other_process = row("0_0/forward", "RuntimeError: buf12 of size [4, 8]", process="pid2")
    different = row("2_0/forward", "KeyError: 'x'")
    assert chosen(first, again, other_process, different) == ["pid1:0_0/forward", "pid1:2_0/forward"]


def test_a_failure_comes_before_what_was_in_flight_at_a_death() -> None:
    rows = [
        row("0_0/forward", "process 7 died while this graph was running", status="running", lost=True),
        row("0_0/forward", "process 9 died while this graph was running", status="running", lost=True, process="pid9"),
        row("1_0/backward", "ValueError: no", process="pid2"),
        row("1_0/forward", status="ran", process="pid2"),
    ]
    assert chosen(*rows) == ["pid2:1_0/backward", "pid1:0_0/forward"]


def test_a_graph_where_a_trigger_fired_is_taken_though_it_ran() -> None:
    rows = [row("0_0/forward", status="ran"), row("0_0/backward", status="ran"), row("1_0/forward", "ValueError: no")]
    result = suspects(rows, {("pid1", "0_0/backward"): "nan"})
    assert [each.local for each in result] == ["1_0/forward", "0_0/backward"]


def test_triggers_are_read_from_the_journal(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"]))
    process = run.process("pid7")
    process.journal.event("note", "0_0/backward", found=1, what="nan", execution=3, message="NaN came into being")
    for graph in ("0_0/forward", "0_0/dynamo", "1_0/dynamo"):
        process.journal.event("note", graph, message="inputs of execution 3 kept", kept=1)
    result = triggered(index.processes(run.path))
    assert list(result.items()) == [(("pid7", "0_0/backward"), "nan"), (("pid7", "0_0/dynamo"), "nan")]


@pytest.mark.parametrize(("text", "wanted"), [("minify", ("minify",)), ("report, minify,", ("minify", "report"))])
def test_steps_are_done_in_their_own_order(text: str, wanted: tuple[str, ...]) -> None:
    assert after_failure.steps(text) == wanted


@pytest.mark.parametrize("word", ["minfy", "minify,send", ""])
def test_an_unknown_step_is_refused_before_the_command_is_started(word: str, tmp_path: Path) -> None:
    done = dump(tmp_path, "--on-failure", word, "--", sys.executable, "-c", "open('started', 'w')")
    assert done.returncode == 2
    assert "minify and report" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_failing_graph_it_says_so_and_the_exit_code_stays(tmp_path: Path) -> None:
    done = dump(tmp_path, "--on-failure", "minify,report", "--", "-c", "print('mine'); raise SystemExit(7)")
    assert (done.returncode, done.stdout) == (7, "mine\n")
    assert "no recorded graph failed, so there is nothing to minify or report" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_begun_after_a_request_to_stop(number: signal.Signals, tmp_path: Path) -> None:
    program = "import time; open('started', 'w'); time.sleep(2)"
    command = [sys.executable, "-m", "graphdbg", "dump", "-o", "run", "--on-failure", "minify", "--", "-c", program]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as child:
        while not (tmp_path / "started").exists():
            time.sleep(0.05)
        child.send_signal(number)
        _, reported = child.communicate(timeout=60)
    assert child.returncode == (0 if number == signal.SIGINT else 128 + number)
    assert f"nothing is done after {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}" in reported


@pytest.mark.slow
def test_a_planted_crash_is_reduced_and_reported(tmp_path: Path) -> None:
    (tmp_path / "run-minified").mkdir()
    done = dump(tmp_path, "--on-failure", "minify,report", "--", str(ENDS), "planted")
    assert done.returncode == 1, done.stderr
    assert len(done.stdout.splitlines()) == 1, "dump's stdout is the command's own"
    assert list((tmp_path / "run-minified").iterdir()) == []
    assert (tmp_path / "run-minified-2" / "case" / "graph.json").is_file()
    assert {"repro.py", "issue.md", "artifacts.zip"} <= {path.name for path in (tmp_path / "run-report").iterdir()}
    assert "on failure: wrote run-minified-2 and run-report" in done.stderr


@pytest.mark.slow
def test_it_ends_in_time_and_the_exit_code_stays(tmp_path: Path) -> None:
    start = time.monotonic()
    done = dump(tmp_path, "--on-failure", "minify", "--on-failure-time", "2", "--", str(ENDS), "planted")
    assert done.returncode == 1, done.stderr
    assert "minify is stopped, its part of 2 s is over" in done.stderr
    assert time.monotonic() - start < 60
