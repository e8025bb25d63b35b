"""Notebooks: `%%graphdbg` records a cell and leaves all else as it is; displays and one-line reprs of what was
found."""

from __future__ import annotations

import atexit
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import graphdbg
from graphdbg.cli import run as command
from graphdbg.dumps.commands.display import in_cell, of_graph, of_run
from graphdbg.dumps.store import open_run
from graphdbg.minifier.minified import Minified
from graphdbg.toolkit.verdicts.ladder_records import RungResult, Triage
from graphdbg.toolkit.verdicts.outcome import Outcome
from graphdbg.toolkit.verdicts.verdict import Where, cannot_tell, fails

from ..dumps.graphs import STACK, chain, new_run
from ..dumps.test_page import HOSTILE

MODEL = """
import torch

def model(x):
    return torch.relu(x.sin() + 1) * 2 - x
"""
PLANTED = 'import torch._inductor.config as config\nconfig.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"\n'
CALL = "torch.manual_seed(0)\nx = torch.randn(4, 5)\ny = torch.compile(model)(x)\n"


class Shell:
    """One IPython, without a terminal."""

    def __init__(self) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        self.shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))

    def __call__(self, *lines: str) -> tuple[str, BaseException | None]:
        """What a cell printed and what it raised."""
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            result = self.shell.run_cell("\n".join(lines), store_history=True)
        return re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()), result.error_in_exec or result.error_before_exec


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """An IPython in a folder of its own, with graphdbg loaded; whatever it set in this process is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for name in ("displayhook", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    result = Shell()
    assert result("%load_ext graphdbg", "import torch") == ("", None)
    yield result
    atexit.unregister(result.shell.atexit_operations)


def graphs(run: str) -> list[str]:
    return [row.stage for row in open_run(run).rows]


def test_what_a_cell_compiles_is_recorded_and_its_error_is_the_users(shell: Shell) -> None:
    shell("torch._dynamo.reset()", "compiled = torch.compile(lambda x: x + 1, backend='eager')")
    said, error = shell(
        "%%graphdbg -o first --inputs first",
        "import asyncio",
        "y = compiled(torch.ones(3))",
        "await asyncio.sleep(0)",
        "1 / 0",
    )
    assert isinstance(error, ZeroDivisionError)
    assert "----> 5 1 / 0" in said and "notebook.py" not in said, said
    assert "recorded 1 graph of 1 process in first: dynamo 1" in said
    assert f"  {in_cell('graphdbg ls first')}\n" in said
    assert graphs("first") == ["dynamo"] and shell.shell.user_ns["y"].tolist() == [2.0] * 3

    said, error = shell("%%graphdbg", "compiled(torch.ones(3)).sum()")
    assert error is None and "tensor(6.)" in said
    assert (
        "nothing was compiled. Either the cell calls nothing compiled, or what it calls was compiled by an earlier"
        in said
    )
    said, error = shell("torch._dynamo.reset()", "compiled(torch.ones(3))")
    assert "graphdbg" not in said and error is None and graphs("graphdbg-run-1") == []


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("%%graphdbg --bogus", "No such option '--bogus'"),
        ("%%graphdbg -o 'a", "No closing quotation"),
        ("%%graphdbg --inputs some", "unknown inputs policy 'some'"),
        ("%%graphdbg -o taken", "taken"),
        ("%%graphdbg train.py", "unexpected extra argument"),
        ("%%graphdbg --help", "--inputs POLICY"),
    ],
)
def test_where_the_first_line_makes_no_sense_the_cell_is_not_run(shell: Shell, first: str, why: str) -> None:
    Path("taken").write_text("a file")
    said, error = shell(first, "ran = True")
    assert type(error).__name__ == "UsageError" and why in said, said
    assert "not run" in said and "Traceback" not in said and "ran" not in shell.shell.user_ns
    assert Path("taken").read_text() == "a file"


def test_a_terminal_waits_for_the_rest_of_the_cell(shell: Shell) -> None:
    assert shell.shell.check_complete("%%graphdbg -o run\n")[0] == "incomplete"


class Elements(HTMLParser):
    """Names of elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag, *(f"{tag}.{name}" for name, _ in attrs)]


KNOWN = {
    "div",
    "div.class",
    "style",
    "p",
    "p.class",
    "b",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "td.class",
    "pre",
    "pre.class",
}
BAD = fails("wrong_numbers", "inductor", f"bad {HOSTILE[0]}\nand more", Where("relu", line="model.py:5"))


