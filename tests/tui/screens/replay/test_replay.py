"""Replay: rungs and values as they come, jobs that die or are stopped, the last ladder found again; one real
command."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from textual.pilot import Pilot
from torch import fx

from graphdbg.dumps.live import save_graph
from graphdbg.toolkit.node_values.seen import ValuesSeen
from graphdbg.toolkit.triage.seen import LadderSeen
from graphdbg.toolkit.verdicts.ladder_records import RungResult
from graphdbg.toolkit.verdicts.signature import Signature
from graphdbg.toolkit.verdicts.verdict import Where, fails, judged, skipped
from graphdbg.tui import job_files
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.screens.graph.room import GraphRoom
from graphdbg.tui.screens.minify.room import MinifyRoom
from graphdbg.tui.screens.replay.room import ReplayRoom

from ...stories import FORWARD, key, play, shown, until

WRONG = Signature("accuracy", "compare", size=0.03)
RUNGS = [
    {"event": "start", "rungs": ["eager", "lazy", "inductor"]},
    {"event": "running", "rung": "eager"},
    RungResult("eager", error=1e-7, eager_error=1e-7, seconds=0.1, peak_bytes=9999).event(),
    RungResult("lazy", skipped("no kernel: sin")).event(),
    {"event": "running", "rung": "inductor"},
    "WAIT",
    RungResult("inductor", judged(WRONG, "inductor"), error=0.03, eager_error=1e-7).event(),
    {
        "event": "end",
        "first_failing": "inductor",
        "summary": "`inductor` is wrong.",
        "next": ["graphdbg bisect myrun/0_0/forward"],
    },
]
VALUES = [
    {"event": "start", "rung": "inductor", "nodes": 5},
    *(
        {
            "event": "value",
            "index": place,
            "name": name,
            "dtype": "float32",
            "min": -1.5,
            "max": 2.5,
            "mean": 0.0,
            "nan": nan,
            "inf": 0,
            "eager_nan": 0,
            "eager_inf": 0,
            "reference_nan": 0,
            "reference_inf": 0,
            "error": error,
            "eager_error": 1e-8,
        }
        for place, (name, nan, error) in enumerate(
            [("x", 0, None), ("sin_0", 0, 1e-8), ("sin_1", 0, 0.5), ("sin_2", 7, 0.6)]
        )
    ),
    {
        "event": "end",
        "first_bad": {"name": "sin_1"},
        "wrong": ["sin_1", "sin_2"],
        "relation": "same",
        "rows": 4,
        "sentence": "First bad node: `sin_1`.",
    },
]
SCRIPT = """
import json, os, sys, time
for line in json.load(open(sys.argv[1])).get(sys.argv[2], []):
    if line == "WAIT":
        while not os.path.exists("go"): time.sleep(0.01)
    elif line == "DIE": os.kill(os.getpid(), 9)
    elif isinstance(line, str): print(line, file=sys.stderr, flush=True)
    else: print(json.dumps(line), flush=True)
"""


@pytest.fixture
def commands(work: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What the commands say, by name, in real processes; to be changed by a test before they start."""
    said: dict[str, list[Any]] = {"triage": RUNGS, "replay": VALUES}

    def command(words: list[str]) -> list[str]:
        (work / "said.json").write_text(json.dumps(said))
        return [sys.executable, "-S", "-c", SCRIPT, str(work / "said.json"), words[0]]

    monkeypatch.setattr("graphdbg.tui.jobs.command_of", command)
    return said


def room() -> ReplayRoom:
    return ReplayRoom(FORWARD)


def test_rungs_and_values_fill_as_they_come(commands: dict[str, list[Any]]) -> None:
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "r", lambda: replay.jobs.ladder.running == "inductor")
        await until(pilot, lambda: "▶ runs ..." in shown(app) and "1 running" in shown(app), "the rung that runs")
        assert "because no kernel: sin" in shown(app)
        assert replay.can("replay.stop")
        Path("go").touch()
        await until(pilot, lambda: not replay.jobs.slots["triage"].runs, "the end of the ladder")
        await until(
            pilot,
            lambda: "✗ fails: wrong numbers" in shown(app) and "`inductor` is wrong." in shown(app),
            "the finding",
        )
        assert replay.jobs.slots["triage"].line == "graphdbg triage myrun/0_0/forward --json-lines"
        assert replay.commands.failing() == "inductor"
        await key(app, "v", lambda: "values" in replay.jobs.slots and not replay.jobs.slots["values"].runs)
        await until(pilot, lambda: "✗1" in shown(app) and "FIRST BAD" in shown(app), "the first bad node")
        assert replay.nodes.cursor == 2
        await key(app, "exclamation_mark", lambda: replay.nodes.cursor == 3)
        await key(app, "exclamation_mark", lambda: replay.nodes.cursor == 2)  # round
        await key(app, "enter", lambda: isinstance(app.screen, GraphRoom))
        graph = app.screen
        assert isinstance(graph, GraphRoom)
        await until(pilot, lambda: graph.view is not None and len(graph.view.values) == 4, "the values as columns")
        assert graph.here.node == "sin_1"

    app = play(story, replay, (120, 40))
    assert app.values["myrun/0_0/forward"].columns()["sin_2"][:5] == (-1.5, 2.5, 7, 0, 0.6)
    assert app.troubles == []


