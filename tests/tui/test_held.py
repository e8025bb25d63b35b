"""No key waits for work: with every thread held and every command asleep, each key of each room comes back at once."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.base_screen import BaseScreen
from graphdbg.tui.registry import of_room

from .stories import ROOMS, play, until

AT_ONCE_S = 3.0
"""Far more than a key may take, far less than what is held: tests run beside others on two cores."""
HELD_S = 60.0


@pytest.mark.long
@pytest.mark.parametrize("name", ROOMS)
def test_no_key_waits_for_what_is_held(name: str, work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Event()
    held: list[str] = []
    really = BaseScreen.work

    def holding(self: BaseScreen[Any], function: Callable[[], Any], then: Callable[[Any], object], **more: Any) -> None:
        def waiting() -> Any:
            held.append(name)
            release.wait(HELD_S)
            return function()

        really(self, waiting, then, **more)

    monkeypatch.setattr(BaseScreen, "work", holding)
    asleep = f"import time; time.sleep({HELD_S})"
    monkeypatch.setattr("graphdbg.tui.jobs.command_of", lambda words: [sys.executable, "-c", asleep])
    monkeypatch.setattr(Workbench, "exit", lambda self, *args, **more: None)
    room = ROOMS[name]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        for action in of_room(name):
            for key in action.keys:
                pressed = time.monotonic()
                app.post_message(events.Key(key, key if len(key) == 1 else None))
                await _answers(app, key)
                took = time.monotonic() - pressed
                assert took < AT_ONCE_S, f"{key} ({action.id}) took {took:.2f} s"
                await _back_to(room, app)

    try:
        app = play(story, room)
    finally:
        release.set()
    for job in app.jobs:
        job.kill()


async def _answers(app: Workbench, key: str) -> None:
    """Waits until the app and the screen in front have worked off what the key put into their queues."""
    for pump in (lambda: app, lambda: app.focused or app.screen, lambda: app.screen):
        done = asyncio.Event()
        pump().call_later(done.set)
        await asyncio.wait_for(done.wait(), HELD_S / 2)


async def _back_to(room: Any, app: Workbench) -> None:
    if app.screen is room:
        return
    while len(app.screen_stack) > 2:
        app.pop_screen()
    if app.screen is not room:
        app._show(room)
    await until(app, lambda: app.screen is room and room.is_current, "the room again")