class Tensor:
    """What is long to print."""

    def __repr__(self) -> str:
        return "tensor([[0.1,\n 0.2]])"


def saved_run(folder: Path) -> Path:
    """A run of one graph, whose user's line is an enemy's."""
    record = chain()
    record.strings = [STACK.replace("h.sin()", HOSTILE[0])]
    _, process = new_run(folder / "run")
    process.save_graph(record)
    process.close()
    return folder / "run"


def displayed(run: Path) -> dict[str, Any]:
    """Something of each kind that has a display, with texts of an enemy's."""
    bad: Any = Tensor()
    bad.code = "def forward(self):\n    " + HOSTILE[4]
    return {
        "graph": open_run(run).graphs()[0],
        "run": open_run(run),
        "outcome": Outcome(BAD.then(HOSTILE[3]), outputs=[bad], rung="inductor", notes=[*HOSTILE]),
        "triage": Triage(
            [RungResult(HOSTILE[2], BAD)],
            "inductor",
            "0_0/forward",
            HOSTILE[1],
            verdict=cannot_tell("\n".join(HOSTILE)),
        ),
        "minified": Minified(
            9, [], None, 3, 4, (3, 3), live=(bad, [bad]), original=(180, 99), verdict=BAD, notes=[*HOSTILE]
        ),
    }


@pytest.mark.parametrize("kind", ["graph", "run", "outcome", "triage", "minified"])
def test_displays_are_escaped_and_ask_for_nothing(kind: str, tmp_path: Path) -> None:
    result = displayed(saved_run(tmp_path))[kind]
    text = result._repr_html_()
    assert set(Elements(text).found) <= KNOWN
    assert not re.search(r"https?:|url\(|@import|<script|src=|href=", re.sub(r"&lt;.*?&gt;", "", text))
    assert "prefers-color-scheme: dark" in text and "[data-jp-theme-light=false] .graphdbg" in text
    plain = repr(result)
    assert "\n" not in plain and "tensor" not in plain.lower() and len(plain) < 220
    if kind == "graph":
        assert all(f">{said}<" in text for said in ("sin_1", "sin_0", "aten.sin", "f32[2, s0]", "model.py:12")), text


def test_what_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    run = saved_run(tmp_path)
    saved = open_run(run).graphs()[0]
    for file in saved.path.iterdir():
        file.write_bytes(b"no")
    assert "cannot read" in of_graph(saved) and "1 graph" in of_run(open_run(run))


@pytest.mark.slow
def test_a_notebook_records_what_the_script_does_and_finds_a_planted_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    saved = 'saved = graphdbg.open_run("cell").graph("0_0/inference")\n'
    cells = [
        "%load_ext graphdbg",
        "import graphdbg" + MODEL + PLANTED,
        "%%graphdbg -o cell --inputs first\n" + CALL + "y.shape",
        saved + "saved",
        "graphdbg.triage(saved)",
        "small = graphdbg.minify(saved.module(), saved.inputs(), max_time=200)\nsmall",
        "small.nodes",
        "small.passing is None",
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    NotebookClient(notebook, timeout=500, kernel_name="python3").execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert "torch.Size([4, 5])" in str(outputs[2]) and "recorded 5 graphs of 1 process in cell" in str(outputs[2])
    for shown in outputs[3:6]:
        assert set(shown[-1].data) == {"text/plain", "text/html"}
    assert "FAILS: wrong numbers" in outputs[4][-1].data["text/plain"] and "relu" in outputs[5][-1].data["text/html"]
    assert int(outputs[6][-1].data["text/plain"]) == 3
    assert outputs[7][-1].data["text/plain"] == "True" and "/passes" not in outputs[5][-1].data["text/html"]

    Path("script.py").write_text(MODEL + PLANTED + CALL)
    assert command(["dump", "-o", "script", "--inputs", "first", "script.py"]) == 0
    assert command(["diff", "cell", "script"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    with pytest.raises(SystemExit, match=r"^1$"):
        command(["replay", "cell", "--json", "--full"])
    judged = json.loads(capsys.readouterr().out)["graphs"]
    assert len(judged) == 5 and {item["verdict"] for item in judged} <= {"fails", "ok", "rounding"}
    assert {item["kind"] for item in judged if item["verdict"] == "fails"} == {"wrong_numbers"}


def test_the_extension_is_there_without_torch() -> None:
    assert graphdbg.load_ipython_extension.__module__ == "graphdbg.toolkit.commands.notebook"
