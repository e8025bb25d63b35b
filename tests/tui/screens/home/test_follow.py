"""A run that grows while it is looked at, written by a real process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from graphdbg.dumps.browse.listing import Following
from graphdbg.dumps.errors import UsageError
from graphdbg.tui.app import Workbench
from graphdbg.tui.room import first_room
from graphdbg.tui.screens.home.room import HomeRoom

from ...stories import play, shown, until


class Writer:
    """The process that records; it does what it is told at once."""

    def __init__(self, run: Path) -> None:
        words = [sys.executable, str(Path(__file__).parents[2] / "writing.py"), str(run)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.writelines(f"{word}\n" for word in words)
        self.process.stdin.flush()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


@contextmanager
def writer(run: Path) -> Iterator[Writer]:
    result = Writer(run)
    try:
        yield result
    finally:
        result.process.kill()
        result.process.wait()


def poll_until(run: Following, what: str, count: int) -> None:
    """Polls until so many graphs are known."""
    ends = time.monotonic() + 20
    while len(run.rows) < count:
        assert time.monotonic() < ends, f"never came: {what}"
        run.poll()
        time.sleep(0.01)


def test_follow_waits_shows_graphs_pins_and_tells_the_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = first_room("myrun", follow=True)
    assert isinstance(home, HomeRoom)

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: "waiting for myrun: it is not there yet" in shown(app), "that it waits")
        assert home.equivalent() == ["ls", "myrun", "--follow"]
        with writer(Path("myrun")) as training:
            training.tell("graph")
            await until(pilot, lambda: "0_0/forward in flight, compiling for" in shown(app), "the graph in flight")
            training.tell("done", *["graph", "done"] * 2)
            await until(pilot, lambda: sum(line.status == "ran" for line in home.lines) == 3, "three graphs")
            assert home.line is not None
            before = home.line.key
            training.tell(*["graph", "done"] * 2)
            await until(pilot, lambda: sum(line.status == "ran" for line in home.lines) == 5, "five graphs")
            assert home.line.key == before, "only a key moves the cursor"
            await pilot.press("F")
            assert home.line.name == "4_0"
            training.tell("graph")
            await until(pilot, lambda: home.line is not None and home.line.name == "5_0", "the newest")
            await pilot.press("k")
            assert not home.pinned
            training.tell("die")
            await until(pilot, lambda: "ended, and its journal does not say how" in shown(app), "the death")
            await until(pilot, lambda: home.lines[-1].status == "compiling, died", "what was in flight")
        shutil.rmtree("myrun")
        await until(pilot, lambda: "✗ vanished" in shown(app), "that the folder vanished")
        with writer(Path("myrun")) as training:
            training.tell("graph")
            await until(
                pilot, lambda: sum(line.kind == "compile" for line in home.lines) == 1, "the new run in its place"
            )
            training.end()
        assert not app.troubles

    play(story, home)


def test_only_what_changed_is_read_and_a_journal_cut_short_is_read_anew(tmp_path: Path) -> None:
    run = Following(tmp_path / "myrun")
    assert not run.poll()
    assert run.state == "waiting"
    with writer(tmp_path / "myrun") as training:
        training.tell("graph")
        poll_until(run, "a graph", 1)
        journal = next((tmp_path / "myrun").glob("*/journal.jsonl"))
        assert (run.state, run.rows[0].status) in (("running", "captured"), ("running", "compiling"))
        training.tell("done", "graph")
        poll_until(run, "another graph", 2)
        training.end()
        run.poll()
        assert [row.status for row in run.rows] == ["ran", "compiling"]
        assert run.rows[1].lost
    assert not run.poll()
    assert not run.poll()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + lines[2][:10])
    assert run.poll()
    assert run.rows[0].status == "captured"
    journal.write_bytes(b"".join(lines))
    assert run.poll()
    assert [row.status for row in run.rows] == ["ran", "compiling"]
    assert run.damage == []


def test_the_command_prints_the_same_and_says_what_it_cannot(tmp_path: Path) -> None:
    ls = [sys.executable, "-m", "graphdbg", "ls", "myrun", "--follow"]
    following = subprocess.Popen(ls, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert following.stderr is not None
    assert following.stderr.readline() == "waiting for myrun: it is not there yet\n"
    with writer(tmp_path / "myrun") as training:
        training.tell("graph")
        assert following.stdout is not None
        assert "0_0/forward" in following.stdout.readline()
        training.tell("die")
        out, err = following.communicate(timeout=30)
    assert "died while this graph was compiling" in out
    assert "ended, and its journal does not say how" in out
    assert "myrun has ended: 1 graph;" in err
    refused = subprocess.run([*ls, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--follow and --json cannot be used together" in refused.stderr
    with pytest.raises(UsageError, match="takes a whole run"):
        first_room(str(tmp_path / "myrun" / "0_0"), follow=True)
