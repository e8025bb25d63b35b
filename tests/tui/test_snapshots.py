"""Every screen as a picture, at 80×24 and 160×50; `pytest --snapshot-update` takes them anew, and somebody looks at
them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import textual
from textual.pilot import Pilot

from graphdbg.tui.app import Workbench

from .stories import ROOMS, shown

TAKEN_WITH = "8.2.8"
WITH_JOB = ("diff", "report")
"""Rooms that have a process work before they rest."""
WHY = "look at snapshot_report.html; if that is meant: pytest tests/tui/test_snapshots.py --snapshot-update, and commit"

pytestmark = pytest.mark.skipif(
    textual.__version__ != TAKEN_WITH,
    reason=f"pictures are taken with textual {TAKEN_WITH}, this is {textual.__version__}",
)


async def rest(pilot: Pilot[None], keys: list[str], wanted: str = "") -> None:
    """Presses keys; waits until a text is there, nothing is being read, and the screen stays as it is."""
    keys = ["", *keys]
    for name in keys:
        if name:
            await pilot.press(name)
        last, ends, same = "", time.monotonic() + 60, 0
        while same < 3:
            assert time.monotonic() < ends, "the screen never rests"
            await asyncio.sleep(0.03)
            assert isinstance(pilot.app, Workbench)
            now = shown(pilot.app)
            busy = any(not worker.is_finished for worker in pilot.app.workers)
            busy = busy or any(job.running for job in pilot.app.jobs)
            there = wanted in now or name != keys[-1]
            same = same + 1 if now == last and not busy and there else 0
            last = now


def picture(snap_compare: Any, name: str, size: tuple[int, int], keys: list[str], wanted: str = "") -> None:
    async def before(pilot: Pilot[None]) -> None:
        await rest(pilot, keys, wanted)

    assert snap_compare(Workbench(ROOMS[name]()), terminal_size=size, run_before=before), WHY


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in WITH_JOB else ()) for name in ROOMS]
)
def test_80_by_24(name: str, work: Path, snap_compare: Any) -> None:
    picture(snap_compare, name, (80, 24), [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ROOMS)
def test_160_by_50(name: str, work: Path, snap_compare: Any) -> None:
    picture(snap_compare, name, (160, 50), [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        pytest.param(["question_mark"], "type to find", id="help"),
        pytest.param(["at"], "the same at a prompt", id="command"),
        pytest.param(["T"], "", id="light"),
        pytest.param(["x"], "stop failed", id="panel"),
    ],
)
def test_in_front_of_home(keys: list[str], wanted: str, work: Path, snap_compare: Any) -> None:
    picture(snap_compare, "home", (100, 30), keys, wanted)