@pytest.mark.parametrize("node", ["sin_1", ""])
def test_one_key_goes_from_what_was_found_to_the_node(commands: dict[str, list[Any]], node: str) -> None:
    """Bisect names a node, or the failure is at the graph's result; no values were read."""
    result = fails("wrong_numbers", "inductor", "relative error 2", Where(node) if node else None)
    commands["bisect"] = [{"rung": "inductor", "sentence": "it is wrong", **result.flat()}]
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        assert not replay.can("replay.next_bad")
        await key(app, "B", lambda: "bisect" in replay.jobs.slots and not replay.jobs.slots["bisect"].runs)
        assert replay.can("replay.next_bad")
        await key(app, "exclamation_mark", lambda: isinstance(app.screen, GraphRoom))
        graph = app.screen
        assert isinstance(graph, GraphRoom)
        wanted = node or "output"
        await until(
            pilot, lambda: graph.view is not None and graph.table.node == graph.view.position(wanted), "the node"
        )
        await until(pilot, lambda: "✗ bisect inductor: it is wrong" in graph.status.right, "why")

    play(story, replay, (120, 40))


def test_a_killed_job_is_a_row_and_everything_goes_on(commands: dict[str, list[Any]]) -> None:
    commands["triage"] = [*RUNGS[:5], "graphdbg: about to go", "DIE"]
    commands["replay"] = [*VALUES[:3], "DIE"]
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "r", lambda: "triage" in replay.jobs.slots and not replay.jobs.slots["triage"].runs)
        await until(
            pilot, lambda: "was killed by SIGKILL" in shown(app) and "1 error: E" in shown(app), "what became of it"
        )
        assert (replay.jobs.ladder.cells("eager").verdict, replay.jobs.ladder.cells("inductor").verdict) == (
            "ok",
            "cannot tell",
        )
        assert replay.panel is not None and not replay.panel.shown  # it does not jump in front
        await key(app, "v", lambda: "values" in replay.jobs.slots and not replay.jobs.slots["values"].runs)
        await until(pilot, lambda: "the 2 rows so far stand" in shown(app), "the rows before")
        await key(app, "E", lambda: replay.panel is not None and replay.panel.shown)
        commands["triage"] = [line for line in RUNGS if line != "WAIT"]
        await key(app, "escape", lambda: replay.panel is not None and not replay.panel.shown)
        await key(app, "r", lambda: replay.jobs.ladder.first_failing == "inductor")

    app = play(story, replay)
    assert "about to go" in app.troubles[0].text


def test_a_job_killed_from_outside_and_one_that_is_stopped(commands: dict[str, list[Any]]) -> None:
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "r", lambda: replay.jobs.ladder.running == "inductor")
        job = replay.jobs.slots["triage"].job
        assert job is not None and job._process is not None
        os.killpg(job._process.pid, signal.SIGKILL)
        await until(pilot, lambda: not replay.jobs.slots["triage"].runs, "its end")
        assert "killed by SIGKILL" in replay.jobs.ladder.cells("inductor").said
        await key(app, "r", lambda: replay.jobs.ladder.running == "inductor")
        await key(app, "x", lambda: not replay.jobs.slots["triage"].runs)
        await until(
            pilot, lambda: "the ladder was stopped; the rungs so far stand" in shown(app), "that it was stopped"
        )

    app = play(story, replay)
    assert len(app.troubles) == 1  # the kill; what was asked for is no error


def test_bisect_is_told_while_it_looks_and_minify_takes_over(commands: dict[str, list[Any]]) -> None:
    commands["triage"] = [line for line in RUNGS if line != "WAIT"]
    results = {"sentence": "First wrong node: `sin_1`.", "next": ["go on"]}
    commands["bisect"] = ["compile 1 of at most 8: the whole graph", "WAIT", results]
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "r", lambda: replay.jobs.ladder.first_failing == "inductor")
        await key(app, "B", lambda: "compile 1 of at most 8" in shown(app))
        assert replay.jobs.slots["bisect"].runs
        assert replay.jobs.slots["bisect"].line == "graphdbg bisect myrun/0_0/forward --rung inductor --json"
        Path("go").touch()
        await until(
            pilot, lambda: "First wrong node: `sin_1`." in shown(app) and "Next: go on" in shown(app), "the finding"
        )
        await key(app, "right_square_bracket", lambda: replay.kind == "triage")
        await key(app, "m", lambda: isinstance(app.screen, MinifyRoom))
        assert app.here.graph == "myrun/0_0/forward"

    play(story, replay)


