"""V: the graph.py of a graph in the editor, what was changed as a case, judged, and shown beside the graph."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.pilot import Pilot

from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.tui.app import Workbench
from graphdbg.tui.jobs import Job
from graphdbg.tui.screens.diff.room import DiffRoom

from ..dumps.graphs import chain
from .stories import ROOMS, key, play, shown, until
from .test_story import Terminal

EDITOR = """
import pathlib, sys
line, file = sys.argv[-2:]
text = pathlib.Path(file).read_text()
open("edits", "a").write(line + " " + text.splitlines()[int(line) - 1].strip() + chr(10))
old, new = pathlib.Path("wanted").read_text().split("|")
pathlib.Path(file).write_text(text.replace(old, new))
"""
JUDGED = """
import json, os, sys, time
while sys.argv[1].startswith("graphdbg-variant") and not os.path.exists("go"): time.sleep(0.01)
where = {"node": "sin_1"}
fails = {"verdict": "fails", "kind": "wrong_numbers", "fault": "compiler", "layer": "inductor", "where": where}
ok = {"verdict": "ok", "reason": ""}
print(json.dumps({"event": "end", "first_failing": "nop", **(fails if sys.argv[1].startswith("myrun") else ok)}))
"""


@pytest.fixture
def editor(work: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], object]:
    """Sets what the editor replaces by what; the screen of a test cannot be lent, so the editor runs beside it."""
    (work / "editor.py").write_text(EDITOR)
    monkeypatch.setenv("EDITOR", shlex.join([sys.executable, "-S", str(work / "editor.py")]))
    monkeypatch.setattr(Workbench, "suspend", lambda _: contextlib.nullcontext())
    return lambda old, new: (work / "wanted").write_text(f"{old}|{new}")


async def at_sin_1(app: Workbench) -> None:
    await until(app, lambda: "sin_2" in shown(app), "the nodes")
    for _ in range(2):
        await key(app, "j", lambda: True)
    await until(app, lambda: app.here.node == "sin_1", "the cursor")


def test_a_change_is_a_case_that_is_judged_and_shown_beside(
    work: Path, editor: Callable[[str, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = chain()
    result.graph.nodes[2].target = "aten.cos.default"
    write_graph_folder(work / "made", result)
    programs = {"import": "import shutil, sys; shutil.copytree('made', sys.argv[5])", "triage": JUDGED}

    def command(words: list[str]) -> list[str]:
        own = ["-S", "-c", programs[words[0]]] if words[0] in programs else ["-m", "graphdbg", words[0]]
        return [sys.executable, *own, *words[1:]]

    monkeypatch.setattr("graphdbg.tui.jobs.command_of", command)
    Job(["triage", "myrun/0_0/forward", "--rungs", "nop", "--seed", "3", "--import", "json", "--json-lines"]).wait(20)

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await at_sin_1(app)
        editor("sin_1 = aten.sin", "sin_1 = aten.cos")
        await key(app, "V", lambda: isinstance(app.room, DiffRoom))
        await until(app, lambda: "A ✗ wrong numbers at sin_1, B ▶ triage runs" in shown(app), "what is judged")
        assert app.here.other == "graphdbg-variant-1" and not app.drafts
        Path("go").touch()
        await until(app, lambda: "A ✗ wrong numbers at sin_1, B ✓ ok" in shown(app), "both verdicts", 20)
        await until(app, lambda: "target: aten.sin.default -> aten.cos.default" in shown(app), "the difference")
        lines = [job.line for job in app.jobs if not job.passing]
        graph = (
            "graphdbg import graphdbg-variant-1.py --like myrun/0_0/forward -o graphdbg-variant-1 --import json --trust"
        )
        ladder = "graphdbg triage graphdbg-variant-1 --rungs nop --all --seed 3 --import json --json-lines"
        assert sorted(lines) == [graph, ladder]
        assert Path("edits").read_text() == "+27 sin_1 = aten.sin.default(sin_0)\n"
        editor("cos", "tan")  # of the variant, which is the newer of both
        await until(app, lambda: app.room is not None and app.room.looked_at().node == "sin_1", "the cursor")
        await key(app, "V", lambda: app.here.other == "graphdbg-variant-2")
        assert app.here.graph == "graphdbg-variant-1"

    play(story, ROOMS["graph"](), (120, 30))
    assert "cos" in Path("graphdbg-variant-1.py").read_bytes().decode()


def test_nothing_changed_and_a_text_that_is_no_python(work: Path, editor: Callable[[str, str], object]) -> None:
    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await at_sin_1(app)
        editor("x", "x")
        await key(app, "V", lambda: any("Nothing was changed." in note.message for note in app._notifications))
        assert not list(Path.cwd().glob("graphdbg-variant*")) and not app.drafts
        editor("sin_0 = aten.sin.default(x)", "sin_0 = aten.sin.default(x")
        await key(app, "V", lambda: "V opens your text again" in shown(app))
        assert "sin_0 = aten.sin.default(x: '(' was never closed" in " ".join(shown(app).split())
        await key(app, "escape", lambda: "V opens" not in shown(app))
        editor("nothing", "nothing")
        times = app.troubles[-1].times
        await key(app, "V", lambda: app.troubles[-1].times == times + 1)
        assert (
            Path("edits").read_text().splitlines()[-1] == "+26 sin_0 = aten.sin.default(x"
        )  # what is wrong, not the cursor
        editor("default(x\n", "default(x)\n")
        await key(app, "escape", lambda: "V opens" not in shown(app))
        await key(app, "V", lambda: not app.drafts)  # as it was before: nobody's words are in it
        assert not list(Path.cwd().glob("graphdbg-variant*"))

    play(story, ROOMS["graph"](), (120, 40))


@pytest.mark.parametrize("editor_is", ["", "/no/such/editor", "false"])
def test_without_an_editor_nothing_is_left(
    editor_is: str, work: Path, editor: Callable[[str, str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", editor_is)
    reported = {"": "neither VISUAL nor EDITOR", "false": "ended with exit code 1"}.get(editor_is, "cannot be started")

    async def story(pilot: Pilot[None], app: Workbench) -> None:
        await until(app, lambda: "sin_2" in shown(app), "the nodes")
        await key(app, "V", lambda: reported in shown(app))
        assert not list(work.glob("graphdbg-variant*")) and not app.drafts and not app.jobs

    play(story, ROOMS["graph"]())


PROGRAM = """
import torch
inf = float("inf")
def least(pixels):
    return pixels.amin(0)
