"""What every screen has: help, palette, the command line, copies, the editor, themes, leaving, sizes."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from graphdbg.dumps.errors import EnvironmentLackError
from graphdbg.dumps.tables import cut
from graphdbg.tui import outside
from graphdbg.tui.app import LOOK_AGAIN_S, Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.jobs import Job
from graphdbg.tui.outside import command
from graphdbg.tui.registry import of_room
from graphdbg.tui.room import Room
from graphdbg.tui.screens.help import Help
from graphdbg.tui.screens.picking import CommandLine
from graphdbg.tui.sheet import Choose
from graphdbg.tui.widgets.crumbs import Crumbs

from .stories import ROOMS, key, play, room_of, shown, until

SIZES = [(60, 20), (80, 24), (100, 30), (160, 50), (250, 80)]


@pytest.mark.long
@pytest.mark.parametrize("name", ROOMS)
def test_every_size_shows_where_we_are_and_where_all_keys_are(name: str, work: Any) -> None:
    room = ROOMS[name]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for size in [*SIZES, (40, 10), *reversed(SIZES)]:
            await pilot.resize_terminal(*size)
            await until(app, lambda size=size: room.size == size and shown(app).count("\n") + 1 == size[1], f"{size}")
            lines = shown(app).split("\n")
            if size == (40, 10):
                await until(app, lambda: "40×10: some does not fit" in shown(app), "the hint")
            else:
                assert f" {room.ROOM.capitalize()}" in lines[0], lines[0]
                assert "? all" in lines[-1], lines[-1]
        assert app.troubles == []

    play(story, room, size=(60, 20))


def test_the_footer_has_only_whole_keys_and_a_click_does_them(work: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        last = shown(app).split("\n")[-1]
        labels = [action.label for action in of_room("home") if action.footer and action.label != "help"]
        there = [label for label in labels if f" {label} " in last]
        assert len(there) > 0 and there == labels[: len(there)]
        await pilot.click("#keys", offset=(last.index("? all") + 1, 0))
        await until(app, lambda: isinstance(app.screen, Help), "help")

    play(story, ROOMS["home"](), size=(60, 20))


def test_help_is_filtered_as_you_type_and_esc_closes_it(work: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "question_mark", lambda: isinstance(app.screen, Help))
        await pilot.press(*"smallest")
        await until(
            app, lambda: "Shrink the graph" in shown(app) and "The nodes of the graph" not in shown(app), "the row"
        )
        await key(app, "escape", lambda: app.screen is app.room)

    play(story, ROOMS["home"]())


def test_the_palette_finds_an_action_by_letters_of_its_name_and_does_it(work: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "ctrl+p", lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"them")
        await until(app, lambda: "theme" in shown(app), "the hit")
        await pilot.press("enter")
        await until(app, lambda: app.theme == "graphdbg-light", "the light theme")

    play(story, ROOMS["home"]())


def test_the_palette_without_a_hit_takes_the_keys_of_a_page(work: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "ctrl+p", lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"zzqq", "pageup", "pagedown", "escape")
        await until(app, lambda: app.screen is app.room, "the room again")
        assert not app.troubles

    play(story, ROOMS["home"]())


@pytest.mark.parametrize("name", ROOMS)
def test_the_command_line_of_every_room_is_one_that_graphdbg_takes(name: str, work: Any) -> None:
    import shlex

    import click

    from graphdbg.cli import graphdbg

    room = ROOMS[name]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "at", lambda: isinstance(app.screen, CommandLine))
        front = app.screen
        assert isinstance(front, CommandLine)
        program, name, *words = shlex.split(front.lines[0])
        assert program == "graphdbg"
        result = graphdbg.get_command(click.Context(graphdbg), name)
        assert result is not None
        result.make_context(name, list(words))  # raises where an option or a number of words is wrong
        await pilot.press("y")
        assert Path(os.environ["XDG_STATE_HOME"], "graphdbg/copies/command.txt").read_text() == front.lines[0]
        assert app.clipboard == front.lines[0]

    play(story, room)


def test_a_copy_goes_to_the_terminal_and_to_a_file_and_says_so(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        wrote: list[str] = []
        assert app._driver is not None
        monkeypatch.setattr(app._driver, "write", wrote.append)
        app.copy("α graph", "myrun/0_0/forward")
        assert f"\x1b]52;c;{base64.b64encode('α graph'.encode()).decode()}\a" in wrote
        path = Path(os.environ["XDG_STATE_HOME"], "graphdbg/copies/myrun-0_0-forward.txt")
        assert path.read_text() == "α graph"
        await until(app, lambda: len(app._notifications) == 1, "the note")
        (note,) = app._notifications
        assert note.message == f"Copied. Also saved to {path}"
        assert app.export("one", "node").name == "node.txt" and app.export("two", "node").name == "node-2.txt"

    play(story, ROOMS["home"]())


def test_tmux_is_asked_where_we_are_inside_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tmux"
    fake.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/words; cat > {tmp_path}/text\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not outside.to_tmux("no tmux around us")
    monkeypatch.setenv("TMUX", "socket,1,0")
    assert outside.to_tmux("the text")
    assert ((tmp_path / "words").read_text(), (tmp_path / "text").read_text()) == ("load-buffer|-w|-|", "the text")


def test_a_copy_that_has_no_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/proc/nowhere")
    with pytest.raises(EnvironmentLackError, match="no file was written"):
        outside.keep("text", "name")


def test_editors_get_the_line_their_way() -> None:
    path = Path("a b.py")
    assert command("vim -p", path, 7) == ["vim", "-p", "+7", "a b.py"]
    assert command("/usr/bin/code -n", path, 7) == ["/usr/bin/code", "-n", "--wait", "--goto", "a b.py:7"]
    assert command("hx", path, 7) == ["hx", "a b.py:7"]


def test_without_an_editor_the_panel_has_the_place(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room = ROOMS["home"]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        (work / "model.py").write_text("x = 1\n")
        room.guarded(lambda: app.edit(work / "model.py", 12), doing="edit")
        assert room.panel is not None and f"{work}/model.py:12" in room.panel.text and "EDITOR" in room.panel.text
        monkeypatch.setenv("EDITOR", "vi")
        room.guarded(lambda: app.edit(work / "model.py", 13), doing="edit")  # a headless driver lends no screen
        assert "model.py:13" in room.panel.text and "cannot be shown over this screen" in room.panel.text

    play(story, room)


def test_the_theme_is_remembered_and_one_that_cannot_be_is_told_once(work: Any, own_homes: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "T", lambda: app.theme == "graphdbg-light")
        await key(app, "f2", lambda: app.theme.startswith("ansi"))

    play(story, ROOMS["home"]())
    assert json.loads((own_homes / "config/graphdbg/tui.json").read_text())["theme"] == "ansi"

    async def again(pilot: Pilot[None], app: Workbench) -> None:
        assert app.theme.startswith("ansi")
        (own_homes / "config/graphdbg/tui.json").unlink()
        (own_homes / "config/graphdbg").rmdir()
        (own_homes / "config/graphdbg").write_text("in the way")
        await key(app, "T", lambda: app.theme == "graphdbg-dark")
        room = app.room
        assert room is not None and room.panel is not None
        await until(app, lambda: "not remembered" in room.panel.text, "the panel")
        await key(app, "escape", lambda: not room.panel.shown)
        await key(app, "T", lambda: app.theme == "graphdbg-light")
        assert not room.panel.shown

    play(again, ROOMS["home"]())


def test_no_color_leaves_none(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for strip in app.screen._compositor.render_strips():
            for segment in strip.apply_filter(app._filters[0], app.screen.background_colors[1]):
                for color in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    assert color is None or color.triplet is None or len(set(color.triplet)) == 1, segment

    play(story, ROOMS["home"]())


class Asleep:
    """Commands that sleep instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "graphdbg.tui.jobs.command_of", lambda words: [sys.executable, "-c", "import time; time.sleep(60)"]
        )


