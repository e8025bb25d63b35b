"""Writes the pictures of README: `make pictures`. They show the run of the tour, as the tests see it; no torch is
needed.

python -m tests.tui.pictures docs/pictures
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.room import first_room
from graphdbg.tui.screens.tour import OUT, RECORDED, RUN

SIZE = (120, 34)
GRAPH = f"{RUN}/0_0/forward"


async def rest(pilot: Pilot[None], wanted: str = "") -> None:
    """Waits until the screen has a text and stays as it is."""
    last = ""
    for _ in range(200):
        await pilot.pause(0.05)
        now = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        if now == last and wanted in now:
            return
        last = now
    raise AssertionError(f"{wanted!r} never came:\n{last}")


async def home(pilot: Pilot[None]) -> None:
    await rest(pilot, "failed")


async def graph(pilot: Pilot[None]) -> None:
    await rest(pilot, "add.Tensor")
    await pilot.press("slash", *"relu", "enter")
    await rest(pilot, "relu")


async def minify(pilot: Pilot[None]) -> None:
    await rest(pilot)


async def report(pilot: Pilot[None]) -> None:
    await rest(pilot)
    await pilot.press("6")
    await rest(pilot)


PICTURES: dict[str, tuple[str, Callable[[Pilot[None]], Awaitable[None]]]] = {
    "home": (RUN, home),
    "graph": (GRAPH, graph),
    "minify": (OUT, minify),
    "report": (OUT, report),
}
"""name -> what `graphdbg tui` is given, and what is done before the picture is taken."""


async def draw(name: str, folder: Path) -> Path:
    """One picture, in the folder that holds the run of the tour."""
    target, story = PICTURES[name]
    app = Workbench(first_room(target))
    async with app.run_test(size=SIZE) as pilot:
        await story(pilot)
        assert not app.troubles, app.troubles[0].text
        path = folder / f"{name}.svg"
        path.write_text(app.export_screenshot(title=f"graphdbg tui {target}"), encoding="utf-8")
    return path


def main(folder: Path) -> None:
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as run, zipfile.ZipFile(RECORDED) as packed:
        packed.extractall(run)
        os.chdir(run)
        os.environ.update(XDG_STATE_HOME=f"{run}/state", XDG_CONFIG_HOME=f"{run}/config")
        for name in PICTURES:
            print(asyncio.run(draw(name, folder)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