def pages(total, size):
    return torch.div(total, size, rounding_mode="floor")
def scaled(mantissa, exponent):
    return torch.ldexp(mantissa, exponent)
torch.compile(least)(torch.arange(40, 4, -1, dtype=torch.uint8) * 5 % 251)
torch.compile(pages)(torch.tensor([inf, -inf, -3.5, 5.0] * 8), torch.tensor([2.0, 1.0, inf, 2.0] * 8))
torch.compile(scaled)(torch.linspace(-2, 2, 12).half(), torch.linspace(0, 3, 12))
"""
CAST = "torch.ops.prims.convert_element_type.default"
DIV = "aten.div.Tensor"
BUGS = {
    "0_0": ("amin", "wrong numbers", "amin.default(arg0_1", f"amin.default({CAST}(arg0_1, torch.int32)"),
    "1_0": (
        "div",
        "NaN",
        "div.Tensor_mode(arg0_1, arg1_1, rounding_mode='floor')",
        f"floor.default({DIV}(arg0_1, arg1_1))",
    ),
    "2_0": ("ldexp", "metadata", "(arg0_1, arg1_1)", f"({CAST}(arg0_1, torch.float32), arg1_1)"),
}
"""Frame -> the node at fault, how it is wrong, what a person writes in place of what."""


@pytest.mark.slow
@pytest.mark.parametrize("frame", BUGS)
def test_from_the_failing_graph_to_a_variant_that_passes(frame: str, tmp_path: Path) -> None:
    if shutil.which("tmux") is None:
        pytest.skip("no tmux on this machine")
    node, wrong, old, new = BUGS[frame]
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "editor.py").write_text(EDITOR)
    (tmp_path / "wanted").write_text(f"{old}|{new}")
    words = [sys.executable, "-m", "graphdbg", "dump", "-o", "myrun", "--inputs", "first", "program.py"]
    subprocess.run(words, check=True, cwd=tmp_path, capture_output=True, timeout=300)
    homes = [f"{name}={os.environ[name]}" for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME")]
    editor = f"EDITOR={shlex.join([sys.executable, str(tmp_path / 'editor.py')])}"
    graph = f"myrun/{frame}/inference"
    program = ["env", "-u", "COLUMNS", "-u", "LINES", *homes, editor, sys.executable, "-m", "graphdbg", "tui", graph]
    terminal = Terminal(f"{shlex.join(program)}; echo ended with $?; sleep 60", tmp_path)
    try:
        terminal.until(node, "? all")
        terminal.keys("4")
        terminal.until("[4 Replay", "13 of 13 rungs")
        terminal.keys("a", "Space")
        terminal.until("[x]  inductor", "1 of 13 rungs")
        terminal.keys("r")
        terminal.until(f"✗ fails: {wrong}", "Ladder", limit_s=180)
        terminal.keys("2")
        terminal.until("[2 Graph", f"✗{node}")
        terminal.keys("!")
        terminal.until(f"› {node}")
        terminal.keys("V")
        terminal.until("[3 Diff", f"✗ {wrong} at {node}, program.py", "B ▶ triage runs", limit_s=120)
        seen = terminal.until(f"A ✗ {wrong} at {node}, program.py", ", B ✓ ok", "B graphdbg-variant-1", limit_s=180)
        assert "only B" in seen or "~ changed" in seen
    finally:
        terminal.end()
    assert node in (tmp_path / "edits").read_text()  # the editor was at the line of the node
    judged = [sys.executable, "-m", "graphdbg", "triage", "graphdbg-variant-1", "--rungs", "inductor", "--all"]
    assert subprocess.run(judged, cwd=tmp_path, capture_output=True, timeout=300, check=False).returncode == 0
    compared = subprocess.run(
        [sys.executable, "-m", "graphdbg", "diff", graph, "graphdbg-variant-1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert compared.returncode == 1 and node in compared.stdout