def test_a_job_that_ends_while_it_is_asked_about_lets_us_leave(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a minification that is done and only tidies up."""
    Asleep(monkeypatch)
    job = Job(["ls", "myrun", "--follow"])

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.jobs.add(job)
        await key(app, "q", lambda: isinstance(app.screen, Choose))
        job.stop()
        await until(app, lambda: not app.is_running, "the end", limit_s=30)

    play(story, room_of("home", Here(run="myrun")))
    assert job.wait(20)


@pytest.mark.parametrize("leave", ["q", "ctrl+q", "ctrl+c"])
def test_leaving_asks_what_becomes_of_jobs(leave: str, work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Asleep(monkeypatch)
    job = Job(["triage", "myrun/0_0/forward"])

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.jobs.add(job)
        app.tell_where()
        await until(app, lambda: "1 running" in shown(app), "the badge")
        await key(app, leave, lambda: isinstance(app.screen, Choose))
        await until(app, lambda: "graphdbg triage myrun/0_0/forward" in shown(app), "its line")
        await key(app, "escape", lambda: app.screen is app.room)
        assert app.is_running and job.running
        await key(app, leave, lambda: isinstance(app.screen, Choose))
        await key(app, "b" if leave == "q" else "s", lambda: not app.is_running)

    try:
        play(story, ROOMS["home"]())
        assert job.running if leave == "q" else job.wait(20)
    finally:
        job.kill()


def test_ctrl_c_alone_says_how_to_leave_and_q_leaves(work: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "ctrl+c", lambda: any("Press q" in note.message for note in app._notifications))
        await key(app, "q", lambda: not app.is_running)

    assert play(story, ROOMS["home"]()).return_code == 0


class Typing(Room):
    """A room with a text."""

    ROOM = "nowhere"

    def content(self) -> Any:
        yield Input()

    def equivalent(self) -> list[str]:
        return ["ls"]


def test_q_in_a_text_is_a_letter_and_esc_leaves_the_text(work: Any) -> None:
    room = Typing(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        room.query_one(Input).focus()
        await pilot.press("q", "1", "E", "M")
        assert room.query_one(Input).value == "q1EM" and app.is_running
        await key(app, "escape", lambda: room.focused is None)
        assert app.room is room

    play(story, room)


def test_a_key_right_after_enter_goes_where_enter_led(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home: Any = ROOMS["home"]()
    submitted = type(home).on_input_submitted

    async def slowly(room: Room, event: Input.Submitted) -> None:
        await asyncio.sleep(1.5 * LOOK_AGAIN_S)  # as on a busy machine
        submitted(room, event)

    monkeypatch.setattr(type(home), "on_input_submitted", slowly)

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        room: Any = app.room
        await until(pilot, lambda: room.lines, "the list")
        for name in ("f", "o", "enter", "z", "f", "0", "enter", "z"):
            app.post_message(events.Key(name, name if len(name) == 1 else None))
        await until(pilot, lambda: room._zoom == "none", "both z")
        assert room.words == "0"  # the field is typed over

    play(story, home)


def test_rooms_stay_as_they_were_left_and_esc_goes_back_the_way_we_came(work: Any) -> None:
    home, graph = ROOMS["home"](), ROOMS["graph"]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        app.go("graph", graph.here)
        await until(app, lambda: type(app.screen) is type(graph) and app.room.is_current, "graph")
        first = app.room
        await key(app, "4", lambda: app.room is not None and app.room.ROOM == "replay")
        await key(app, "2", lambda: app.room is first)
        await key(app, "1", lambda: app.room is home)
        await key(app, "escape", lambda: app.room is first)
        await key(app, "escape", lambda: app.room is not None and app.room.ROOM == "replay")
        for _ in range(20):  # many graphs: the rooms seen longest ago are let go
            app.go("graph", Here(run="myrun", graph=f"myrun/0_0/{'joint' if _ % 2 else 'forward'}", out=str(_)))
            await until(app, lambda: app.room.is_current, "the next")
        assert len(app.visits) == 12

    play(story, home)


def test_no_graph_says_how_to_choose_one(work: Any) -> None:
    room = Typing(Here())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        room.set_focus(None)
        for name in "23456":
            await key(app, name, lambda: room.panel is not None and room.panel.shown)
            assert "no graph is chosen" in room.panel.text and "1 for Home" in room.panel.text
            await key(app, "escape", lambda: not room.panel.shown)

    play(story, room)


def test_long_paths_lose_their_beginning() -> None:
    assert cut("home › myrun/0_0/forward", 12, "start") == "…0_0/forward"
    assert [cut("abc", width, "start") for width in (3, 2, 1, 0)] == ["abc", "…c", "…", ""]
    assert Crumbs().parts == ()


def test_room_of_names_them_all() -> None:
    assert {room_of(name, Here()).ROOM for name in ROOMS} == set(ROOMS)


def test_copies_are_for_their_owner_alone_in_a_shared_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = outside.keep("text", "name")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
