"""What jobs found stands at the nodes of the graph; values of two rungs beside each other; split, names, folded
inputs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from graphdbg.dumps.browse import columns as all_columns
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.toolkit.node_values.seen import ValuesSeen
from graphdbg.toolkit.verdicts.verdict import OK, Where, fails
from graphdbg.tui import job_files
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.graph.room import GraphRoom
from graphdbg.tui.settings import Settings
from graphdbg.tui.verdicts import NodesFound, nodes_of

from ....dumps.layered import layered
from ...stories import key, play, shown, until
from ...test_verdicts import job

GRAPH = "myrun/0_0/forward"


def values(rung: str, error: float, bad: str = "") -> list[dict[str, Any]]:
    names = ("sin_0", "sin_1")
    rows = [
        {"event": "value", "name": name, "min": 0.0, "max": 1.0, "error": error, "eager_error": 1e-7} for name in names
    ]
    first = {"name": bad, "text": "relative error 0.02"} if bad else None
    end = {"event": "end", "rung": rung, "first_bad": first, "wrong": [bad] if bad else [], "relation": "same"}
    return [{"event": "start", "rung": rung, "nodes": 2}, *rows, end]


def test_jobs_mark_nodes_and_the_newest_of_a_kind_holds(work: Path) -> None:
    wrong = fails("wrong_numbers", "inductor", "relative error 2", Where("sin_1"))
    job(
        ["triage", "myrun", "--json-lines"],
        {"event": "graph", "id": "0_0/forward", "address": GRAPH, **wrong.flat(row=True)},
    )
    job(["bisect", GRAPH, "--json"], {"rung": "inductor", "sentence": "sin_0 makes it fail", **wrong.flat()})
    job(["replay", GRAPH, "--values", "--rung", "inductor", "--json-lines"], *values("inductor", 0.02, "sin_1"))
    job(["triage", "myrun/0_0/joint", "--json-lines"], {"event": "end", "graph": "0_0/joint", **wrong.flat()})
    nodes = nodes_of(GRAPH)
    assert nodes is not None and nodes_of(GRAPH, nodes.seen) is None
    assert nodes.marks == {
        ("triage", ""): [("sin_1", "", "wrong numbers: relative error 2")],
        ("bisect", "inductor"): [("sin_1", "", "sin_0 makes it fail")],
        ("values", "inductor"): [("sin_1", "", "first bad node: relative error 0.02")],
        ("first split", ""): [("sin_0", "", "here inductor and eager split: error 2.0e-02 and 1.0e-07")],
    }
    job(["triage", GRAPH, "--json-lines"], {"event": "end", "graph": "0_0/forward", **OK.flat()})
    job(["replay", GRAPH, "--values", "--rung", "decomposed", "--json-lines"], *values("decomposed", 0.02))
    nodes = nodes_of(GRAPH)
    assert nodes is not None and list(nodes.marks) == [
        ("bisect", "inductor"),
        ("values", "inductor"),
        ("values", "decomposed"),
    ]
    shown_ = nodes.rungs()
    assert shown_ is not None and shown_[2] == ("decomposed", "inductor") and shown_[0].split(shown_[1]) is None


def test_one_key_goes_to_the_marked_node_and_says_why(work: Path) -> None:
    wrong = fails("wrong_numbers", "inductor", "relative error 2", Where("sin_1"))
    job(
        ["triage", "myrun", "--json-lines"],
        {"event": "graph", "id": "0_0/forward", "address": GRAPH, **wrong.flat(row=True)},
    )
    job(["replay", GRAPH, "--values", "--rung", "inductor", "--json-lines"], *values("inductor", 0.02))
    room = GraphRoom(Here(run="myrun", graph=GRAPH))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "✗sin_1" in shown(app) and "err eager" in shown(app), "the mark and both errors")
        sin = room.needed().position("sin_1")
        room.find.goto(0)
        while room.table.node != sin:
            at = room.table.node
            await key(app, "exclamation_mark", lambda at=at: room.table.node != at)
        said = "✗ triage: wrong numbers: relative error 2"
        await until(app, lambda: said in room.status.right and said in shown(app), "why")
        assert room.table._heat(sin or 0, "error") == "hot" and room.table._heat(sin or 0, "other") == ""
        job(
            ["triage", "myrun", "--json-lines"],
            {"event": "graph", "id": "0_0/forward", "address": GRAPH, **OK.flat(row=True)},
        )
        room.marks.look()
        await until(app, lambda: "triage" not in room.status.right, "taken back")

    play(story, room, (160, 50))


def test_the_key_waits_for_what_jobs_found(work: Path) -> None:
    wrong = fails("wrong_numbers", "inductor", "relative error 2", Where("sin_1"))
    job(
        ["triage", "myrun", "--json-lines"],
        {"event": "graph", "id": "0_0/forward", "address": GRAPH, **wrong.flat(row=True)},
    )
    room = GraphRoom(Here(run="myrun", graph=GRAPH))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "✗sin_1" in shown(app), "the mark")
        room.find.goto(0)
        room.marks.was_read, room.marks.by_node, room.marks.nodes_found = (
            False,
            {},
            NodesFound(),
        )  # as before it was read
        await key(app, "exclamation_mark", lambda: "reading what jobs found" in room.status.right)
        room.marks.look()
        sin = room.needed().position("sin_1")
        await until(app, lambda: room.table.node == sin, "the marked node")

    play(story, room)


def test_the_split_moves_and_is_remembered(work: Path) -> None:
    room = GraphRoom(Here(run="myrun", graph=GRAPH))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.tabs is not None and room.query_one("#side").size.width, "the tabs")
        before = room.table.size.width
        await key(app, "left_parenthesis", lambda: room.table.size.width < before)
        await key(app, "right_parenthesis", lambda: room.table.size.width == before)
        await key(app, "right_parenthesis", lambda: room.table.size.width > before)

    play(story, room, (160, 50))
    assert Settings.load().split == 65


def test_inputs_have_the_names_that_users_know_and_are_found_by_them(tmp_path: Path) -> None:
    write_graph_folder(tmp_path / "case", layered(60))
    room = GraphRoom(Here(graph=str(tmp_path / "case")))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: room.view is not None and room.view.known, "names")
        view = room.needed()
        name = view.known[1]
        assert name == "blocks.0.up" and name not in view.table.name and room.rows.question.folded == {0}
        await key(app, "slash", lambda: room.prompt.is_open)
        room.prompt.input.value = "blocks.0.up"
        await until(app, lambda: room.table.node == 1 and name in shown(app), "found by it")

    play(story, room, (160, 50))


@pytest.mark.parametrize(
    ("target", "brief"),
    [
        ("aten.mm.default", "mm"),
        ("torch.ops.aten.add.Tensor", "add.Tensor"),
        ("mylib.mm.default", "mylib.mm"),
        ("torch.nn.functional.relu", "relu"),
        ("operator.getitem", "getitem"),
    ],
)
def test_ops_are_shown_without_the_namespace_that_all_have(target: str, brief: str) -> None:
    from graphdbg.dumps import sidecar
    from graphdbg.dumps.browse.table import GraphView

    from ....dumps.graphs import chain

    record = chain()
    record.graph.nodes[1].target = target
    assert all_columns.brief(GraphView(sidecar.build(record)), "op", 1) == brief


def test_values_of_a_job_of_before_the_recording_are_left_out(work: Path) -> None:
    folder = job(
        ["replay", GRAPH, "--values", "--rung", "inductor", "--json-lines"], *values("inductor", 0.02, "sin_1")
    )
    record = json.loads((folder / job_files.JOB_FILE).read_text())
    os.utime("myrun/run.json", (0, record["started"] + 60))
    nodes = nodes_of(GRAPH)
    assert nodes is not None and not nodes.marks and ValuesSeen().split() is None
