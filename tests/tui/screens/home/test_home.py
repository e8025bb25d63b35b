"""Home on real folders: what is listed, where the cursor stands, and that whatever is damaged or gone is a line that
says so."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from graphdbg.dumps.browse.listing import ListingLine, filtered
from graphdbg.dumps.schema import DefinitionRecord
from graphdbg.toolkit.verdicts.verdict import Where, fails
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.job_files import look, new_folder
from graphdbg.tui.jobs import Job
from graphdbg.tui.room import first_room
from graphdbg.tui.screens.home.line import HomeColumns
from graphdbg.tui.screens.home.preview import Overview
from graphdbg.tui.screens.home.room import HomeRoom
from graphdbg.tui.screens.minify.room import MinifyRoom
from graphdbg.tui.widgets.trouble import NotePanel

from ....dumps.graphs import chain, new_run
from ...stories import play, shown, until


def listed(home: HomeRoom) -> list[tuple[str, str, str]]:
    return [(line.kind, line.name, line.status) for line in home.lines]


def test_home_begins_at_the_failed_graph_and_says_what_to_do(work: Path) -> None:
    home = HomeRoom(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and home.lines, "the list")
        graphs = [("graph", "0_0/joint", "ran"), ("graph", "0_0/forward", "failed")]
        assert listed(home) == [("run", "myrun", ""), ("compile", "0_0", "failed"), *graphs]
        assert home.line is not None
        assert home.line.name == "0_0/forward"
        assert home.here == Here(run="myrun", graph="myrun/0_0/forward")
        text = shown(app)
        assert "0_0/forward: LoweringException. t triage · 5 shrink" in text
        assert "✗ failed" in text
        assert "1.25" in text
        await until(pilot, lambda: "    1  LoweringException" in shown(app), "the number of kernels")
        await pilot.press("k")
        assert home.here.graph == "myrun/0_0/joint"
        await pilot.press("exclamation_mark")
        assert home.here.graph == "myrun/0_0/forward"
        await pilot.press("enter")
        assert app.room is not None
        assert (app.room.ROOM, app.room.here.graph) == ("graph", "myrun/0_0/forward")

    play(story, home, size=(120, 30))


def test_filter_fold_and_why(work: Path) -> None:
    home = HomeRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and home.lines, "the list")
        await pilot.press("f", *"-ran")
        assert [name for _, name, _ in listed(home)] == ["myrun", "0_0", "0_0/forward"]
        assert "1 of 1 compile" in shown(app)
        assert home.equivalent() == ["ls", "myrun", "--filter", "-ran"]
        await pilot.press("space", *"xyz")
        assert home.lines == []
        assert "nothing has all of these words: -ran xyz" in shown(app)
        await pilot.press("escape")
        assert len(home.lines) == 4
        await pilot.press("home", "space")
        assert listed(home) == [("run", "myrun", "")]
        await pilot.press("enter")
        assert len(home.lines) == 4
        await pilot.press("w")
        panel = home.query_one(NotePanel)
        await until(pilot, lambda: "Nothing says why these graphs exist" in panel.text, "why")
        await pilot.press("escape")
        assert not panel.shown
        assert home.rows.has_focus

    play(story, home)


def test_an_empty_folder_says_how_to_begin(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = HomeRoom(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked, "the look")
        assert "graphdbg dump -o myrun train.py · F1 tour" in shown(app)
        await pilot.press("enter")
        assert app.troubles[-1].error.what == "nothing is listed"

    play(story, home, size=(140, 30))


def test_damaged_runs_processes_and_journals_are_lines_and_all_else_is_listed(work: Path) -> None:
    shutil.copytree("myrun", "broken")
    Path("broken/run.json").write_text('{"format": 1, "comm')
    shutil.copytree("myrun", "torn")
    journal = next(Path("torn").glob("*/journal.jsonl"))
    journal.write_bytes(b"\xff\xfenonsense\n" + journal.read_bytes() + b'{"t":1,"ki')
    next(Path("torn").glob("*/process.json")).write_text("[]")
    Path("bad.zip").write_text("no archive")
    home = HomeRoom(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and len(home.lines) > 4, "the list")
        lines = {line.name: line for line in home.overview.lines}
        assert lines["broken"].status == "damaged"
        assert "the file is cut off" in lines["broken"].text
        notes = [line.name for line in home.overview.lines if line.kind == "note" and line.bad]
        assert any("line 1: damaged and skipped" in note for note in notes)
        assert any("process.json" in note for note in notes)
        assert sum(line.kind == "graph" for line in home.overview.lines) == 4
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.name == "bad.zip"))
        await pilot.press("enter")
        await until(pilot, lambda: app.troubles, "the panel")
        assert "bad.zip" in app.troubles[-1].text
        await pilot.press("escape")
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.name == "broken"))
        await pilot.press("enter")
        assert "broken cannot be opened" in app.troubles[-1].text

    play(story, home)


def test_a_run_that_vanishes_is_told_and_one_that_comes_is_listed(work: Path) -> None:
    home = HomeRoom(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and home.lines, "the list")
        await pilot.press("k")
        shutil.move("myrun", "elsewhere")
        await until(pilot, lambda: "✗ vanished" in shown(app) and "elsewhere" in shown(app), "the news")
        assert home.line is not None
        assert home.line.target == "myrun/0_0/joint"
        assert not app.troubles
        await pilot.press("ctrl+r", "j", "w", "escape", "escape")
        assert app.is_running

    play(story, home)


def test_processes_that_died_and_what_was_left_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, first = new_run(Path("myrun"))
    for rank in range(2):
        process = run.process(rank=rank)
        process.save_graph(chain("0_0/forward"))
        process.journal.event("compiling", graph="0_0/forward")
        (process.path / "exit.json").write_text(f'{{"format": 1, "pid": 1, "code": {-9 if rank else 0}}}')
        process.journal.close()
    first.journal.event("left_out", graph="9_0/forward", reason="--max-disk 8000000")
    first.close()
    home = HomeRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and home.lines, "the list")
        messages = {line.name: line for line in home.lines if line.kind == "process"}
        assert [line.status for line in messages.values()] == ["ended", "killed", "ended"]
        assert "SIGKILL" in next(line.text for line in messages.values() if line.bad)
        assert [line.status for line in home.lines if line.kind == "compile"] == ["compiling, died"] * 2
        assert any("left out: 1 graph by --max-disk 8000000" in line.name for line in home.lines)

    play(story, home)


def test_packed_runs_minifications_and_jobs_are_listed_and_opened(work: Path) -> None:
    pack_here()
    Path("out").mkdir()
    Path("out/events.jsonl").write_text('{"event":"conditions"}\n')
    job = Job(["ls", "not there"])
    assert job.wait(20)
    home = HomeRoom(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: home.looked and any(line.kind == "job" for line in home.lines), "the list")
        assert ("out", "out", "starting") in listed(home)
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.kind == "job"))
        assert "ended with exit code 2" in shown(app)
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.kind == "section"))
        assert "shows its nodes" not in shown(app)
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.kind == "job"))
        await pilot.press("enter")
        await until(pilot, lambda: "neither a run" in home.query_one(NotePanel).text, "what the job said")
        await pilot.press("escape", "x")
        assert "it is not running: ended" in app.troubles[-1].text
        await pilot.press("escape")
        home.rows.move_to(next(place for place, line in enumerate(home.lines) if line.name == "bug.zip"))
        await pilot.press("enter")
        await until(
            pilot, lambda: any(line.target == "bug.zip/0_0/forward" for line in home.lines), "the packed run's compiles"
        )

    play(story, home)


def test_what_became_of_a_job_is_seen_behind_a_long_command_line() -> None:
    words = "graphdbg replay myrun/0_0_a1/forward --values --rung inductor --device cpu --json-lines"
    line = ListingLine("job 1", "job", words, 1, status="ended", text="2 min ago, ended with exit code 1", bad=True)
    for width in (60, 80, 250):
        text = "".join(part for part, _ in HomeColumns.of([line], width).parts(line, folded=False))
        assert cell_len(text) < width or width == 60
        assert "✗ ended  2 min ago" in text[:width]
        assert ("…" in text) == (width < 250)


def test_the_age_of_a_run_that_does_not_change_goes_on(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overview = Overview("myrun")
    assert overview.look()
    record = overview.runs["myrun"].record
    assert record is not None
    msgspec.structs.force_setattr(record, "started", time.time())
    assert overview.look()
    before = overview.lines
    later = time.time() + 3 * 86400
    monkeypatch.setattr("graphdbg.dumps.browse.listing.time.time", lambda: later)
    assert overview.look()
    assert overview.lines[0].text != before[0].text and overview.lines[1:] == before[1:]
    assert not overview.look()


def pack_here() -> None:
    import click.testing

    from graphdbg.dumps.commands.pack import pack as command

    done = click.testing.CliRunner().invoke(command, ["myrun", "-o", "bug.zip"])
    assert done.exit_code == 0, done.output


def test_a_running_job_is_stopped_and_a_killed_one_says_so(work: Path) -> None:
    jobs = [Job(["ls", name, "--follow"]) for name in ("never", "nowhere")]
    home = HomeRoom(Here())

    def stands_on(name: str) -> bool:
        place = next((place for place, line in enumerate(home.lines) if line.kind == "job" and name in line.name), None)
        if place is not None:
            home.rows.move_to(place)
        return place is not None and home.line is not None and home.line.status == "running"

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: all(job.said for job in jobs) and stands_on("never"), "the running job")
        await pilot.press("x")
        await until(app, lambda: not jobs[0].running, "its end")
        process = look(jobs[1].folder).record.process
        assert process is not None
        os.killpg(process.pid, signal.SIGKILL)
        await until(
            app, lambda: any(line.status == "gone" and line.bad for line in home.lines), "that the other one is gone"
        )
        assert not app.troubles

    play(story, home)


def test_what_target_may_be(work: Path) -> None:
    pack_here()
    Path("out").mkdir()
    Path("out/events.jsonl").write_text("")
    assert isinstance(first_room(None), HomeRoom)
    assert first_room("myrun").here == Here(run="myrun")
    assert first_room("myrun/0_0/forward").here == Here(run="myrun", graph="myrun/0_0/forward")
    assert first_room("bug.zip").here == Here(run="bug.zip")
    assert first_room("bug.zip/0_0/forward").here == Here(run="bug.zip", graph="bug.zip/0_0/forward")
    assert isinstance(first_room("out"), MinifyRoom)


def test_the_filter_finds_a_run_by_its_name_and_command() -> None:
    run = ListingLine("run died", "run", "died", text="2 graphs · 1 failed · train.py --plant accuracy", folds=True)
    graph = ListingLine("g", "graph", "0_0/forward", 1, status="ran")
    for words, result in {
        "died": True,
        "accuracy": True,
        "died ran": True,
        "failed": False,
        "-ran died": False,
    }.items():
        assert (graph in filtered([run, graph], words)) is result, words


def test_below_the_list_stands_what_is_known_of_the_line(work: Path) -> None:
    """The error in full, the user's line, the verdict with its next commands; z makes it larger or hides it."""
    Path("train.py").write_text("import torch\n\n\ndef f(x):\n    return x.sin()\n")
    run = next(Path("myrun").glob("*/journal.jsonl"))
    frame = f'  File "{Path("train.py").absolute()}", line 5, in f\n    return x.sin()\n'
    line = {"t": time.time(), "kind": "failed", "graph": "0_0/forward", "type": "LoweringException"}
    error = {**line, "message": f"no lowering\n  target: sin\n  more\nFound from :\n{frame}"}
    with run.open("ab") as journal:
        journal.write(msgspec.json.encode(error) + b"\n")
    from graphdbg.dumps.sources import SourceWriter

    assert SourceWriter(run.parent).keep(str(Path("train.py").absolute()), Path("train.py").read_text())
    home = HomeRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: ">    5      return x.sin()" in shown(app), "the user's line")
        text = shown(app)
        assert "train.py:5 in f" in text and "     4  def f(x):" in text
        assert "t  judge it at every rung  graphdbg triage myrun/0_0/forward" in text
        assert "target: sin" in text, "the whole error"
        await pilot.press("z")
        await until(app, lambda: home.below.size.height > 20, "more of it")
        await pilot.press("z")
        await until(app, lambda: "judge it at every rung" not in shown(app), "the list alone")
        await pilot.press("z")
        await until(app, lambda: "judge it at every rung" in shown(app), "both")
        words = ["triage", "myrun/0_0/forward", "--import", "ops", "--json-lines"]
        verdict = fails("wrong_numbers", "inductor", "relative error 2", Where("sin", line="train.py:5"))
        messages = {"event": "end", "first_failing": "inductor", "graph": "myrun/0_0/forward", **verdict.flat()}
        folder, _ = new_folder(words, passing=False)
        (folder / "out").write_bytes(msgspec.json.encode(messages) + b"\n")
        (folder / "exit").write_text("1")
        await until(app, lambda: "FAILS: wrong numbers at sin, train.py:5" in shown(app), "the verdict")
        assert "graphdbg minify myrun/0_0/forward --import ops" in shown(app)
        assert any(line.kind == "section" and line.name == "jobs" for line in home.lines)
        await pilot.resize_terminal(100, 16)
        await until(
            app, lambda: "judge it" not in shown(app) and "0_0" in shown(app), "the list alone where there is no room"
        )

    play(story, home, size=(120, 40))


