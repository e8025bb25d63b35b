"""The graph screen: cursor, folds, filter as you type, search, jumps, sorting, columns, values; what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import SelectionList

from graphdbg.dumps.browse.filter import matching, parse
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.minifier.commands.show import show
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.graph import room as room_module
from graphdbg.tui.screens.graph.room import GraphRoom
from graphdbg.tui.screens.picking import ChooseColumns, PickNode
from graphdbg.tui.sheet import Ask, Choose

from ....dumps.layered import layered
from ...stories import key, play, shown, until


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A case folder with 200 nodes."""
    folder = tmp_path_factory.mktemp("graph") / "case"
    write_graph_folder(folder, layered(200))
    return folder


class Keys:
    """Presses keys of a room and waits for what they do."""

    def __init__(self, app: Workbench, room: GraphRoom) -> None:
        self.app, self.room, self.table = app, room, room.table

    @property
    def name(self) -> str:
        """The node under the cursor."""
        assert self.room.view is not None
        return self.room.view.table.name[self.table.node]

    async def __call__(self, pressed: str, then: Any) -> None:
        await key(self.app, pressed, then)

    async def type(self, text: str) -> None:
        """Types into what has the keys."""
        names = {"/": "slash", ":": "colon", " ": "space", ",": "comma", "*": "asterisk", ">": "greater_than_sign"}
        for letter in text:
            self.app.post_message(events.Key(names.get(letter, letter), letter))
        await until(None, lambda: self.room.prompt.input.value.endswith(text), f"{text} typed")

    def status(self) -> str:
        """The line under the table."""
        return f"{self.room.status.left} | {self.room.status.right}"


def on(case: Path, story: Any, size: tuple[int, int] = (160, 50), **here: str) -> GraphRoom:
    """Plays a story on the graph, once it is read."""
    room = GraphRoom(Here(graph=str(case), **here))

    async def played(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: room.rows.lanes is not None, "the graph")
        await story(Keys(app, room))

    play(played, room, size)
    return room


def test_the_cursor_moves_by_keys_mouse_and_wheel(case: Path) -> None:
    async def story(keys: Keys) -> None:
        table = keys.table
        assert "▸ inputs" in shown(keys.app) and "float32" in shown(keys.app) and keys.name == "mean_0"
        await keys("k", lambda: table.cursor == 0)
        await keys("l", lambda: len(table.selection or ()) > 200)
        await until(None, lambda: "primals_1" in shown(keys.app), "the first input in the path")
        for pressed, row in (
            ("j", 1),
            ("down", 2),
            ("k", 1),
            ("pagedown", 1 + table.page),
            ("G", 210),
            ("g", 0),
            ("up", 0),
        ):
            count = len(table.selection or ())
            expected = min(row, count - 1)
            await keys(pressed, lambda expected=expected: table.cursor == expected)
        table.post_message(events.MouseScrollDown(table, 5, 5, 0, 1, 0, False, False, False))
        await until(None, lambda: table.scroll_offset.y > 0, "the wheel")
        table.on_click(events.Click(table, 20, 4, 0, 0, 1, False, False, False))
        assert table.cursor == 3 + table.scroll_offset.y
        x = (table.texts and table.texts.heading().index("bytes")) or 0
        table.on_click(events.Click(table, x, 0, 0, 0, 1, False, False, False))
        await until(None, lambda: keys.room.rows.question.sort is not None, "sorted by a click")
        assert keys.room.rows.question.sort == ("bytes", True)

    on(case, story)


def test_a_large_graph_answers_from_a_thread(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "FEW", 0)

    async def story(keys: Keys) -> None:
        room, view = keys.room, keys.room.needed()
        await until(None, lambda: room.rows.question.folded and "▸ inputs" in shown(keys.app), "folded inputs")
        await keys("f", lambda: room.prompt.is_open)
        await keys.type("op:mm users>q")
        await until(None, lambda: "'q' is not a number" in str(room.prompt.note.content), "pointed at")
        mm = matching(view, parse("op:mm"))
        await until(None, lambda: list(room.rows.selection.rows) == mm, "filtered by what was typed before")
        await keys("escape", lambda: not room.prompt.is_open)
        await until(None, lambda: room.rows.selection.nodes is None, "all is as before")
        await keys("slash", lambda: room.prompt.is_open)
        await keys.type("mm")
        await until(None, lambda: room.status.right.startswith("mm: "), "found")

    on(case, story)


