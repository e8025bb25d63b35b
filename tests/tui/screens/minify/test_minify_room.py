"""The minify screen: the form, a search that is followed while it runs, one that ended, died or is elsewhere; and a
real one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from graphdbg.dumps.process import describe
from graphdbg.minifier.log import live_file
from graphdbg.minifier.minified import Minified
from graphdbg.minifier.progress.watched import Watched
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.room import first_room
from graphdbg.tui.screens.minify.form import MinifyForm
from graphdbg.tui.screens.minify.room import MinifyRoom
from graphdbg.tui.screens.minify.views import VIEWS
from graphdbg.tui.screens.report.room import ReportRoom
from graphdbg.tui.widgets.texts import Lines

from ....dumps.graphs import chain, new_run
from ....minifier.followed import session, steered
from ...stories import key, play, shown, until


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("minified") / "small"
    session(folder)
    return folder


@pytest.fixture
def out(finished: Path, work: Path) -> Path:
    """A finished one in the current folder, which also holds the run."""
    shutil.copytree(finished, work / "small")
    return Path("small")


def line(**event: object) -> str:
    return json.dumps({"time": time.time(), "life": 1, **event}) + "\n"


def lines(app: Workbench) -> list[str]:
    """What the list below the plot has, seen or not."""
    assert app.room is not None
    return [text.plain for text in app.room.query_one("#minify-lines", Lines).texts]


async def to_view(app: Workbench, name: str) -> None:
    room = app.room
    assert isinstance(room, MinifyRoom)
    while VIEWS[room.view].name != name:
        before = room.view
        await key(app, "right_square_bracket", lambda before=before: room.view != before)


def test_a_finished_one_shows_its_result_and_every_view(out: Path) -> None:
    room = first_room("small")
    assert isinstance(room, MinifyRoom)

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.looked.done is not None and room.looked.atoms.nodes, "result and names")
        assert room.watched is not None and room.watched.state == "ended"
        known = room.watched.story
        text = shown(app)
        assert VIEWS[room.view].name == "Result" and f"{known.original[0]} nodes, " in text and "small/case" in text
        assert "ended after" in text and f"nodes   {known.best[0]:>10}{known.original[0]:>12}" in text  # type: ignore[index]
        await to_view(app, "Steps")
        messages = {words[1]: words[2] for row in lines(app)[1:] if len(words := row.split()) > 2}
        assert messages["sanity"] == "2" and messages["verification"] == "3"
        await to_view(app, "History")
        assert len(lines(app)) == len(known.history) and lines(app)[-1].endswith("best")
        await pilot.press("end", "enter")
        assert VIEWS[room.view].name == "Candidate" and lines(app)[0].startswith(f"state {len(known.history) - 1}, ")
        kept = {row.strip() for row in lines(app)[1:]}
        assert kept == {"n7", "n30"}
        await to_view(app, "Queries")
        assert len(lines(app)) == len(known.queries)
        first = next(query.queries for query in known.queries if query.verdict == "pass")
        room.query_one("#minify-lines", Lines).move_to(first - 1)
        await pilot.press("enter")
        assert f"query {first}; beside the original:" in lines(app)[0] and any(
            row.startswith("- n") for row in lines(app)
        )
        await to_view(app, "Log")
        assert any(row.startswith("it fails: ") for row in lines(app))

    play(story, room, size=(160, 50))


def test_one_that_runs_elsewhere_in_this_machine_is_followed_to_its_end(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process (here the test) writes; the screen shows it, rings once at the end and says one line."""
    path = work / "small"
    path.mkdir()
    (path / "process.json").write_bytes(msgspec.json.encode(describe("minify")))
    file = (path / "events.jsonl").open("a", buffering=1)
    file.write(line(event="start", graph="myrun/0_0/forward", out="small", options={"jobs": 1}))
    file.write(line(event="step", step="sanity", queries=0))
    room = MinifyRoom(Here(out="small"))
    bells: list[bool] = []
    messages: list[str] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        monkeypatch.setattr(app, "bell", lambda: bells.append(True))
        monkeypatch.setattr(room, "notify", lambda text, **_: messages.append(text))
        await until(app, lambda: "running: checking that it fails" in shown(app), "the first step")
        query = {
            "event": "query",
            "case": "original",
            "purpose": "sanity",
            "step": "sanity",
            "verdict": "same",
            "seconds": 2.0,
        }
        file.write(line(**query, queries=1, nodes=180, input_bytes=4000, signature="crash in compile"))
        file.write(line(event="step", step="windows", queries=1))
        file.write(line(event="asking", number=2, purpose="search", step="windows", case="0-1", time=time.time() - 6.5))
        printed = live_file(path / ".work", "0-1")
        printed.parent.mkdir(parents=True)
        printed.write_text("compile\none\nthe last line\n")
        await until(app, lambda: "query 2: compile" in shown(app) and "the last line" in shown(app), "its output")
        await until(
            app, lambda: "query 2 runs for 7 s" in shown(app) or "query 2 runs for 8 s" in shown(app), "the query"
        )
        assert "running: looking for the place" in shown(app) and "180 nodes" in shown(app)
        search = {"event": "query", "purpose": "search", "step": "windows", "seconds": 1.0, "input_bytes": 40}
        file.write(line(**search, queries=2, case="0-1", verdict="same", nodes=9, improved=True))
        file.write(line(event="best", queries=2, case="0-1", nodes=9, input_bytes=40, number=1))
        for number in range(3, 9):
            file.write(line(**search, queries=number, case=str(number), verdict="pass", nodes=3))
        file.write(line(**search, queries=9, case="9", verdict="other", nodes=3, signature="another failure"))
        await until(app, lambda: "nothing smaller for 7 queries" in shown(app), "that it takes long")
        assert "60.0 a minute" in shown(app) and "nodes            9         180      5 %" in shown(app)
        await to_view(app, "Other failures")
        assert lines(app) == ["1 time, from 3 nodes on: another failure"]
        await pilot.press("m")
        await until(app, lambda: "there is no case of this failure yet" in shown(app), "why not")
        await pilot.press("escape")
        file.write(
            line(
                event="done", nodes=9, input_bytes=40, original_nodes=180, verified=[3, 3], signature="crash in compile"
            )
        )
        await until(app, lambda: VIEWS[room.view].name == "Result" and room.looked.done is not None, "the result")
        await until(
            app,
            lambda: "verified: the saved case fails the same way in 3 of 3 fresh processes" in shown(app),
            "that it was verified",
        )
        assert bells == [True] and messages == ["small: done after 9 queries"]

    play(story, room, size=(160, 50))
    file.close()


