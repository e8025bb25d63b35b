"""The tabs beside the node table: each of them, jumps, partner, editor, picture, sizes. On a run made without torch."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from graphdbg.dumps.browse.sheet import line, line_text, link
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.graph.room import GraphRoom
from graphdbg.tui.screens.graph.tabs.node_tabs import NodeTabs, broken
from graphdbg.tui.sheet import Choose

from ....dumps.autograd_run import autograd_run
from ....dumps.graphs import chain
from ...stories import play, shown, until

FORWARD = Here(run="myrun", graph="myrun/0_0/forward", node="relu")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds `myrun` with both sides of autograd."""
    monkeypatch.chdir(tmp_path)
    autograd_run(Path("myrun"), tmp_path / "model.py")
    return tmp_path


def tabs_of(app: Workbench) -> NodeTabs:
    room = app.room
    assert isinstance(room, GraphRoom) and room.tabs is not None
    return room.tabs


async def seen(app: Workbench, tab: str, node: str) -> NodeTabs:
    """Waits until that tab shows that node."""

    def is_so() -> bool:
        room = app.room
        if not isinstance(room, GraphRoom) or room.tabs is None or room.view is None:
            return False
        return room.tabs.shown[:2] == (tab, room.view.position(node)) and room.here.node == node

    await until(app, is_so, f"{tab} of {node}")
    return tabs_of(app)


