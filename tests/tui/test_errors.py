"""Whatever raises, wherever: a panel says so, and the workbench goes on."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from textual import events
from textual.message import Message
from textual.pilot import Pilot
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from graphdbg.dumps.errors import UsageError
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.registry import of_room
from graphdbg.tui.room import Room
from graphdbg.tui.screens.broken import Broken
from graphdbg.tui.screens.home.room import HomeRoom
from graphdbg.tui.widgets.trouble import ShownError, described

from .stories import ROOMS, key, play, shown, until


class Boom(Exception):
    """What nobody foresaw."""


def panel_says(app: Workbench, text: str) -> bool:
    """Whether the panel in front is open and holds a text."""
    panel = app.room.panel if app.room else None
    return panel is not None and panel.shown and text in panel.text


@pytest.mark.long
@pytest.mark.parametrize("name", ROOMS)
def test_an_action_that_raises_opens_the_panel_and_the_next_key_works(
    name: str, work: Any, monkeypatch: pytest.MonkeyPatch, no_defect: list[ShownError]
) -> None:
    room = ROOMS[name]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for action in of_room(name):
            if room.typing:
                room.set_focus(None)

            def raising(*given: object, what: str = action.id) -> None:
                raise Boom(f"in {what}")

            with monkeypatch.context() as patch:
                patch.setattr(room, action.method, raising, raising=False)
                for item in (
                    name for name in action.keys if name != "ctrl+q"
                ):  # that one comes from anywhere, not from the room
                    await key(app, item, lambda what=action.id: panel_says(app, f"in {what}"))
                    room.panel.hide()  # type: ignore[union-attr]
                await key(app, action.keys[0], lambda what=action.id: panel_says(app, f"in {what}"))
            assert app.is_running
            await key(app, "escape", lambda: room.panel is not None and not room.panel.shown)
            assert app.room is room
        await pilot.press("question_mark")
        await until(pilot, lambda: app.screen is not room, "help")

    play(story, room)
    assert {str(item.error) for item in no_defect} == {f"in {action.id}" for action in of_room(name)}
    no_defect.clear()


class Poke(Message):
    """Makes a widget raise in its handler."""


class Fragile(Widget):
    """Raises where it is told to."""

    can_focus = True
    DEFAULT_CSS = "Fragile { height: 3; }"

    def __init__(self, where: str = "") -> None:
        super().__init__()
        self.where = where
        self.moved = 0

    def render_line(self, y: int) -> Strip:
        if self.where == "render_line":
            raise Boom("in render_line")
        return Strip.blank(self.size.width)

    def on_poke(self) -> None:
        raise Boom("in a handler")

    def on_key(self, event: events.Key) -> None:
        if event.key == "j":
            self.moved += 1
        if event.key == "k":
            raise Boom("in a key")

    def compose(self) -> Any:
        if self.where == "compose":
            raise Boom("in compose")
        yield from ()

    def on_mount(self) -> None:
        if self.where == "mount":
            raise Boom("in mount")


class Rendering(Static):
    """Raises as it is laid out."""

    def render(self) -> Any:
        raise Boom("in rendering")


class Unlaid(Widget):
    """Raises in the layout, of which the panel is a part, too."""

    DEFAULT_CSS = "Unlaid { height: auto; }"

    def get_content_height(self, *args: Any) -> int:
        raise Boom("in layout")


class TestRoom(Room):
    """Holds a fragile widget."""

    __test__ = False
    ROOM = "nowhere"

    def content(self) -> Any:
        yield Fragile()

    def equivalent(self) -> list[str]:
        return ["ls"]


async def _worker() -> None:
    raise Boom("in a worker")


def _raise(text: str) -> None:
    raise Boom(text)


PLACES: dict[str, Any] = {
    "render_line": lambda room: room.mount(Fragile("render_line")),
    "rendering": lambda room: room.mount(Rendering()),
    "compose": lambda room: room.mount(Fragile("compose")),
    "mount": lambda room: room.mount(Fragile("mount")),
    "a timer": lambda room: room.set_interval(0.01, lambda: _raise("in a timer")),
    "one timer": lambda room: room.set_timer(0.01, lambda: _raise("in one timer")),
    "a handler": lambda room: room.query_one(Fragile).post_message(Poke()),
    "a worker": lambda room: room.run_worker(_worker()),
    "a thread": lambda room: room.run_worker(lambda: _raise("in a thread"), thread=True),
    "work": lambda room: room.work(lambda: _raise("in work"), lambda _: None),
    "its end": lambda room: room.work(lambda: None, lambda _: _raise("in its end")),
    "later": lambda room: room.call_later(_raise, "in later"),
    "next": lambda room: room.call_next(_raise, "in next"),
    "after": lambda room: room.call_after_refresh(_raise, "in after"),
    "the app": lambda room: room.app.call_later(_raise, "in the app"),
}


def test_what_raises_behind_opens_the_panel_and_keys_still_work(work: Any, no_defect: list[ShownError]) -> None:
    room = TestRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for place, do in PLACES.items():
            result = do(room)
            await until(pilot, lambda place=place: panel_says(app, f"Boom: in {place}"), f"a panel for {place}")
            fragile = room.query(Fragile).first()
            before = fragile.moved
            fragile.focus()
            await key(app, "j", lambda before=before, item=fragile: item.moved == before + 1)
            if isinstance(result, Timer):
                result.stop()
        room.query(Fragile).first().focus()
        await pilot.press("k")
        await until(pilot, lambda: panel_says(app, "Boom: in a key"), "a panel for a key")
        await pilot.press("escape", "j")
        assert app.is_running
        await until(app, lambda: "cannot be shown: Boom: in render_line" in shown(app), "the line that says so")

    play(story, room)
    assert {str(item.error) for item in no_defect} == {f"in {place}" for place in [*PLACES, "a key"]}
    no_defect.clear()


def test_a_room_that_cannot_be_laid_out_is_replaced_and_home_is_one_key_away(
    work: Any, no_defect: list[ShownError]
) -> None:
    room = TestRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        room.mount(Unlaid())
        await until(pilot, lambda: isinstance(app.screen, Broken), "the plain screen")
        await until(pilot, lambda: "Boom: in layout" in shown(app), "its text")
        assert "crash.txt" in shown(app)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, HomeRoom), "home")
        assert room not in app.visits

    play(story, room)
    no_defect.clear()


def test_two_failures_to_paint_in_a_second_end_it_with_the_text(work: Any, no_defect: list[ShownError]) -> None:
    room = TestRoom(Here(run="myrun"))
    app = Workbench(room)
    words: list[str] = []

    def last_words(error: BaseException) -> str:
        words.append(Workbench.last_words(app, error))
        return words[-1]

    app.last_words = last_words  # type: ignore[method-assign]

    async def run() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            for text in ("first", "second"):
                app._replace(Boom(text))
            await until(pilot, lambda: not app.is_running, "the end")

    import asyncio

    with pytest.raises(Boom, match="second"):
        asyncio.run(run())
    assert app.return_code == 70
    assert "Boom: second" in words[0] and "crash" in words[0]
    no_defect.clear()


def test_the_panel_offers_to_do_it_again_and_to_keep_the_text(work: Any) -> None:
    room = TestRoom(Here(run="myrun"))
    tries: list[int] = []

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        def attempt() -> int:
            tries.append(1)
            if len(tries) < 3:
                raise UsageError("cannot read myrun", "the drive is away", "mount it")
            return 7

        got: list[int] = []
        room.work(attempt, got.append, doing="reading")
        await until(pilot, lambda: panel_says(app, "why: the drive is away"), "the panel")
        await until(app, lambda: "r again" in shown(app) and "1 error: E" in shown(app), "what it offers")
        await pilot.press("r")
        await until(pilot, lambda: len(tries) == 2 and panel_says(app, "cannot read"), "the second failure")
        await until(app, lambda: "2 errors: E" in shown(app), "the count")
        await pilot.press("Y")
        assert "do:  mount it" in (work / "error.txt").read_text()
        await pilot.press("r")
        await until(pilot, lambda: got == [7], "what it wanted")
        assert room.panel is not None and not room.panel.shown
        await pilot.press("E")
        await until(pilot, lambda: panel_says(app, "cannot read"), "the error again")

    play(story, room)


def test_a_quiet_error_is_counted_and_shown_when_asked_for(work: Any) -> None:
    room = TestRoom(Here(run="myrun"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        said = [f"line {i}" for i in range(50)]
        room.trouble(UsageError("triage failed", "it was killed by SIGSEGV"), doing="triage", said=said, quiet=True)
        await until(pilot, lambda: "1 error: E" in shown(app), "the badge")
        assert room.panel is not None and not room.panel.shown
        await pilot.press("E")
        assert panel_says(app, "its last 20 lines:") and panel_says(app, "line 49") and not panel_says(app, "line 29")

    play(story, room)


def test_an_error_text_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in described(UsageError("bad name \x1b[2J", "why \x07"), ["said \x1b]52;c;aa\x07"])


def test_signals_have_names() -> None:
    from graphdbg.tui.jobs import ending

    assert ending(-signal.SIGSEGV) == "it was killed by SIGSEGV"
