"""What the tests of the workbench share: all rooms on the small run, waiting for a condition, pressing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from textual import events
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.registry import SCREENS, room_of
from graphdbg.tui.room import Room

FORWARD = Here(run="myrun", graph="myrun/0_0/forward")
HERE = {"home": Here(run="myrun"), "diff": FORWARD.at(other="myrun/0_0/joint")}
"""What a screen is about, where that is not the forward graph."""
ROOMS: dict[str, Callable[[], Room]] = {name: partial(room_of, name, HERE.get(name, FORWARD)) for name in SCREENS}
"""Each room of the workbench, on the run of the fixture `work`."""

Story = Callable[[Pilot[None], Workbench], Awaitable[None]]


def play(story: Story, first: Room, size: tuple[int, int] = (100, 30)) -> Workbench:
    """Runs a story on an app; gives the app after its end."""
    app = Workbench(first)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: first.is_current and first.panel is not None, "the first room")
            await story(pilot, app)

    asyncio.run(run())
    return app


async def until(_: object, condition: Callable[[], object], what: str, limit_s: float = 10.0) -> None:
    """Waits until something is so; says what did not come."""
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, f"never came: {what}"
        await asyncio.sleep(0.003)


async def key(app: Workbench, name: str, then: Callable[[], object]) -> None:
    """Presses one key and waits for what it does; a tenth of the time that `pilot.press` takes."""
    app.post_message(events.Key(name, name if len(name) == 1 else None))
    await until(app, then, f"what {name} does")


def shown(app: Workbench) -> str:
    """The text of the screen in front."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
