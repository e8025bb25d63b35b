"""`graphdbg diff` as a user calls it: what A and B may be, which graphs belong together, text, JSON and exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.diff import diff
from graphdbg.dumps.diff.pair import GraphGroup, pairs, side
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import FORMAT, GraphRecord, RunRecord
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.writer import RunWriter

from .graph_text import graph

TEXT = """
x: [8, 4]
w: [4, 4]
mm = aten.mm.default(x, w) [8, 4] @ model.py:3
half = aten.mul.Tensor(mm, 0.5) [8, 4] @ model.py:4
relu = aten.relu.default(half) [8, 4] @ model.py:5
return relu
"""
STAGES = ("dynamo", "forward")


def record(compiled: str, text: str = TEXT) -> list[GraphRecord]:
    return [graph(text, f"{compiled}/{stage}") for stage in STAGES]


def write_run(name: str, *processes: Sequence[GraphRecord], ranks: bool = False) -> None:
    """A run with one process folder per list of graphs."""
    run = RunWriter.create(name, RunRecord(format=FORMAT, command=["train.py"]))
    for rank, graphs in enumerate(processes):
        process = run.process(
            name=f"rank{rank}_pid{10 + rank}" if ranks else f"pid{10 + rank}", rank=rank if ranks else None
        )
        for result in graphs:
            process.save_graph(result)
            process.journal.event("ran", graph=result.id)
        process.close()


CHANGED = TEXT.replace("0.5", "0.25").replace("model.py", "other.py")
LARGER = TEXT.replace("[8, 4]", "[12, 4]")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs `one`, `two` (with a change and a recompile), and `ranks` of two processes, the second of which differs."""
    monkeypatch.chdir(tmp_path)
    write_run("one", record("0_0"))
    write_run("two", [*record("0_0", CHANGED), *record("0_1", LARGER)])
    write_run("ranks", record("0_0"), record("0_0", CHANGED), record("0_0"), ranks=True)
    return tmp_path


def output(capsys: pytest.CaptureFixture[str], *args: str, code: int = 1) -> tuple[str, str]:
    assert command(["diff", *args]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *args: str, code: int = 1) -> dict[str, Any]:
    return json.loads(output(capsys, *args, "--json", code=code)[0])


