"""Every `--json` answer fits the tables of docs/json.md, has commands to paste and at most 6 kB; --full gives all of
it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from graphdbg import cli
from graphdbg.dumps import answers

from .answers import MOST_BYTES, checked, misfits, pasted, tables
from .source_tree import ROOT

PLANTED = """
import torch
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"

def f(x, w):
    for _ in range(40):
        x = torch.sin(x) + 1
    return torch.relu(x @ w - 2).sum()

x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
torch.compile(f)(x, w).backward()
"""
QUICK = {
    "ls": "ls",
    "ls RUN": "ls run",
    "ls RUN --why": "ls run --why",
    "ls RUN --time": "ls run --time",
    "show RUN/ID": "show run/0_0/forward",
    "show RUN/ID --stats": "show run/0_0/forward --stats",
    "show RUN/ID --code": "show run/0_0/forward --code",
    "show RUN/ID --kernel": "show run/0_0/forward --kernel",
    "show RUN/ID --node": "show run/0_0/forward --node mm",
    "show RUN/ID --node --hops": "show run/0_0/forward --node mm --hops 1",
    "show RUN/ID --filter": "show run/0_0/forward --filter op:mm",
    "diff A B": "diff run/0_0/dynamo run/0_0/forward",
    "diff A B --side-by-side": "diff run/0_0/dynamo run/0_0/forward --side-by-side",
    "pack RUN": "pack run --preview",
    "draw RUN/ID": "draw run/0_0/forward -o graph.dot",
    "doctor --skill": "doctor --skill",
    "doctor --clean": "doctor --clean --dry-run",
    "report --preview": "report run/0_0/forward --preview",
}
"""Heading of docs/json.md -> a command line that is answered without torch."""
SLOW = {
    "triage RUN": "triage run",
    "triage RUN/ID": "triage run/0_0/forward",
    "replay RUN/ID": "replay run/0_0/forward",
    "replay RUN": "replay run",
    "replay RUN/ID --values": "replay run/0_0/forward --values",
    "replay RUN/ID --at": "replay run/0_0/forward --at mm",
    "check RUN/ID": "check run/0_0/forward",
    "check RUN": "check run",
    "compile RUN/ID": "compile run/0_0/forward",
    "kernel RUN/ID --check": "kernel run/0_0/forward --check",
    "same A B": "same run/0_0/forward run/0_0/forward",
    "minify": "minify run/0_0/forward -o small --max-time 120",
    "bisect RUN/ID": "bisect small",
    "verify OUT": "verify small",
    "report OUT": "report small",
    "report RUN/ID": "report run/0_0/forward -o whole",
    "steer OUT": "steer small",
    "report --as-test": "report small -o test --as-test",
    "import FILE": "import small/case/graph.py --trust -o mine",
    "doctor": "doctor",
}
ELSEWHERE = {
    "show RUN/ID --save",
    "triage -- CMD",
    "minify -- CMD",
    "import TRACE",
    "kernel RUN/ID",
    "demo",
    "steer OUT ORDER",
}
"""Answered by a test of their own (a trace's lies where traces are tested), or not held against their tables yet."""


@pytest.fixture
def folder(recorded_script: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(recorded_script(PLANTED, inputs="first"), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", QUICK)
def test_an_answer_without_torch_fits(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(name, QUICK[name], capsys)


@pytest.mark.slow
def test_the_answers_of_one_failure_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong: list[object] = []
    for name, line in SLOW.items():
        try:
            checked(name, line, capsys)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong


@pytest.mark.slow
@pytest.mark.own_server
def test_the_answer_of_a_cut_fits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked("show RUN/ID --save", "show run/0_0/forward --find relu --save part", capsys)


@pytest.mark.slow
def test_the_answer_about_a_program_fits(tmp_path: Path) -> None:
    (tmp_path / "healthy.py").write_text("import torch\nf = torch.compile(lambda x: x.sin() * 2)\nf(torch.randn(8))\n")
    words = [sys.executable, "-m", "graphdbg", "triage", "--json", "-o", "out", "--", sys.executable, "healthy.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert misfits("triage -- CMD", json.loads(done.stdout)) == []


def test_every_table_is_tested() -> None:
    shared = set(re.findall(r"^### (.+)$", (ROOT / "docs" / "json.md").read_text(), re.M))
    asked = {*QUICK, *SLOW, *ELSEWHERE}
    untested, missing = sorted(set(tables()) - shared - asked), sorted(asked - set(tables()))
    assert not untested, f"tables of docs/json.md without a command line in QUICK or SLOW of this file: {untested}"
    assert not missing, f"command lines of this file without a table `## ...` in docs/json.md: {missing}"


def test_every_command_with_json_has_a_table() -> None:
    described = {heading.split()[0] for heading in tables()}
    commands = [cli.graphdbg.get_command(click.Context(cli.graphdbg), name) for name in cli.COMMANDS]
    printing = {
        command.name for command in commands if command and any("--json" in option.opts for option in command.params)
    }
    missing = sorted(str(name) for name in printing - described)
    assert not missing, f"give these commands a table in docs/json.md and a line in QUICK or SLOW here: {missing}"


def test_what_is_cut_is_counted_and_full_gives_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = checked("show RUN/ID", "show run/0_0/forward", capsys)
    assert short["next"][-1] == "graphdbg show --full --json run/0_0/forward"
    assert cli.run(shlex.split(short["next"][-1])[1:]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert len(whole["nodes"]) == len(short["nodes"]) + short["cut"]["nodes"] and "cut" not in whole
    assert whole["nodes"][: len(short["nodes"])] == short["nodes"]


@pytest.mark.parametrize(
    "data",
    [
        {"text": "x" * 50_000},
        {"list": ["é" * 100] * 9_000},
        {"map": {str(n): n for n in range(9_000)}},
        {"rows": [{"notes": ["y" * 900] * 9, "name": str(n)} for n in range(300)]},
        {"one": [{"text": "z" * 9_000}]},
        {str(n): "w" * 470 for n in range(30)},
        {"tuple": tuple(range(9_000)), "verdict": "fails"},
    ],
)
def test_any_answer_is_short(data: dict[str, Any]) -> None:
    before = json.dumps(data)
    with click.Context(click.Command("ls")) as context:
        answers.typed(context, ["ls", "run", "--json"])
        short = answers.finished(data, ["graphdbg ls"], json.dumps)
        assert len(json.dumps(short)) <= MOST_BYTES
        assert short["cut"] and short["next"] == ["graphdbg ls", "graphdbg ls --full run --json"]
        context.meta["graphdbg.full"] = True
        assert answers.finished(data, [], json.dumps) == {**data, "next": []}
    assert json.dumps(data) == before


def test_the_skill_is_short_and_its_commands_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--skill"]) == 0
    text = Path(capsys.readouterr().out.strip()).read_text(encoding="utf-8")
    assert text.startswith("---\nname: graphdbg\ndescription: ") and len(text.splitlines()) <= 120
    commands = re.findall(r"`(graphdbg [^`]+)`", text)
    assert len(commands) > 20
    for command in commands:
        pasted(command.replace("...", "train.py"))
