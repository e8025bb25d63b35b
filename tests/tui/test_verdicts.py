"""What the jobs of this folder found of graphs stands in Home; those of other folders are not listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from graphdbg.cli import run
from graphdbg.dumps import answers
from graphdbg.toolkit.verdicts.verdict import OK, Where, fails
from graphdbg.tui import job_files
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.jobs import Job
from graphdbg.tui.outs import running_search
from graphdbg.tui.screens.graph.room import GraphRoom
from graphdbg.tui.screens.home.preview import Overview
from graphdbg.tui.screens.home.room import HomeRoom
from graphdbg.tui.verdicts import Verdicts, nodes_of

from .stories import key, play, shown, until


def job(words: list[str], *lines: dict[str, Any], code: int = 0) -> Path:
    folder, _ = job_files.new_folder(words, passing=False)
    (folder / job_files.OUT_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / job_files.EXIT_FILE).write_text(str(code))
    return folder


def test_a_triage_of_the_run_marks_its_graphs_and_the_newest_word_holds(work: Any) -> None:
    wrong = fails("wrong_numbers", "inductor", "result: relative error 2")
    first = {"event": "graph", "id": "0_0/joint", "address": "myrun/0_0/joint", **wrong.flat(row=True)}
    job(["triage", "myrun", "--json-lines"], first, code=1)
    verdicts = Verdicts()
    assert verdicts.look(job_files.recent()) and not verdicts.look(job_files.recent())
    result = verdicts.of("myrun/0_0/joint")
    assert result is not None and result[:3] == ("wrong numbers", "result: relative error 2", True)
    written = Path("myrun/run.json").stat()
    os.utime("myrun/run.json", (written.st_atime, result.started + 60))  # recorded anew under the same name
    assert verdicts.of("myrun/0_0/joint") is None
    os.utime("myrun/run.json", (written.st_atime, written.st_mtime))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "✗ wrong numbers" in shown(app) and "[1 Home ✗1]" in shown(app), "the verdict")
        job(["triage", "myrun/0_0/joint", "--json-lines"], {"event": "end", "graph": "0_0/joint", **OK.flat()})
        await until(app, lambda: "✓ ok" in shown(app) and "[1 Home ✗1]" in shown(app), "the newer one")

    play(story, HomeRoom(Here(run="myrun")), size=(120, 34))


def test_verdicts_of_rungs_are_joined_where_they_were_asked_alike(work: Any) -> None:
    graph = "myrun/0_0/joint"
    for rung, more in (("eager", ["--seed", "1"]), ("nop", []), ("decomposed", []), ("inductor", [])):
        job(
            ["triage", graph, "--rungs", rung, "--all", *more, "--json-lines"],
            {"event": "rung", "rung": rung, **OK.flat()},
        )
        time.sleep(0.01)
    assert [line["rung"] for line in job_files.rungs_so_far(graph)] == ["nop", "decomposed"]


def test_a_graph_has_the_rungs_that_a_triage_of_its_run_ran(work: Any) -> None:
    judged = {"event": "graph", "id": "0_0/joint", **OK.flat()}
    rungs = [{"event": "rung", "rung": rung, "graph": "0_0/joint", **OK.flat()} for rung in ("eager", "inductor")]
    job(["triage", "myrun", "--json-lines"], judged, {**judged, "id": "0_0/forward"}, *rungs)
    assert [line["rung"] for line in job_files.rungs_so_far("myrun/0_0/joint")] == ["inductor", "eager", "inductor"]
    assert [line["rung"] for line in job_files.rungs_so_far("myrun/0_0/forward")] == ["inductor"]
    job(["triage", "myrun/0_0/joint", "--json-lines"], {"event": "end", "graph": "0_0/joint", **OK.flat()})
    assert job_files.rungs_so_far("myrun/0_0/joint") == []


def test_jobs_of_other_folders_are_not_listed(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(["triage", "myrun", "--json-lines"])
    overview = Overview(None)
    overview.look()
    assert [line.name for line in overview.lines if line.kind == "job"] == ["graphdbg triage myrun --json-lines"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    overview = Overview(None)
    overview.look()
    assert [line for line in overview.lines if line.kind == "job"] == [] and running_search(None) is None


GRAPH = "myrun/0_0/joint"


def typed(*words: str, target: str = GRAPH, verdict: Any = OK, began: float | None = None, **more: Any) -> None:
    """As the command line keeps what a command in a shell found of a graph."""
    line = {"event": "graph", "address": target, **verdict.flat(), **more}
    job_files.keep(words, time.time() if began is None else began, words[1], target, [line], verdict.exit_code)


def test_what_a_shell_found_is_seen_at_once_in_home_and_graph(work: Path) -> None:
    wrong = fails("wrong_numbers", "inductor", "relative error 2", Where("sin_1"))

    async def at_home(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "0_0" in shown(app), "the run")
        typed("bisect", GRAPH, "--json", "--rung", "inductor", verdict=wrong)
        await until(app, lambda: "✗ wrong numbers" in shown(app) and "[1 Home ✗1]" in shown(app), "the verdict")
        room = app.room
        assert isinstance(room, HomeRoom)
        room.rows.move_to(0)
        await key(app, "exclamation_mark", lambda: room.line is not None and room.line.target == GRAPH)
        typed("replay", GRAPH)
        time.sleep(0.01)
        typed("bisect", GRAPH)
        await until(app, lambda: "✓ ok" in shown(app), "that the same question takes it back")

    play(at_home, HomeRoom(Here(run="myrun")), size=(120, 34))
    (kept,) = [item for item in job_files.recent() if item.code == 1]
    assert kept.record.words == ["bisect", GRAPH, "--rung", "inductor", "--json"] and kept.state == "ended"
    assert job_files.of_graph(GRAPH)["bisect"].code == 0 and Job.attach(kept.folder).wait(10)

    async def at_graph(pilot: Pilot[None], app: Workbench) -> None:
        room = app.room
        assert isinstance(room, GraphRoom)
        await until(app, lambda: room.view is not None and room.marks.was_read and not room.marks.by_node, "the graph")
        results = [
            {"node": "sin_1", "origin": True, "sentence": "a"},
            {"node": "sin_0", "origin": True, "sentence": "b"},
        ]
        typed("check", GRAPH, verdict=wrong, findings=[*results, {"node": "x", "origin": False, "sentence": "c"}])
        await until(app, lambda: len(room.marks.by_node) == 2 and "✗sin_1" in shown(app), "the marks")
        await key(app, "exclamation_mark", lambda: "✗ check: b" in room.status.right)

    play(at_graph, GraphRoom(Here(run="myrun", graph=GRAPH)), (120, 34))


def test_a_command_that_asks_something_else_takes_nothing_back(work: Path) -> None:
    verdicts = Verdicts()
    for words, verdict, said in (
        (("triage",), fails("wrong_numbers", "inductor", "2"), "wrong numbers"),
        (("check",), OK, "wrong numbers"),
        (("triage",), OK, "ok"),
        (("check",), fails("metadata", "debug_nop", "stride"), "metadata"),
        (("triage",), OK, "metadata"),
        (("check",), OK, "ok"),
    ):
        time.sleep(0.002)
        typed(*words, GRAPH, verdict=verdict)
        verdicts.look(job_files.recent())
        result = verdicts.of(GRAPH)
        assert result is not None and said in result.word, (words, result)


def test_what_shells_leave_is_bounded_and_costs_no_job_of_the_workbench(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_files, "KEPT", 3)
    mine = job(["triage", "myrun", "--json-lines"])
    for number in range(5):
        typed("replay", GRAPH, "--seed", str(number))
    assert [item.record.words[3] for item in job_files.recent() if item.folder != mine] == [
        "4",
        "3",
        "2",
    ] and mine.is_dir()
    monkeypatch.setattr(job_files, "MOST_BYTES", 10)
    typed("replay", GRAPH, "--seed", "7")
    monkeypatch.undo()
    (work / "file").touch()
    monkeypatch.setattr(job_files, "homes", lambda: [work / "file" / "jobs"])  # where nothing can be written
    typed("replay", GRAPH, "--seed", "8")
    monkeypatch.undo()


@pytest.mark.slow
def test_each_command_hands_over_what_the_workbench_reads(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_keepers", [])
    for words in (["check", "myrun"], ["replay", GRAPH, "--rung", "eager"], ["triage", "--rungs", "eager,nop", GRAPH]):
        answers.keep_by(lambda *messages, words=words: job_files.keep(words, time.time(), *messages))
        with pytest.raises(SystemExit):
            run(words)
    messages = {item.record.words[0]: (item.record.words[1:], item.code) for item in job_files.recent()}
    assert messages["check"] == (["myrun", "--json"], 0) and messages["replay"] == (
        [GRAPH, "--rung", "eager", "--json-lines"],
        0,
    )
    assert messages["triage"][0] == [GRAPH, "--rungs", "eager,nop", "--json-lines"]
    verdicts, all_of = Verdicts(), job_files.recent()
    for name in ("check", "replay"):
        verdicts = Verdicts()
        assert verdicts.look([item for item in all_of if item.record.words[0] == name])
        assert verdicts.of(GRAPH) is not None and (verdicts.of("myrun/0_0/forward") is not None) == (name == "check")
    assert "triage" in job_files.of_graph(GRAPH) and nodes_of(GRAPH) is not None


@pytest.mark.slow
def test_a_command_line_is_kept_once_wherever_it_was_started(work: Path) -> None:
    words = ["replay", GRAPH, "--rung", "eager"]
    plain = subprocess.run([sys.executable, "-m", "graphdbg", *words], capture_output=True, text=True, check=True)
    assert [item.record.words for item in job_files.recent()] == [[*words, "--json-lines"]]
    ours = Job([*words, "--json-lines"])
    assert ours.wait(120) and ours.code == 0 and len(job_files.recent()) == 2
    blocked = {**os.environ, "XDG_STATE_HOME": "/proc", "TMPDIR": str(work)}
    again = subprocess.run(
        [sys.executable, "-m", "graphdbg", *words], capture_output=True, text=True, check=True, env=blocked
    )
    seconds = "seconds"
    messages = [[line for line in item.stdout.splitlines() if not line.startswith(seconds)] for item in (plain, again)]
    assert messages[0] == messages[1] and again.stderr == plain.stderr