def test_what_a_run_brings_is_run_once_it_is_trusted(work: Path) -> None:
    """A graph with an operator of its program's own: the key is named first, then every command has --trust."""
    _, process = new_run(Path("own"))
    graph = chain("0_0/forward")
    graph.definitions = [DefinitionRecord("__main__", "train.py", "import torch\n", ["acme"])]
    process.save_graph(graph)
    process.close()
    home = HomeRoom(Here(run="own"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "U  first: run its own source, too" in shown(app), "the key")
        await pilot.press("U")
        await until(app, lambda: "graphdbg triage own/0_0/forward --trust" in shown(app), "the flag")
        assert "trusted: U" in shown(app) and "U  first" not in shown(app)
        job = home.run_job(["replay", "own/0_0/none"], lambda *ended: None, doing="test")
        assert job.words == ["replay", "own/0_0/none", "--trust"]
        assert app.as_trusted(["show", "own/0_0/forward"]) == ["show", "own/0_0/forward"]
        assert app.as_trusted(["triage", "own2"]) == ["triage", "own2"], "another run"
        job.stop()
        await pilot.press("U")
        assert app.as_trusted(["triage", "own"]) == ["triage", "own"]

    play(story, home, size=(120, 40))


def test_a_search_stands_under_its_run_and_its_job_is_not_told_twice(work: Path) -> None:
    Path("small").mkdir()
    start = {"event": "start", "graph": "myrun/0_0/forward", "out": "small", "options": {}, "time": time.time()}
    Path("small/events.jsonl").write_bytes(msgspec.json.encode(start) + b"\n")
    for words in (["minify", "myrun/0_0/forward", "-o", "small"], ["bisect", "myrun/0_0/joint", "--json"]):
        folder, _ = new_folder(words, passing=False)
        (folder / "exit").write_text("0")
    overview = Overview("myrun")
    overview.look()
    messages = [(line.kind, line.depth, line.name) for line in overview.lines]
    assert messages[:3] == [("run", 0, "myrun"), ("out", 1, "small"), ("compile", 1, "0_0")]
    assert messages[-2:] == [("section", 1, "jobs"), ("job", 2, "graphdbg bisect myrun/0_0/joint --json")]


def test_a_search_that_its_time_ended_is_stopped_and_not_finished(work: Path) -> None:
    graph, stopped = "/elsewhere/run/0_0/forward", "70 s have passed (--max-time 90)"
    for name, ended in (("early", {"stopped": stopped}), ("whole", {})):
        Path(name).mkdir()
        events = [{"event": "start", "graph": graph, "out": name, "options": {}}, {"event": "done", **ended}]
        Path(name, "events.jsonl").write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    overview = Overview(None)
    overview.look()
    statuses = {line.name: line.status for line in overview.lines if line.kind == "out"}
    assert statuses == {"early": "stopped", "whole": "finished"}
    assert all(line.text.startswith(graph) for line in overview.lines if line.kind == "out")


def test_only_cells_that_changed_are_painted(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = HomeRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: home.looked and "0_0" in shown(app), "the list")
        await pilot.pause(0.3)
        painted: list[tuple[object, ...]] = []
        monkeypatch.setattr(home.rows, "refresh", lambda *regions, **_: painted.append(regions))
        home.show_lines()
        assert painted == []
        home.lines[2].nodes = 7
        home.rows.repaint_changed()
        assert [(region.width, region.height) for (region,) in painted] == [(1, 1)]  # type: ignore[attr-defined]

    play(story, home, size=(120, 40))