def test_the_last_ladder_is_found_again_with_its_age(commands: dict[str, list[Any]]) -> None:
    Path("go").touch()
    first, second = room(), room()

    async def run(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "r", lambda: "triage" in first.jobs.slots and not first.jobs.slots["triage"].runs)

    async def look(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: second.jobs.ladder.first_failing == "inductor", "the last ladder")
        await until(pilot, lambda: " ago" in shown(app) and "✗ fails: wrong numbers" in shown(app), "its age")

    play(run, first)
    play(look, second)


def test_the_rungs_that_a_triage_of_the_run_ran_are_there(work: Path) -> None:
    rungs = [{**line, "graph": "0_0/forward"} for line in RUNGS if isinstance(line, dict) and line["event"] == "rung"]
    job_files.keep(["triage", "myrun"], time.time(), "myrun", "myrun", rungs, 1)

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(pilot, lambda: "✗ fails: wrong numbers" in shown(app) and "no kernel" in shown(app), "them")

    play(story, room())


def test_ticks_and_choices_make_the_command(commands: dict[str, list[Any]]) -> None:
    replay = room()

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "a", lambda: not replay.commands.ticked)
        await key(app, "r", lambda: replay.panel is not None and replay.panel.shown)
        await key(app, "space", lambda: replay.commands.ticked == {"inductor"})
        await key(app, "home", lambda: replay.rung == "eager")
        await key(app, "space", lambda: replay.commands.ticked == {"inductor", "eager"})
        replay.commands.seed, replay.commands.device, replay.commands.imports = 3, "cpu", "my_ops"
        some = ["triage", "myrun/0_0/forward", "--rungs", "eager,inductor", "--all"]
        assert replay.equivalent() == [*some, "--seed", "3", "--device", "cpu", "--import", "my_ops"]
        for width, height in ((60, 20), (250, 80), (80, 24)):
            await pilot.resize_terminal(width, height)
            await until(
                pilot, lambda wide=width: f"{'rung':<19}" in shown(app) and app.size.width == wide, "another size"
            )
            assert replay.nodes.size.height >= 1 and replay.rungs.size.height >= 3

    play(story, replay)


def test_extra_outputs_that_hide_the_failure_mark_nothing() -> None:
    seen = ValuesSeen()
    for line in [*VALUES[:-1], {**VALUES[-1], "relation": "gone", "first_bad": None, "wrong": []}]:
        seen.take(line)
    assert (seen.marked, seen.bad, seen.mark(2)) == (False, [], "")
    assert seen.mark(3) == "NaN"


def test_a_ladder_without_its_end_keeps_its_rungs() -> None:
    ladder = LadderSeen()
    for line in RUNGS[:5]:
        assert isinstance(line, dict)
        ladder.take(line)
    ladder.lost("was killed by SIGSEGV")
    assert (ladder.cells("eager").tone, ladder.cells("inductor").verdict, ladder.running) == ("ok", "cannot tell", "")
    assert ladder.cells("triton_interpret").said == ""


@pytest.mark.long
def test_the_real_command(work: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [(x * 40000.0) / 3.0]

    save_graph(fx.symbolic_trace(Net()), [torch.ones(4, dtype=torch.float16) * 2], work / "case")
    replay = ReplayRoom(Here(graph="case"))

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await key(app, "home", lambda: replay.rung == "eager")
        await key(app, "v", lambda: "values" in replay.jobs.slots)
        await until(pilot, lambda: not replay.jobs.slots["values"].runs, "the end", 120.0)

    app = play(story, replay)
    assert app.troubles == []
    assert [row.name for row in replay.jobs.values.rows] == ["x", "mul", "truediv"]
    assert replay.jobs.values.end["first_bad"]["kind"] == "overflow"
    assert replay.jobs.values.first_bad == 1


def test_rungs_keep_their_verdicts_when_others_run_and_a_stop_keeps_what_was_known() -> None:
    ladder = LadderSeen(rows={"inductor": fails("wrong_numbers", "inductor", "off").flat(row=True)})
    ladder.take({"event": "running", "rung": "eager"})
    ladder.lost("was stopped", stopped=True)
    assert ladder.first_failing == "inductor" and ladder.cells("eager").verdict == ""
    ladder.take({"event": "running", "rung": "inductor"})
    ladder.lost("was stopped", stopped=True)
    assert ladder.cells("inductor").failed
