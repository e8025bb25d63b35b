"""OUT for whoever looks on: events.jsonl heals and never ends a search, one process at a time; `graphdbg steer`'s
errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from graphdbg.dumps.errors import EnvironmentLackError, UnreadableError, UsageError
from graphdbg.dumps.process import FILE, describe
from graphdbg.minifier.commands.minify import minify
from graphdbg.minifier.commands.steer import steer
from graphdbg.minifier.events import EVENTS_FILE, Ended, Said, Started, Steered, Stepped
from graphdbg.minifier.log import Life, Log, at_work
from graphdbg.minifier.results import _in_a_line, read_atoms
from graphdbg.minifier.steering import NobodyThereError, append, give, outcome
from tests.minifier.abstract import Abstract, run
from tests.minifier.generated import needs, transformer


def lines(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / EVENTS_FILE).read_text().splitlines()]


def test_each_process_that_goes_on_is_another_life_and_a_torn_line_is_ended(tmp_path: Path) -> None:
    for life in (1, 2):
        events = Log(tmp_path)
        events.tell(Started("graph", "out"))
        events.tell(Stepped("windows", 7))
        events.close()
        assert [line["life"] for line in lines(tmp_path)][-2:] == [life, life]
        assert all(isinstance(line["time"], float) for line in lines(tmp_path))
    with (tmp_path / EVENTS_FILE).open("a") as file:
        file.write('{"event":"query","case":"0-1')
    events = Log(tmp_path)
    events.tell(Said("on it goes"))
    events.close()
    *_, torn, last = (tmp_path / EVENTS_FILE).read_text().splitlines()
    assert torn == '{"event":"query","case":"0-1'
    assert json.loads(last)["text"] == "on it goes"
    assert json.loads(last)["life"] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / EVENTS_FILE).symlink_to("/dev/full")
    events = Log(tmp_path, said.append)
    for _ in range(3):
        events.tell(Said("a sentence"))
    (sentence,) = said
    assert "No space left on device" in sentence


def test_one_process_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Life(out) as life:
        life.log.tell(Started("graph", "out"))
        assert at_work(out)[0] == "alive"
        with pytest.raises(UsageError, match=f"out is in use: process {os.getpid()} on "):
            Life(out, resume=True)
        life.end(Ended("reduced", case="out/case", nodes=3))
    assert [line["event"] for line in lines(out)] == ["start", "end"]
    with Life(out, resume=True) as life:
        life.log.tell(Started("graph", "out"))
    assert lines(out)[-1]["verdict"] == "failed"
    with pytest.raises(UsageError, match="exists already"):
        Life(out)


def test_a_folder_that_is_taken_is_told_before_anything_is_judged(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with pytest.raises(UsageError, match="exists already"):
        minify.main(["no/such/run", "-o", str(tmp_path / "out")], standalone_mode=False)


def test_the_lock_goes_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from graphdbg.minifier.log import Life\n"
        "Life(Path(sys.argv[1])).__enter__(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")])
    assert at_work(tmp_path / "out")[0] == "dead"
    with Life(tmp_path / "out"):  # neither in use nor taken for somebody's result
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["lock", FILE]


def test_how_it_ended_is_told_also_where_it_was_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Life(tmp_path / "a") as life:
        life.log.tell(Started("graph", "out"))
        raise KeyboardInterrupt
    assert lines(tmp_path / "a")[-1]["verdict"] == "interrupted"
    with pytest.raises(UsageError), Life(tmp_path / "b") as life:
        life.log.tell(Started("graph", "out"))
        raise UsageError("no good", "it is so")
    assert (lines(tmp_path / "b")[-1]["verdict"], lines(tmp_path / "b")[-1]["why"]) == ("failed", "no good: it is so")
    with pytest.raises(UsageError), Life(tmp_path / "c"):
        raise UsageError("not even begun")
    assert not (tmp_path / "c").exists()


def test_what_the_numbers_of_a_candidate_stand_for(tmp_path: Path) -> None:
    problem = Abstract(transformer(50), needs({7}))
    run(problem, tmp_path / "out")
    atoms = read_atoms(tmp_path / "out")
    assert len(atoms) == 50
    assert atoms[7]["name"] == problem.name(7)
    assert (atoms[7]["atom"], atoms[7]["nodes"], atoms[7]["parents"]) == (7, ["n7"], list(problem.parents(7)))
    with pytest.raises(UnreadableError, match="Minify the graph again"):
        read_atoms(tmp_path / "none")


def test_an_order_needs_somebody_who_carries_it_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the folder of a minification"):
        give(tmp_path, "pause")
    Log(tmp_path).tell(Started("graph", "out"))
    with pytest.raises(NobodyThereError, match=r"its process has ended.*graphdbg minify --resume -o "):
        give(tmp_path, "pause")
    with pytest.raises(UsageError, match=r"the steps are switches, .* Did you mean windows\?"):
        give(tmp_path, "disable", step="window")
    (tmp_path / FILE).write_bytes(msgspec.json.encode(describe("minify")))
    given = give(tmp_path, "disable", step="windows")
    assert outcome(tmp_path, given, 0.0) is None
    Log(tmp_path).tell(Steered(given.order.id, "disable", "applied", step="windows"))
    result = outcome(tmp_path, given, 5.0)
    assert result is not None
    assert result.state == "applied"
    Log(tmp_path).tell(Stepped("report", 9))
    with pytest.raises(NobodyThereError, match=r"it has ended\. See graphdbg steer "):
        give(tmp_path, "pause")


def test_skip_is_about_the_step_that_runs_when_it_is_said(tmp_path: Path) -> None:
    events = Log(tmp_path)
    for event in (Started("graph", "out"), Stepped("hint", 2), Stepped("windows", 7), Said("x")):
        events.tell(event)
    (tmp_path / FILE).write_bytes(msgspec.json.encode(describe("minify")))
    assert give(tmp_path, "skip").order.step == "windows"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["restart", "x"], "takes the number of a case"),
        (["disable"], "disable needs a step"),
        (["pause", "dims"], "takes no further word"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, words: list[str], says: str) -> None:
    done = CliRunner().invoke(steer, [str(tmp_path), *words])
    assert isinstance(done.exception, UsageError)
    assert says in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_orders_are_appended_after_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "control.jsonl").write_text('{"id": "torn"')
    (tmp_path / FILE).write_bytes(msgspec.json.encode(describe("minify")))
    Log(tmp_path).tell(Started("graph", "out"))
    append(tmp_path, give(tmp_path, "pause").order)
    first, *rest = (tmp_path / "control.jsonl").read_text().splitlines()
    assert first == '{"id": "torn"'
    assert [json.loads(line)["what"] for line in rest] == ["pause", "pause"]


def test_an_error_that_tells_a_traceback_is_noted_in_a_line() -> None:
    what, reported = (
        "the process failed",
        'Traceback (most recent call last):\n  File "a.py"\nKeyError: 3\n\nWhile executing',
    )
    assert _in_a_line(EnvironmentLackError(what, reported)) == "the process failed: KeyError: 3"
    assert _in_a_line(EnvironmentLackError(what, "no room")) == "the process failed: no room"
