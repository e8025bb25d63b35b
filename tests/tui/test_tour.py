"""The tour: every step names a key that is there, waits for it, and goes on; leaving it leaves nothing."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench
from graphdbg.tui.registry import BY_ID
from graphdbg.tui.screens.tour import RECORDED, STEPS, TourLine

from .stories import ROOMS, key, play, shown, until


def test_every_step_asks_for_something_that_can_be_done() -> None:
    assert all(step.action in BY_ID for step in STEPS)


def test_its_run_is_small_and_has_no_path_of_the_machine_it_was_recorded_on() -> None:
    assert RECORDED.stat().st_size < 200_000
    with zipfile.ZipFile(RECORDED) as packed:
        names = packed.namelist()
        texts = [packed.read(name) for name in names if not name.endswith(".packed")]
        with packed.open("gpt.packed") as file, zipfile.ZipFile(file) as run:
            texts += [run.read(name) for name in run.namelist()]
    assert "small/events.jsonl" in names
    paths = rb"(?:/(?:root|home|Users|tmp|work)|<tmp>|<home>)/[\w./-]*"
    assert not [item for text in texts for item in re.findall(paths, text)]


@pytest.mark.long
def test_it_can_be_followed_to_its_end_and_left(work: Path) -> None:
    home = ROOMS["home"]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "f1", lambda: app.tour is not None and app.room is not home)
        assert app.tour is not None
        folder = app.tour.folder
        for at, step in enumerate(STEPS):
            action = BY_ID[step.action]
            await until(app, lambda at=at: f"tour {at + 1}/{len(STEPS)}" in shown(app), f"step {at + 1}")
            assert " ".join(step.text.split()[:2]) in shown(app)
            await pilot.pause(0.2)  # what the step speaks of is read in the background
            await key(app, action.keys[0], lambda at=at: app.tour.at == at + 1)
            while (
                app.screen is not app.room and not isinstance(app.screen, type(app.room)) and len(app.screen_stack) > 2
            ):
                await pilot.press("escape")
        await until(app, lambda: "That is all" in shown(app), "the end")
        assert app.troubles == []
        await key(app, "f1", lambda: app.tour is None)
        await until(app, lambda: app.room is home and not app.screen.query(TourLine), "where we were")
        assert not folder.exists() and app.visits == [home]

    play(story, home, size=(120, 40))


def test_esc_in_the_middle_leaves_it(work: Path) -> None:
    home = ROOMS["home"]()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "f1", lambda: app.tour is not None and app.room is not home)
        await until(app, lambda: "tour 1/" in shown(app), "the first step")
        await key(app, "escape", lambda: app.tour is None and app.room is home)

    play(story, home)