def test_each_tab_shows_the_node_under_the_cursor(here: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        tabs = await seen(app, "detail", "relu")
        await until(app, lambda: "aten.relu.default(mm)" in shown(app), "the call")
        await pilot.press("right_square_bracket")
        await seen(app, "source", "relu")
        await until(app, lambda: "▸6" in shown(app), "the marked line")
        await pilot.press("tab")
        await seen(app, "code", "relu")
        await until(app, lambda: "▸12" in shown(app), "the kernel")
        assert "triton_poi_fused_relu_0 = async_compile.triton" in shown(app)
        await until(app, lambda: tabs.page._colours, "colours")
        await pilot.press("tab")
        await seen(app, "stages", "relu")
        await until(app, lambda: "post_grad_forward" in shown(app), "the stages")
        await pilot.press("tab")
        await seen(app, "near", "relu")
        await until(app, lambda: "╔" in shown(app), "the drawing")
        await pilot.press("tab")
        await seen(app, "detail", "relu")
        await pilot.press("shift+tab", "up")
        await seen(app, "near", "mm")
        assert app.troubles == []

    play(story, GraphRoom(FORWARD), size=(160, 50))


def test_full_stop_and_comma_choose_among_several(here: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        tabs = await seen(app, "detail", "relu")
        await pilot.press("tab", "full_stop")
        await until(app, lambda: tabs.sheet.choice == "2/2", "the second frame")
        assert "the run kept no copy of it" in line_text(tabs.sheet.lines[0])
        await pilot.press("comma")
        await until(app, lambda: tabs.sheet.choice == "1/2", "the first frame again")
        tabs.choose("near")
        await seen(app, "near", "relu")
        assert tabs.sheet.choice == "2 hops"
        await pilot.press("comma")
        await until(app, lambda: tabs.sheet.choice == "1 hop", "one hop")
        tabs.page.focus()
        await pilot.press("plus")
        await until(app, lambda: tabs.sheet.choice == "2 hops", "two hops")
        await pilot.press("J", "K", "minus")
        await until(app, lambda: tabs.sheet.choice == "1 hop", "one hop again")

    play(story, GraphRoom(FORWARD), size=(160, 50))


def test_p_goes_round_the_partners_and_back(here: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await seen(app, "detail", "relu")
        round_trip = [
            ("backward", "le"),
            ("backward", "where"),
            ("backward", "relu"),
            ("forward", "relu"),
            ("backward", "le"),
        ]
        for graph, node in round_trip:
            await pilot.press("p")
            await until(app, lambda graph=graph: app.here.graph == f"myrun/0_0/{graph}", graph)
            await seen(app, "detail", node)
        assert app.troubles == []

    play(story, GraphRoom(FORWARD), size=(160, 50))


def test_a_node_without_partner_says_why(here: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await seen(app, "detail", "primals_2")
        await pilot.press("p")
        await until(
            app,
            lambda: (
                "the other side does not take" in " ".join(notification.message for notification in app._notifications)
            ),
            "why",
        )

    play(story, GraphRoom(FORWARD.at(node="primals_2")), size=(160, 50))


def test_a_click_on_a_node_jumps_there(here: Path) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        tabs = await seen(app, "detail", "relu")
        await until(app, lambda: "aten.relu.default(mm)" in shown(app), "the call")
        lines = shown(app).split("\n")
        y = next(number for number, line in enumerate(lines) if "aten.relu.default(mm)" in line)
        x = lines[y].index("(mm)") + 1
        await pilot.click(offset=(x, y))
        await seen(app, "detail", "mm")
        span = next(span for line in tabs.sheet.lines for span in line if getattr(span, "graph", "") == "0_0/backward")
        await app.run_action(("screen", "visit", (span.graph, span.node)))  # type: ignore[union-attr]
        await until(app, lambda: app.here.graph == "myrun/0_0/backward", "the other graph")
        await seen(app, "detail", "mm_1")

    play(story, GraphRoom(FORWARD), size=(160, 50))


def test_the_editor_gets_a_copy_at_the_line_and_a_panel_says_where_it_has_none(
    here: Path, monkeypatch: pytest.MonkeyPatch, no_defect: Any
) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await seen(app, "detail", "relu")
        await pilot.press("e")
        await until(app, lambda: app.troubles, "the panel")
        assert "model.py:6" in app.troubles[-1].text and "VISUAL" in app.troubles[-1].text
        await pilot.press("escape")
        opened: list[tuple[Path, int]] = []
        monkeypatch.setattr(Workbench, "edit", lambda self, path, line=1: opened.append((path, line)))
        await pilot.press("e")
        await until(app, lambda: opened, "the editor")
        path, line = opened[0]
        assert (path.name, line) == ("model.py", 6) and "torch.relu" in path.read_text().splitlines()[5]
        assert path.parent != here  # the file itself is not there any more
        (here / "model.py").write_text(path.read_text())
        await pilot.press("e")
        await until(app, lambda: len(opened) == 2, "the editor on the file itself")
        assert opened[1] == (here / "model.py", 6)
        await pilot.press("home")
        await seen(app, "detail", "primals_1")
        await pilot.press("e")
        await until(app, lambda: app.troubles, "the panel of a node that has no line")
        assert "no line of the user's code" in app.troubles[-1].text and len(opened) == 2

    play(story, GraphRoom(FORWARD), size=(160, 50))


def test_o_draws_the_neighbourhood_into_a_file(here: Path, no_defect: Any) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await seen(app, "detail", "relu")
        await pilot.press("o")
        await until(app, lambda: isinstance(app.screen, Choose), "the question")
        await pilot.press("t")
        path = here / "graphdbg-0_0-forward-relu.txt"
        await until(app, path.exists, "the file")
        assert "║ relu" in path.read_text()
        await pilot.press("o")
        await until(app, lambda: isinstance(app.screen, Choose), "the question")
        await pilot.press("s")
        await until(app, (here / "graphdbg-0_0-forward-relu.svg").exists, "the picture", limit_s=60)
        here.chmod(stat.S_IRWXU)

    play(story, GraphRoom(FORWARD), size=(160, 50))
    assert "<svg" in (here / "graphdbg-0_0-forward-relu.svg").read_text()


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (80, 40), (250, 80)])
def test_every_size_has_place_for_the_tabs(here: Path, size: tuple[int, int]) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: getattr(app.room, "tabs", None) is not None, "the tabs")
        assert app.room is not None
        if not app.room.query_one("#side").display:
            await pilot.press("tab")
        await seen(app, "detail", "relu")
        await until(app, lambda: "[Detail]" in shown(app), "the tab's name")
        await until(app, lambda: "aten.relu.default" in shown(app), "the call")
        assert app.troubles == []

    play(story, GraphRoom(FORWARD), size=size)


def test_a_case_has_no_tab_of_stages_and_a_damaged_graph_is_told(here: Path, no_defect: Any) -> None:
    write_graph_folder(here / "case", chain())

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        tabs = await seen(app, "detail", "sin_1")
        await until(app, lambda: "stages" not in tabs.kinds, "the tabs")
        assert " IR " not in shown(app)
        tabs.about.recorded.__dict__["inputs"] = None
        tabs.about.recorded.__dict__.pop("_by_name", None)
        (here / "case/graph.json").unlink()
        tabs.about.recorded.saved.__dict__.pop("record", None)
        await pilot.press("up")
        await until(app, lambda: app.troubles, "the panel")
        assert "graph.json" in app.troubles[-1].text
        await pilot.press("escape", "tab", "shift+tab", "down")
        assert app.is_running

    play(story, GraphRoom(Here(graph="case", node="sin_1")), size=(160, 50))


def test_long_lines_are_broken_between_words_and_links_stay_links() -> None:
    whole = line("inputs   ", link("a" * 30), ", ", link("b" * 30), " and some more words at the end")
    rows = [row for _, row in broken((3, whole), 40)]
    assert all(len(line_text(row)) <= 40 for row in rows)
    assert [span.node for row in rows for span in row if not isinstance(span, str) and span.node] == [
        "a" * 30,
        "b" * 30,
    ]
    assert "".join(line_text(row).strip() for row in rows).replace(" ", "") == line_text(whole).replace(" ", "")