def test_a_change_of_numbers_comes_before_another_name_of_an_operator(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TEXT.replace(
        "half = aten.mul.Tensor(mm, 0.5)", "v = aten.view.default(mm, 4) [8, 4]\nhalf = aten.neg.default(v)"
    )
    other = text.replace("aten.view", "aten.reshape").replace("aten.neg", "aten.abs")
    write_run("plain", record("0_0", text))
    write_run("other", record("0_0", other))
    out = output(capsys, "plain/0_0/forward", "other/0_0/forward")[0]
    assert out.index("aten.neg.default -> aten.abs.default") < out.index(
        "aten.view.default -> aten.reshape.default (the"
    )
    assert out.endswith("next: graphdbg show other/0_0/forward --node half\n")


def test_two_graphs_and_both_user_lines(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = output(capsys, "one/0_0/forward", "two/0_0/forward")
    assert (out, err) == (
        "A  one/0_0/forward  forward, 6 nodes\n"
        "B  two/0_0/forward  forward, 6 nodes\n"
        "nodes: 1 changed\n"
        "\n"
        "first departure: changed\n"
        "  A  half = aten.mul.Tensor(mm, 0.5)\n"
        "     float32 [8, 4] stride [4, 1] cpu\n"
        "     model.py:4  code of line 4\n"
        "  B  half = aten.mul.Tensor(mm, 0.25)\n"
        "     float32 [8, 4] stride [4, 1] cpu\n"
        "     other.py:4  code of line 4\n"
        "  -> argument 1: 0.5 -> 0.25\n"
        "\n"
        "next: graphdbg show two/0_0/forward --node half\n",
        "",
    )


def test_sides_of_a_run_of_several_ranks_are_named(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "ranks")[0].startswith("A  ranks/0:\nB  ranks/1:, ranks/2:\n")


def test_json_of_two_graphs(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "one/0_0/forward", "two/0_0/forward")
    assert (result["a"], result["b"], result["same"]) == ("one/0_0/forward", "two/0_0/forward", False)
    (pair,) = result["graphs"]
    assert (pair["verdict"], pair["changed"], pair["only_a"], pair["only_b"]) == ("differs", 1, 0, 0)
    first = pair["first"]
    assert first["changes"] == [{"aspect": "argument", "a": "0.5", "b": "0.25", "place": "argument 1"}]
    assert [(first[s]["name"], first[s]["line"], first[s]["code"]) for s in "ab"] == [
        ("half", "model.py:4", "code of line 4"),
        ("half", "other.py:4", "code of line 4"),
    ]


def test_no_difference_is_exit_code_0(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = output(capsys, "one/0_0/forward", "ranks/0:0_0/forward", code=0)
    assert out.splitlines()[-1] == "same: every node has an equal one"
    assert document(capsys, "one", "one", code=0)["same"] is True


def test_two_runs_graph_by_graph(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = output(capsys, "one", "two")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:6] == [
        "graph nodes verdict changed only A only B first departure",
        "0_0/dynamo 6 / 6 differs 1 0 0 half: argument 1: 0.5 -> 0.25 (model.py:4)",
        "0_0/forward 6 / 6 differs 1 0 0 half: argument 1: 0.5 -> 0.25 (model.py:4)",
        "0_1/dynamo - / - only b",
        "0_1/forward - / - only b",
        "4 pairs of graphs: 2 differ, 2 only in B",
    ]
    assert "the first that differs:" in lines
    assert "A one/0_0/dynamo dynamo, 6 nodes" in lines
    verdicts = [pair["verdict"] for pair in document(capsys, "one", "two")["graphs"]]
    assert verdicts == ["differs", "differs", "only_b", "only_b"]


def test_two_recompiles_by_stage_and_a_shape_that_follows(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "one/0_0", "two/0_1")
    assert [(pair["id"], pair["first"]["a"]["name"]) for pair in result["graphs"]] == [
        ("0_0 | 0_1 dynamo", "x"),
        ("0_0 | 0_1 forward", "x"),
    ]
    assert [(pair["changed"], pair["follows"], pair["own"]) for pair in result["graphs"]] == [(4, 3, 1)] * 2
    out, _ = output(capsys, "two/0_0/forward", "two/0_1/forward")
    assert out.index("first departure: changed\n  A  x: input") < out.index("and by themselves:")
    assert "half  half  argument 1: 0.25 -> 0.5" in out
    out, _ = output(capsys, "two/0_0/forward", "two/0_1/forward", "--all")
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(("mm ", "relu "))] == ["x", "x"]


@pytest.mark.parametrize("second", ["ranks/1:", "ranks/rank1_pid11", "ranks/rank1_pid11:"])
def test_two_processes(work: Path, capsys: pytest.CaptureFixture[str], second: str) -> None:
    result = document(capsys, "ranks/0:", second)
    assert [pair["first"]["b"]["line"] for pair in result["graphs"]] == ["other.py:4", "other.py:4"]
    assert document(capsys, "ranks/0:", "ranks/2:", code=0)["same"]


def test_all_ranks_with_the_first(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = output(capsys, "ranks")
    assert [line.split()[0] for line in out.splitlines()[3:5]] == ["1:0_0/dynamo", "1:0_0/forward"]
    assert out.splitlines()[5] == "4 pairs of graphs: 2 the same, 2 differ"


def test_one_graph_with_a_run_or_a_rank(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "B  two/0_0/forward" in output(capsys, "one/0_0/forward", "two")[0]
    assert "A  ranks/1:0_0/forward" in output(capsys, "ranks/1:", "one/0_0/forward")[0]


def test_case_folders(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph_folder(Path("case"), graph(CHANGED, "case/forward"))
    assert "A  case  forward" in output(capsys, "case", "one/0_0/forward")[0]
    result = diff(load_graph("case"), load_graph("one/0_0/forward"))
    assert (result.same, result.verdict, len(result.departures)) == (False, "differs", 1)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["one"], "it is one process"),
        (["one/0_0/forward"], "only one/0_0/forward is named"),
        (["one/9:", "two"], "names no process"),
        (["ranks/0_0", "one/0_0"], "is ambiguous"),
        (["one/0_0", "two"], "one/0_0 is a compile, two a run"),
        (["one/0_0/forward", "two/0_1/dynamo.7"], "holds no graph"),
        (["one/0_0/joint", "two"], "holds no graph"),
        (["", "two"], "is not a name"),
        (["one", "two\0"], "is not a name"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    work: Path, capsys: pytest.CaptureFixture[str], args: list[str], text: str
) -> None:
    out, err = output(capsys, *args, code=2)
    assert (out, text in err) == ("", True), err


def test_a_damaged_graph_is_told_and_the_others_compared(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in Path("one").glob("*/graphs/0_0/dynamo/*.json*"):
        path.unlink()
        path.write_text("{")
    result = document(capsys, "one", "two")
    assert [pair["verdict"] for pair in result["graphs"]][:2] == ["unreadable", "differs"]
    assert "note: cannot read" in output(capsys, "one", "two")[1]
    assert "cannot read" in output(capsys, "one/0_0/dynamo", "two/0_0/dynamo", code=2)[1]


def test_a_graph_that_failed_in_one_run_only_is_shown(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunWriter.create("failed", RunRecord(format=FORMAT, command=["train.py"]))
    process = run.process(name="pid10")
    for item in record("0_0"):
        process.save_graph(item)
    process.journal.event("failed", graph="0_0/forward", type="LoweringException", message="no lowering")
    process.close()
    out, _ = output(capsys, "one", "failed", code=0)
    assert "B failed: LoweringException: no lowering" in out.splitlines()[1]


def test_graphs_are_paired_by_their_lines_where_a_compile_more_has_shifted_the_ids(work: Path) -> None:
    other = TEXT.replace("model.py", "loss.py").replace("line", "row")
    texts = {"f": TEXT, "g": TEXT.replace(":3", ":13").replace(":4", ":14").replace(":5", ":15"), "new": other}
    texts["new"] = "x: [2]\ny = aten.sin.default(x) [2] @ new.py:77\nreturn y"
    write_run("short", [*record("0_0", texts["f"]), *record("1_0", texts["g"])])
    write_run("long", [*record("0_0", texts["f"]), *record("1_0", texts["new"]), *record("2_0", texts["g"])])
    sides = side("short"), side("long")
    assert isinstance(sides[0], GraphGroup)
    results = [(p.a.local_id if p.a else None, p.b.local_id if p.b else None) for p in pairs(*sides)]
    assert [pair for pair in results if (pair[0] or pair[1] or "").endswith("forward")] == [
        ("0_0/forward", "0_0/forward"),
        ("1_0/forward", "2_0/forward"),
        (None, "1_0/forward"),
    ]


@pytest.mark.parametrize("width", [80, 160])
def test_on_a_terminal_no_line_of_the_tables_is_wider_than_it(work: Path, width: int) -> None:
    text = terminal(["one", "two", "--all"], width)
    assert "half" in text
    assert max(map(len, text.splitlines())) <= width


def terminal(args: list[str], width: int) -> str:
    """What the command writes to a terminal of that width, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(width), "NO_COLOR": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "graphdbg", "diff", *args], stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    data = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # a terminal whose other end is closed
            break
        if not block:
            break
        data += block
    os.close(ours)
    child.wait(60)
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", data.decode()).replace("\r\n", "\n")
