"""`--check 'cmd: ...'`: what each exit code means, what is kept, and that nothing outlives a query. Real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.cli import run as command
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.minifier.minify import TASK, CommandOracle
from graphdbg.minifier.options import MinifyOptions
from graphdbg.minifier.search.problem import Answer, Ruling
from graphdbg.toolkit.isolation import ForkServer

pytestmark = pytest.mark.long  # all share one recording

CHECK = """
import json, sys
graph = json.load(open(sys.argv[1] + "/graph.json"))["graph"]
ops = [node.get("target", "") for node in graph["nodes"]]
has = lambda name: any(name in op for op in ops)
print("seen", len(ops), "nodes")
if has("aten.relu") and has("aten.tanh"):
    sys.exit(1)
sys.exit(3 if has("aten.relu") else 0)
"""


def network() -> tuple[fx.GraphModule, list[Any]]:
    def f(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor]:
        for weight in weights:
            x = torch.sin(x @ weight) + x
        x = torch.tanh(torch.relu(x))
        for weight in weights:
            x = torch.cos(x @ weight) + x
        return (x,)

    inputs = [torch.randn(4, 6), *(torch.randn(6, 6) for _ in range(4))]
    return make_fx(f)(*inputs), inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a blank in its name that holds a case, a command, and a finished minification."""
    place = tmp_path_factory.mktemp("a folder")
    save_graph(*network(), place / "case")
    (place / "check.py").write_text(CHECK)
    done = run(place, f"{shlex.quote(sys.executable)} check.py {{case}}", "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    (place / "lines").write_text(done.stdout)
    return place


def run(place: Path, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "graphdbg", "minify", "case", "--check", f"cmd: {command}", *more]
    return subprocess.run(words, cwd=place, capture_output=True, text=True)


def test_the_command_alone_decides(folder: Path) -> None:
    ops = [node.target for node in load_graph(folder / "out").record.graph.nodes if node.op == "call_function"]
    assert ops == ["aten.relu.default", "aten.tanh.default"]
    last = json.loads((folder / "lines").read_text().splitlines()[-1])
    assert last["verified"] == [3, 3]
    assert last["signature"].startswith("command: exit code 1")
    assert sum(last["asked"].values()) == last["queries"]


def test_other_endings_are_kept_as_cases_with_the_command_that_minifies_them(folder: Path) -> None:
    last = json.loads((folder / "lines").read_text().splitlines()[-1])
    [other] = [other for other in last["others"] if "exit code 3" in other["signature"]]
    assert other["count"] > 0
    case = load_graph(folder / other["case"])
    assert any(node.target == "aten.relu.default" for node in case.record.graph.nodes)
    words = shlex.split(other["command"])
    assert words[:5] == ["graphdbg", "minify", "out/also/1-command", "-o", "out-also-1"]
    assert words[5:] == ["--check", f"cmd: {shlex.quote(sys.executable)} check.py {{case}}"]


def test_the_nearest_passing_case_is_kept_and_told(folder: Path) -> None:
    last = json.loads((folder / "lines").read_text().splitlines()[-1])
    ops = [node.target for node in load_graph(folder / last["passes"]).record.graph.nodes if node.op == "call_function"]
    assert ops == ["aten.sigmoid.default", "aten.tanh.default"]
    assert last["difference"] == "with sigmoid in place of relu"
    assert {part["verdict"] for part in last["parts"]} == {"pass", "other"}
    text = (folder / "out" / "issue.md").read_text()
    assert re.search(r"\| `relu\w*` \(`aten.relu.default`\) \| \*\*needed\*\* \| neg in its place.*: passes", text)
    assert "The nearest case that passes: with sigmoid in place of relu" in text


def test_each_query_keeps_what_the_command_printed(folder: Path) -> None:
    texts = [path.read_text() for path in sorted((folder / "out" / "output").iterdir())]
    queries = json.loads((folder / "lines").read_text().splitlines()[-1])["queries"]
    assert len(texts) == queries
    assert texts[0].startswith("# exit code 1 after ")
    assert all("seen " in text for text in texts)


@pytest.mark.slow
@pytest.mark.own_server
def test_an_interrupted_repro_leaves_the_case_and_says_how_to_go_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    monkeypatch.setattr("graphdbg.minifier.commands.minify._report", interrupted)
    check, out = f"cmd: {shlex.quote(sys.executable)} check.py {{case}}", str(tmp_path / "out")
    with pytest.raises(SystemExit, match="130"):
        command(["minify", "case", "-o", out, "--check", check, "--max-queries", "4"])
    said = capsys.readouterr()
    assert f"the best case so far is kept. Go on with: graphdbg minify --resume -o {out} --check" in said.err
    assert said.out.strip() == f"{out}/case"


def test_the_repro_runs_the_command(folder: Path) -> None:
    done = subprocess.run([sys.executable, "out/repro.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "exit code 1" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "graphdbg", "report", "out", "-o", "told"], cwd=folder, capture_output=True
    )
    assert done.returncode == 0
    assert (folder / "told" / "case" / "graph.json").exists()


@pytest.mark.slow
def test_a_command_that_is_not_there_is_said_and_leaves_nothing(folder: Path) -> None:
    done = run(folder, "./nothing.sh {case}", "-o", "no")
    assert done.returncode == 2, done.stderr
    assert "127, it was not found" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "no").exists()


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(warm="torch", preload=(TASK.partition(":")[0],)) as started:
        yield started


def ask(server: ForkServer, folder: Path, place: Path, command: str, limit_s: float = 60.0) -> Answer:
    """What one command makes of the whole case."""
    (place / "values").mkdir(exist_ok=True)
    options = MinifyOptions(f"cmd: {command}")
    return CommandOracle(
        folder / "case", place / "values", server, options, limit_s, output=place / "output", directory=str(folder)
    ).judge(None)[0]


@pytest.mark.parametrize(
    ("command", "verdict", "says"),
    [
        ("test -f {case}/graph.py -a -d {case}/tensors", Ruling.PASS, ""),
        ("echo found it; exit 1; {case}", Ruling.OTHER, "the command: exit code 1"),
        ("exit 2; {case}", Ruling.INVALID, ""),
        ("exit 77; {case}", Ruling.OTHER, "the command: exit code 77"),
        ("kill -SEGV $$; {case}", Ruling.OTHER, "the command: signal SIGSEGV"),
        ("sh -c 'kill -SEGV $$'; exit $?; {case}", Ruling.OTHER, "the command: signal SIGSEGV"),
        ("./check.py {case}", Ruling.INFRA, ""),
    ],
)
def test_what_an_ending_means(
    server: ForkServer, folder: Path, tmp_path: Path, command: str, verdict: Ruling, says: str
) -> None:
    answer = ask(server, folder, tmp_path, command)
    assert (answer.verdict, answer.signature) == (verdict, says)
    if verdict is Ruling.INFRA:
        assert "126, it cannot be executed" in answer.detail
    if "found it" in command:
        assert answer.detail == "found it"


def test_a_hang_ends_at_the_limit_with_all_that_it_started(server: ForkServer, folder: Path, tmp_path: Path) -> None:
    mark = f"{4000 + os.getpid() % 999}.125"
    answer = ask(server, folder, tmp_path, f"sleep {mark} & sleep {mark}; {{case}}", limit_s=3.0)
    assert answer.verdict is Ruling.TIMEOUT
    assert answer.signature == "the command: hang"
    deadline = time.monotonic() + 5
    while mark in (printed := subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout):
        assert time.monotonic() < deadline, printed


def test_the_command_sees_the_users_environment(server: ForkServer, folder: Path, tmp_path: Path) -> None:
    text = 'test "$TORCHINDUCTOR_CACHE_DIR" = %s && test ! -e /proc/self/fd/5 && exit 0; {case}'
    answer = ask(server, folder, tmp_path, text % shlex.quote(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
    assert answer.verdict is Ruling.PASS, answer.detail


def test_options_refuse_what_makes_no_sense() -> None:
    with pytest.raises(UsageError, match="stands for its folder"):
        MinifyOptions("cmd: ./test.sh").checked()
    with pytest.raises(UsageError, match="not a regular expression"):
        MinifyOptions(match="(").checked()
    assert MinifyOptions.from_json(MinifyOptions("cmd: a {case}", jobs=3).to_json()) == MinifyOptions(
        "cmd: a {case}", jobs=3
    )
