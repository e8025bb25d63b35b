"""A pass, a rung, a kind of argument and a screen are each added by one file: dropped into a copy of the package, where
nothing else is edited, each does its work in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .source_tree import ROOMS, ROOT

PASS = '''
"""Signs: inputs without negative numbers."""
import torch
from ...toolkit.live.case import Live
from . import Pass
from .symbolic import renewed

def propose(case):
    signed = [place for place, value in enumerate(case.inputs) if (value < 0).any()]
    return [[f"signs {place}" for place in signed]] if signed else []

def apply(case, edit):
    place = int(edit.split(" ")[1])
    inputs = [value.abs() if number == place else value for number, value in enumerate(case.inputs)]
    return renewed(case, case.gm, inputs)

PASS = Pass(
    order=5,
    words="inputs without negative numbers",
    edits={"signs *": "input {1} without its signs"},
)
'''
RUNG = '''
"""`shifted`: every relu is off by a half."""
from ..live.eager import run_graph
from ..live.rung import Rung

class Shifted(Rung):
    name = "shifted"

    def build(self, gm, fake_inputs, spec):
        off = 0.5 * any("relu" in str(node.target) for node in gm.graph.nodes)
        return lambda inputs: [value + off for value in run_graph(gm, inputs)]

RUNG = Shifted(order=35, words="eager, but for relu", meaning="The fault is in relu.", is_whole=True, has_passes=False)
'''
KIND = '''
"""Fractions."""
from fractions import Fraction
from .kind import Kind

class Ratio(Kind):
    def check(self, body, place, checker, inside):
        checker.argument(checker.items(body, place, 2), place, *inside)

    def shown(self, body, inner, strings=()):
        return f"{body[0]}/{body[1]}"

    def encode(self, value, encoder):
        return [value.numerator, value.denominator]

    def decode(self, body, decoder, where, depth):
        return Fraction(*body)

    def written(self, body, writer):
        return f"({body[0]} / {body[1]})"

    def drawn(self, body, inner):
        return f"{body[0]}/{body[1]}"

KINDS = (Ratio("ratio_of_this_test", [1, 2], "fractions.Fraction", schema="float"),)
'''
SCREEN = '''
"""Marks: a list of three lines."""
from ..actions import Action, Screen
from ..room import Room
from ..widgets.virtual_list import VirtualList

class MarksRoom(Room):
    ROOM = "marks"
    marked = 0

    def content(self):
        yield VirtualList()

    def equivalent(self):
        return ["ls"]

    def do_marks_add(self):
        self.marked += 1

SCREEN = Screen(
    digit="9",
    label="marks",
    help="What was marked.",
    of="nothing",
    about="a list of marks",
    actions=(Action("marks.add", "ctrl+x", "add a mark", "A mark more.", footer=True),),
)
'''
ADDED = {
    "minifier/passes/signs.py": PASS,
    "toolkit/rungs/shifted.py": RUNG,
    "dumps/arguments/fraction.py": KIND,
    "tui/screens/marks.py": SCREEN,
}
SAVING = """
import sys
from fractions import Fraction
import torch
from graphdbg.dumps.live import module, save_graph
from graphdbg.dumps.store import load_graph

def graph(factor):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.ops.aten.relu.default, (graph.call_function(torch.ops.aten.sin.default, (x,)),))
    graph.output((graph.call_function(torch.ops.aten.mul.Scalar, (relu, factor)),))
    return torch.fx.GraphModule({}, graph)

save_graph(graph(2.0), [torch.tensor([-2.0, 1.0, 2.0])], "case")
for name, factor in (("a", Fraction(1, 2)), ("b", Fraction(2, 3))):
    save_graph(graph(factor), [torch.ones(3)], name)
    saved = load_graph(name)
    live = module(saved.record, saved.tensors)
    assert [node.args[1] for node in live.graph.nodes if "mul" in node.name] == [factor]
"""
MINIFYING = """
from pathlib import Path
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.minify import minify_saved
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.passes import NAMES
without = ("needs", "explain", "polish", "together", *(name for name in NAMES if name != "signs"))
minify_saved(load_graph("case"), out=Path("out"), options=MinifyOptions(rung="shifted", verify=0, without=without))
"""
SHOWING = """
import asyncio
from graphdbg.tui.app import Workbench
from graphdbg.tui.here import Here
from graphdbg.tui.registry import REGISTRY, ROOMS, room_of
from graphdbg.tui.screens.help import keys_text, matching
from graphdbg.tui.screens.palette import likeness

async def story():
    app = Workbench(room_of("home", Here()))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("9")
        assert app.room.ROOM == "marks", app.room
        await pilot.press("ctrl+x")
        assert app.room.marked == 1
        await pilot.press("escape")
        await app.perform_in("marks", "marks.add")
        await pilot.pause()
        assert app.room.marked == 2

asyncio.run(story())
assert "marks" in ROOMS
assert [keys_text(line) for line in matching("marks", "mark more")] == ["ctrl+x"]
assert max(REGISTRY, key=lambda action: likeness("add mark", action)).id == "marks.add"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package that has the four files, and the cases of SAVING."""
    folder = tmp_path_factory.mktemp("adding")
    package = folder / "graphdbg"
    for room in ROOMS:
        source = ROOT / room
        if source.is_dir():
            shutil.copytree(source, package / room)
    for file in ROOT.glob("*.py"):
        shutil.copy2(file, package)
    for name, text in ADDED.items():
        assert not (package / name).exists(), f"{name} is there already"
        (package / name).write_text(text.lstrip())
    assert python(folder, SAVING).returncode == 0
    return folder


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in a process, with the package of a folder: a program, or the words of a command of graphdbg's."""
    program = ["-c", *words] if "\n" in words[0] else ["-m", "graphdbg", *words]
    environment = os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, *program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.long
def test_a_rung_is_run_and_a_pass_is_used(place: Path) -> None:
    done = python(place, "replay", "case", "--rung", "shifted", "--json")
    assert json.loads(done.stdout)["verdict"] == "fails", done.stdout
    assert python(place, MINIFYING).returncode == 0
    events = [json.loads(line) for line in (place / "out" / "events.jsonl").read_text().splitlines()]
    steps = {event["step"]: event["words"] for event in events if event["event"] == "step"}
    assert steps["signs"] == "inputs without negative numbers"
    assert "signs 0" in json.dumps(events)


def test_a_kind_of_argument_is_saved_compared_and_printed(place: Path) -> None:
    assert '{"ratio_of_this_test":[1,2]}' in (place / "a" / "graph.json").read_text().replace(" ", "")
    done = python(place, "diff", "a", "b")
    assert "1/2 -> 2/3" in done.stdout, done.stdout + done.stderr
    assert "(1 / 2)" in python(place, "show", "a", "--code").stdout


def test_a_screen_opens_and_has_its_help(place: Path) -> None:
    done = python(place, SHOWING)
    assert done.returncode == 0, done.stdout + done.stderr