def test_one_key_steers_what_runs_whatever_view_is_in_front(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = work / "small"
    path.mkdir()
    (path / "process.json").write_bytes(msgspec.json.encode(describe("minify")))
    search = {"event": "query", "purpose": "search", "seconds": 1.0, "input_bytes": 40, "signature": "crash in compile"}
    with (path / "events.jsonl").open("w") as file:
        file.write(line(event="start", graph="myrun/0_0/forward", out="small", options={"jobs": 1}))
        file.write(
            line(
                **{**search, "purpose": "sanity"}, step="sanity", case="original", verdict="same", queries=1, nodes=180
            )
        )
        file.write(line(event="step", step="windows", queries=1))
        for number in (1, 2):
            file.write(
                line(**search, step="windows", queries=number + 1, case=str(number), verdict="same", nodes=10 - number)
            )
            file.write(
                line(
                    event="best", queries=number + 1, case=str(number), nodes=10 - number, input_bytes=40, number=number
                )
            )
    room = MinifyRoom(Here(out="small"))
    orders: list[list[str]] = []
    messages: list[str] = []
    monkeypatch.setattr(room, "run_job", lambda words, *_, **__: orders.append(list(words[2:])))
    monkeypatch.setattr(room, "notify", lambda text, **_: messages.append(text))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.watched is not None and len(room.watched.story.history) > 2, "the states")
        assert VIEWS[room.view].name == "Candidate"
        await key(app, "d", lambda: orders[-1:] == [["disable", "windows"]])
        assert messages == ["disable windows, the step that runs. Z takes that back."]
        await until(app, lambda: "asked: disable windows" in shown(app), "what was asked")
        await key(app, "Z", lambda: orders[-1:] == [["enable", "windows"]])
        await key(app, "r", lambda: orders[-1:] == [["restart", "2"]])
        assert messages[-1] == "Searching again from state 2, 8 nodes; what was found stays."
        await to_view(app, "History")
        room.query_one("#minify-lines", Lines).move_to(1)
        await key(app, "enter", lambda: room.looked.number == 1)
        await key(app, "r", lambda: orders[-1:] == [["restart", "1"]])
        count = len(orders)
        await key(app, "P", lambda: VIEWS[room.view].name == "Steps")
        assert len(orders) == count and "P again" in messages[-1]
        under = lines(app)[room.query_one("#minify-lines", Lines).cursor].split()[0]
        await key(app, "P", lambda: orders[-1:] == [["raise", under]])

    play(story, room, size=(160, 50))