def test_filter_as_you_type(case: Path) -> None:
    async def story(keys: Keys) -> None:
        room, view = keys.room, keys.room.needed()
        await keys("j", lambda: keys.table.cursor == 2)
        await keys("f", lambda: room.prompt.is_open)
        await keys.type("op:mm")
        mm = matching(view, parse("op:mm"))
        assert mm is not None
        await until(None, lambda: list(room.rows.selection.rows) == mm, "filtered")
        assert f"{len(mm)} of {len(view)}" in keys.status() and "no lanes" in keys.status()
        await keys.type(" users>q")
        await until(None, lambda: "'q' is not a number" in str(room.prompt.note.content), "pointed at")
        assert list(room.rows.selection.rows) == mm and str(room.prompt.note.content).startswith(" " * 12 + "^ ")
        keys.app.post_message(events.Key("enter", None))
        await keys.type("q")
        assert room.prompt.is_open
        await keys("escape", lambda: not room.prompt.is_open)
        await until(None, lambda: room.rows.selection.nodes is None, "all is as before")
        assert keys.table.cursor == 2 and room.rows.filter_text == ""
        await keys("f", lambda: room.prompt.is_open)
        await keys.type("op:mn")
        await until(None, lambda: "did you mean" in room.status.right, "a hint")
        await keys("enter", lambda: not room.prompt.is_open)
        assert room.rows.filter_text == "op:mn" and room.equivalent() == ["show", str(case), "--filter", "op:mn"]
        await keys("escape", lambda: room.rows.filter_text == "")
        await keys("f", lambda: room.prompt.is_open)
        await keys("up", lambda: room.prompt.input.value == "op:mn")
        await keys("escape", lambda: not room.prompt.is_open)
        await keys("f", lambda: room.prompt.is_open)
        await keys.type("nan")
        await until(None, lambda: "press 4" in str(room.prompt.note.content), "no values yet")

    on(case, story)


def test_folds_keep_the_cursor_on_its_node(case: Path) -> None:
    async def story(keys: Keys) -> None:
        room, table, view = keys.room, keys.table, keys.room.needed()
        node = view.position("erf_11") or 0
        room.find.jump(node)
        await keys("h", lambda: table.row < 0)
        assert room.rows.groups is not None and room.rows.groups.labels[~table.row] == "blocks.0"
        assert "blocks.0" in shown(keys.app) and "17 nodes" in shown(keys.app)
        await keys("space", lambda: table.row >= 0)
        await keys("underscore", lambda: table.row < 0 and room.rows.depth == 0)
        assert all(row < 0 for row in list(room.rows.selection.rows)[:-1]) and "--fold" in room.equivalent()
        await keys("plus", lambda: room.rows.depth is None and table.row >= 0)
        await keys("minus", lambda: room.rows.depth == 0)
        room.find.goto(node)  # inside a folded module: it opens
        await until(None, lambda: keys.name == "erf_11", "unfolded")
        assert room.rows.depth is None and any(row < 0 for row in room.rows.selection.rows)
        room.rows.sort_by("name")
        await until(None, lambda: room.rows.selection.question.sort is not None, "sorted")
        assert keys.name == "erf_11" and "folds are off" in keys.status()

    on(case, story)


def test_search_wraps_and_opens_folds(case: Path) -> None:
    async def story(keys: Keys) -> None:
        room = keys.room
        await keys("underscore", lambda: bool(room.rows.question.folded))
        await keys("slash", lambda: room.prompt.is_open)
        await keys.type("erf")
        await until(None, lambda: keys.name == "erf_11", "the first hit")
        await keys("enter", lambda: not room.prompt.is_open)
        total = len(room.find.hits)
        assert total > 3 and room.status.right == f"erf: 1/{total}"
        await keys("n", lambda: keys.name == "erf_28")
        await keys("N", lambda: room.status.right == f"erf: 1/{total}")
        await keys("N", lambda: room.status.right == f"erf: {total}/{total}, wrapped")
        await keys("slash", lambda: room.prompt.is_open)
        await keys.type("zzz")
        await until(None, lambda: "no 'zzz'" in room.status.right, "told")
        await keys("escape", lambda: not room.prompt.is_open)

    on(case, story)


def test_jumps_have_a_history(case: Path) -> None:
    async def story(keys: Keys) -> None:
        room, app, view = keys.room, keys.app, keys.room.needed()
        room.find.jump(view.position("erf_11") or 0)
        await keys("u", lambda: keys.name == "add_12")
        await keys("i", lambda: keys.name == "erf_11")
        room.find.goto(view.position("mm_8") or 0)
        await keys("u", lambda: isinstance(app.screen, PickNode))
        await keys("j", lambda: True)
        await keys("enter", lambda: app.screen is room and keys.name == "mul_10")
        await keys("less_than_sign", lambda: keys.name == "mm_8")
        await keys("backspace", lambda: keys.name == "add_12")
        await keys("greater_than_sign", lambda: keys.name == "mm_8")
        await keys("colon", lambda: isinstance(app.screen, Ask))
        for letter in "meam_0":
            app.post_message(events.Key(letter if letter != "_" else "underscore", letter))
        await until(None, lambda: "Did you mean" in shown(app) or "did you mean" in shown(app), "the nearest name")
        await keys("escape", lambda: app.screen is room)
        await keys("colon", lambda: isinstance(app.screen, Ask))
        for letter in "57":
            app.post_message(events.Key(letter, letter))
        await keys("enter", lambda: app.screen is room and keys.table.node == 57)
        room.rows.filter_by(parse("op:mm"), "op:mm")
        await until(None, lambda: room.rows.filter_text == "op:mm", "filtered")
        assert room.find.goto(0) is False and "hidden by the filter: c clears it" in keys.status()
        await keys("0", lambda: room.rows.selection.nodes is None)
        await until(None, lambda: room.here.node == keys.name, "the path follows")
        assert room.crumbs()[-1] == keys.name
        room.arrive(Here(graph=str(case), node="erf_11"))
        assert keys.name == "erf_11"

    on(case, story)


