"""The diff screen on a real run: chosen, joined, walked through, and told where a graph is damaged or gone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from textual.pilot import Pilot

from graphdbg.dumps.diff.beside import SIGNS
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.diff.room import DiffRoom
from graphdbg.tui.screens.picking import PickOther

from ....dumps.graphs import new_run
from ....dumps.layered import layered, renumbered, scattered
from ...stories import key, play, shown, until

NODES = 3_000


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds `myrun` with a graph, another compile of it with three changes, and its backward."""
    monkeypatch.chdir(tmp_path)
    _, process = new_run(Path("myrun"))
    result = layered(120, "0_0/forward")
    other = scattered(renumbered(result), 3, seed=5)
    other.id = "0_1/forward"
    for number, node in enumerate(result.graph.nodes):
        node.seq_nr = number if node.op == "call_function" else -1
    process.save_graph(result)
    process.save_graph(other)
    result.id, result.stage = "0_0/backward", "backward"
    process.save_graph(result)
    process.close()
    return tmp_path


def test_choose_walk_and_open(work: Path) -> None:
    room = DiffRoom(Here(run="myrun", graph="myrun/0_0/forward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: isinstance(app.screen, PickOther), "the sheet")
        await until(app, lambda: "another compile of the same function" in shown(app), "the candidates")
        await pilot.press("enter")
        await until(app, lambda: room.sideways is not None, "the comparison")
        assert room.equivalent() == ["diff", "myrun/0_0/forward", "myrun/0_1/forward", "--side-by-side", "--all"]
        result = room.sideways
        assert result is not None
        assert room.rows.cursor == room.starts[0]
        mark = result.row(room.starts[0]).mark
        assert f"{SIGNS[mark]} {mark}" in shown(app)
        assert f"1/{len(room.starts)}" in shown(app)
        await pilot.press("n")
        assert room.rows.cursor == room.starts[1]
        await pilot.press("N")
        assert room.rows.cursor == room.starts[0]
        await pilot.press("a")
        assert 0 < len(room.shown) < len(result)
        assert room.shown[room.rows.cursor] == room.starts[0]
        assert "alike" in shown(app)
        await pilot.press("n", "n", "n")
        assert room.shown[room.rows.cursor] in room.starts
        room.rows.move_to(next(place for place, at in enumerate(room.shown) if result.b[at] >= 0))
        row = result.row(room.shown[room.rows.cursor])
        await pilot.press("b")
        assert app.room is not None
        assert (app.room.ROOM, app.room.here.graph) == ("graph", "myrun/0_1/forward")
        assert app.room.here.node == result.sides[1].names[row.b]
        assert not app.troubles

    play(story, room, size=(140, 30))


def test_forward_and_backward_are_joined_without_being_asked(work: Path) -> None:
    room = DiffRoom(Here(run="myrun", graph="myrun/0_0/forward", other="myrun/0_0/backward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.sideways is not None, "the lines")
        assert room.equivalent() == ["diff", "myrun/0_0/forward", "myrun/0_0/backward", "--by-seq-nr"]
        assert "joined by seq_nr" in shown(app)
        await key(app, "n", lambda: "does not compare nodes" in shown(app))
        await key(app, "equals_sign", lambda: room.sideways is not None and room.joined is False)
        assert room.equivalent()[-2:] == ["--side-by-side", "--all"]
        await key(app, "X", lambda: room.sideways is not None and room.here.graph == "myrun/0_0/backward")

    play(story, room)


@pytest.mark.parametrize("size", [(60, 20), (250, 80)])
def test_damaged_and_vanished_graphs_are_told_and_another_can_be_chosen(work: Path, size: tuple[int, int]) -> None:
    next(Path("myrun").glob("*/graphs/0_1/forward/graph.json*")).write_bytes(b'{"format": 1')
    room = DiffRoom(Here(run="myrun", graph="myrun/0_0/forward", other="myrun/0_1/forward"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: app.troubles, "the panel")
        assert "it is damaged" in app.troubles[-1].text
        assert "cannot compare" in app.troubles[-1].text
        await key(app, "escape", lambda: not room.panel.shown)  # type: ignore[union-attr]
        room._chosen("myrun/9_9/forward")
        await until(app, lambda: len(app.troubles) == 2, "the other panel")
        room._chosen("myrun/0_0/backward")
        await until(app, lambda: room.sideways is not None, "another comparison")

    play(story, room, size=size)


def test_a_large_comparison_never_holds_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, process = new_run(Path("myrun"))
    result = layered(NODES, "0_0/forward")
    other = scattered(renumbered(result), 40, seed=2)
    other.id = "0_1/forward"
    process.save_graph(result)
    process.save_graph(other)
    process.close()
    room = DiffRoom(Here(run="myrun", graph="myrun/0_0/forward", other="myrun/0_1/forward"))
    slowest = 0.0

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        nonlocal slowest
        while room.sideways is None:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            slowest = max(slowest, time.monotonic() - before)
        assert len(room.starts) >= 30
        assert len(room.sideways) >= NODES
        await key(app, "end", lambda: room.rows.cursor == len(room.sideways) - 1)  # type: ignore[arg-type]

    play(story, room)
    assert slowest < 0.5, f"the loop was held for {slowest:.3f} s"