@pytest.mark.slow
def test_keys_steer_a_search_that_runs_and_cancelling_keeps_the_best(work: Path) -> None:
    """Each order is asked by a short process, seen as asked, and acknowledged by the search."""
    results: list[Minified] = []
    search = Thread(target=lambda: results.append(steered(work / "small")), daemon=True)
    search.start()
    room = MinifyRoom(Here(graph="myrun/0_0/forward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        room.follow(Watched(Path("small")))
        await until(app, lambda: room.watched is not None and room.watched.story.best, "something smaller")
        assert room.watched is not None
        steers = room.watched.story.steers

        def acknowledged(what: str) -> bool:
            assert room.watched is not None
            return any(
                steer.what.startswith(what) and steer.state == "applied" for steer in room.watched.story.steers.values()
            )

        await pilot.press("space")
        assert "pausing after this query" in shown(app)
        await until(app, lambda: acknowledged("pause") and "paused: space goes on" in shown(app), "the pause")
        await pilot.press("r")
        await until(app, lambda: acknowledged("restart"), "that it begins again")
        await to_view(app, "Steps")
        names = [row.split()[1] if row[0] != " " else row.split()[0] for row in lines(app)[1:]]
        room.query_one("#minify-lines", Lines).move_to(1 + names.index("polish"))
        await pilot.press("d")
        await until(app, lambda: acknowledged("disable") and "(disabled)" in shown(app), "that it is left out")
        assert room.watched.story.steps["polish"].mark == "disabled"
        room.query_one("#minify-lines", Lines).move_to(1 + names.index("sanity"))
        await pilot.press("d")
        await until(app, lambda: "sanity cannot be steered" in shown(app), "the refusal")
        await pilot.press("escape", "space")
        await until(app, lambda: "running: " in shown(app), "that it goes on")
        await pilot.press("x")
        await until(app, lambda: "End the search in small?" in shown(app), "the question")
        await pilot.press("x")
        await until(app, lambda: room.watched is not None and room.watched.state == "ended", "the end")
        await until(app, lambda: "ended after" in shown(app) and "cancelled" in shown(app), "why it ended")
        assert len(steers) <= len(room.watched.story.steers) == 5 and (work / "small" / "case").is_dir()

    play(story, room, size=(100, 40))
    search.join(20)
    assert results[0].stopped == "cancelled" and results[0].nodes < results[0].original[0]


def test_what_died_says_so_and_r_resumes_it(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    record = msgspec.structs.replace(describe("minify"), pid=gone.pid, start_ticks=1)
    (out / "process.json").write_bytes(msgspec.json.encode(record))
    events = (out / "events.jsonl").read_bytes().splitlines(keepends=True)
    (out / "events.jsonl").write_bytes(b"".join(events[:-1]))
    room = MinifyRoom(Here(out="small"))
    begun: list[list[str]] = []
    monkeypatch.setattr(room, "run", lambda words, path: begun.append(words))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "died at query" in shown(app) and "R resumes" in shown(app), "that it died")
        assert not room.can("minify.skip") and room.can("minify.resume")
        await pilot.press("S")
        await until(app, lambda: "the search has ended" in shown(app), "why not")
        await pilot.press("escape", "R")
        assert begun == [["minify", "--resume", "-o", "small", "--json"]] and room.equivalent() == ["steer", "small"]

    play(story, room)


def test_one_on_another_host_is_only_watched(out: Path) -> None:
    record = msgspec.structs.replace(describe("minify"), host="elsewhere")
    (out / "process.json").write_bytes(msgspec.json.encode(record))
    events = (out / "events.jsonl").read_bytes().splitlines(keepends=True)
    (out / "events.jsonl").write_bytes(b"".join(events[:-1]))
    room = MinifyRoom(Here(out="small"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "on another host: it can be watched only" in shown(app), "where it runs")
        for pressed, why in {"x": "it runs on another host", "R": "the search cannot be resumed from here"}.items():
            await pilot.press(pressed)
            await until(app, lambda why=why: why in shown(app), why)
            await pilot.press("escape")

    play(story, room)


def test_a_folder_that_vanishes_is_said_and_the_screen_goes_on(out: Path) -> None:
    room = MinifyRoom(Here(out="small"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "ended after" in shown(app), "the result")
        shutil.rmtree(out)
        await until(app, lambda: "the folder is gone; what was read is still shown" in shown(app), "that it is gone")
        await to_view(app, "History")
        assert len(lines(app)) > 1

    play(story, room)


def test_a_folder_that_is_no_minification_is_a_panel_with_the_fix(work: Path) -> None:
    room = MinifyRoom(Here(out="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "myrun is not the folder of a minification" in shown(app), "the panel")
        assert "graphdbg minify RUN/ID -o OUT" in shown(app)

    play(story, room)


def test_the_form_says_the_command_and_what_is_wrong_with_it(work: Path) -> None:
    room = MinifyRoom(Here(graph="myrun/0_0/forward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(
            app, lambda: "$ graphdbg minify myrun/0_0/forward -o minified-forward --json" in shown(app), "the command"
        )
        assert room.equivalent() == ["minify", "myrun/0_0/forward", "-o", "minified-forward", "--json"]
        await pilot.press("tab")
        assert isinstance(room.focused, Input) and room.focused.id == "form-rung"
        await pilot.press(*"x")
        await until(app, lambda: "there is no rung 'inductorx'" in shown(app), "what is wrong")
        await pilot.press("enter")
        await until(app, lambda: "start failed" in shown(app), "the panel")
        await pilot.press("escape", "backspace", "tab", "ctrl+a", "ctrl+k", *"crash")
        await until(app, lambda: "-o minified-forward --check crash --json" in shown(app), "the command")
        assert room.watched is None and not app.jobs

    play(story, room)


def test_nothing_of_what_matters_is_cut_off_at_any_size(out: Path) -> None:
    room = MinifyRoom(Here(out="small"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.looked.done is not None and "Result" in shown(app), "the result")
        for size in [(60, 20), (80, 24), (160, 50), (250, 80), (60, 20)]:
            await pilot.resize_terminal(*size)
            await until(
                app, lambda size=size: room.size == size and " nodes│" in shown(app) and "●" in shown(app), f"{size}"
            )
            text = shown(app)
            assert "ended after" in text and "●" in text and all(view.name in text for view in VIEWS)
            assert all(len(row) <= size[0] for row in lines(app))
        await pilot.press("z")
        await until(app, lambda: " nodes│" not in shown(app), "the list alone")

    play(story, room)


@pytest.mark.slow
def test_a_real_one_is_begun_left_attached_to_and_reported(work: Path) -> None:
    """The form starts a process; the workbench is left, another one follows it to its end and shows its report."""
    _, process = new_run(Path("long"))
    process.save_graph(chain(nodes=10))
    process.close()
    begin = MinifyRoom(Here(graph="long/0_0/forward"))

    async def start(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "$ graphdbg minify" in shown(app), "the form")
        form = begin.query_one(MinifyForm)
        form.query_one("#form-check", Input).value = "cmd: ! grep -q sin_3 {case}/graph.json"
        form.query_one("#form-out", Input).value = "small"
        await until(app, lambda: "grep -q sin_3" in shown(app), "the command")
        await pilot.press("enter")
        await until(app, lambda: begin.watched is not None and begin.watched.state == "running", "that it runs")
        await pilot.press("q")
        await until(app, lambda: "leave them running" in shown(app), "what becomes of it")
        await pilot.press("b")

    play(start, begin)
    again = first_room("small")
    assert isinstance(again, MinifyRoom)

    async def attach(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: again.watched is not None and again.watched.state == "ended", "its end", 120)
        await until(
            app, lambda: again.looked.done is not None and again.looked.done["repro_path"] is not None, "the result"
        )
        await until(app, lambda: "10 nodes, 24 B of inputs -> 3 nodes" in shown(app), "the size")
        assert again.watched is not None and again.watched.story.best is not None and again.watched.story.best[0] == 3
        await to_view(app, "History")
        await pilot.press("end", "enter")
        assert [row.split("  ")[1] for row in lines(app)[1:] if "aten.sin" in row] == [
            "sin_3 = aten.sin.default(sin_2)"
        ]
        await pilot.press("6")
        there = "Report small: repro.py reproduces the bug"
        await until(app, lambda: isinstance(app.room, ReportRoom) and there in shown(app), "the report")

    play(attach, again, size=(120, 40))