def test_sorting_columns_and_values(case: Path) -> None:
    async def story(keys: Keys) -> None:
        room, app, table, view = keys.room, keys.app, keys.table, keys.room.needed()
        await keys("s", lambda: isinstance(app.screen, Choose))
        await keys("b", lambda: app.screen is room and room.rows.question.sort == ("bytes", True))
        assert "largest first" in keys.status() and room.equivalent()[-2:] == ["--sort", "bytes:down"]
        room.rows.sort_by("bytes")
        await until(None, lambda: room.rows.question.sort == ("bytes", False), "turned round")
        await keys("0", lambda: room.rows.question.sort is None)
        await keys("C", lambda: isinstance(app.screen, ChooseColumns))
        await until(None, lambda: isinstance(app.focused, SelectionList), "the list has the keys")
        offered = app.screen.query_one(SelectionList)
        await keys("j", lambda: offered.highlighted == 1)
        await keys("space", lambda: "name" not in offered.selected)
        await keys("escape", lambda: app.screen is room)
        assert room.rows.chosen is not None and "name" not in [column.key for column in room.rows.chosen]
        room.rows.chosen = None
        mm, erf = view.position("mm_8") or 0, view.position("erf_11") or 0
        room.rows.value_columns({"mm_8": (-1.5, 2.0, 3, 0, 1e-3), "erf_11": (0.0, 1.0, 0, 0, 1e-7)})
        await until(None, lambda: "nan" in (table.texts.heading() if table.texts else ""), "columns of values")
        room.rows.filter_by(parse("nan"), "nan")
        await until(None, lambda: list(room.rows.selection.rows) == [mm], "found by value")
        assert "-1.5" in shown(app)
        room.rows.filter_by(parse("error>0"), "error>0")
        await until(None, lambda: list(room.rows.selection.rows) == [mm, erf], "found by error")

    on(case, story, (220, 40))


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (160, 50), (250, 80)])
def test_every_size_shows_a_node_with_op_and_shape(case: Path, size: tuple[int, int]) -> None:
    async def story(keys: Keys) -> None:
        keys.room.find.goto(keys.room.needed().position("mm_8") or 0)
        await until(None, lambda: " mm_8 " in shown(keys.app), "painted")
        line = next(line for line in shown(keys.app).splitlines() if " mm_8 " in line)
        assert " mm  " in line and "[8, 256]" in line
        if size[1] < 30:
            await keys("z", lambda: keys.room.has_class("tabs"))
            await keys("escape", lambda: not keys.room.has_class("tabs"))

    on(case, story, size)


def test_what_at_shows_prints_the_same_rows(case: Path) -> None:
    from click.testing import CliRunner

    async def story(keys: Keys) -> None:
        room = keys.room
        room.rows.filter_by(parse("op:mul users>0"), "op:mul users>0")
        room.rows.sort_by("name")
        await until(None, lambda: room.rows.question.sort is not None and room.rows.question.terms, "asked")
        done = CliRunner().invoke(show, [*room.equivalent()[1:], "--json", "--full"], catch_exceptions=False)
        printed = [node["index"] for node in json.loads(done.stdout)["nodes"]]
        assert printed == list(room.rows.selection.rows) and len(printed) > 10

    on(case, story)


def test_a_graph_that_cannot_be_read_is_told_and_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    write_graph_folder(folder, layered(60))
    table = folder / "table.msgpack"
    whole = table.read_bytes()
    table.write_bytes(whole[:200])
    room = GraphRoom(Here(graph=str(folder)))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: room.panel is not None and room.panel.shown, "the panel")
        assert (
            room.panel is not None and room.panel.shown_error is not None and "damaged" in room.panel.shown_error.text
        )
        await key(app, "j", lambda: True)
        table.write_bytes(whole)
        await key(app, "r", lambda: room.view is not None)

    play(story, room)


FRESH = """
import sys
from graphdbg.tui.app import Workbench
from graphdbg.tui.room import first_room
import asyncio
app = Workbench(first_room(sys.argv[1]))
async def main():
    async with app.run_test(size=(160, 50)) as pilot:
        while app.first.rows.lanes is None or app.first.tabs is None:
            await pilot.pause(0.01)
        await pilot.press("j", "underscore")
        assert "blocks.3" in str(app.first.rows.groups.labels) and app.first.table.row < 0
asyncio.run(main())
bad = [name for name in ("torch", "numpy", "pygments", "markdown_it") if name in sys.modules]
assert not bad, bad
"""


def test_a_graph_is_shown_without_torch(case: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FRESH, str(case)], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr[-2000:]
