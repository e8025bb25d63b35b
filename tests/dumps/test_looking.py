"""`ls` and `show` as a user calls them: what is on stdout, what on stderr, and the exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps import sidecar
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter

from .graphs import chain, new_run


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder holds `myrun` with a graph that ran and one that failed."""
    monkeypatch.chdir(tmp_path)
    _, process = new_run(Path("myrun"))
    for stage in ("joint", "forward"):
        process.save_graph(chain(f"0_0/{stage}"))
        process.journal.event("compiling", graph=f"0_0/{stage}")
    process.journal.event("ran", graph="0_0/joint")
    process.journal.event(
        "failed", graph="0_0/forward", seconds=1.25, type="LoweringException", message="no lowering\nfor sin"
    )
    process.save_code(
        "0_0/forward",
        {"output_code.py": "import torch\n", "cpp_fused_0.cpp": "int a;\n", "cpp_fused_1.cpp": "int b;\n"},
    )
    process.close()
    return tmp_path


def output(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[str, str]:
    assert command(args) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    return json.loads(output(capsys, *args, "--json", "--full")[0])


def test_ls_json_is_the_fixed_surface(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "ls", "myrun")
    process = result["graphs"][0]["process"]
    (ending,) = result["processes"]
    assert (ending["process"], ending["exit_code"], ending["last"]["graph"]) == (process, None, "0_0/forward")
    assert {key: result[key] for key in ("run", "graphs")} == {
        "run": "myrun",
        "graphs": [
            {
                "id": "0_0/joint",
                "process": process,
                "rank": None,
                "stage": "joint",
                "nodes": 5,
                "status": "ran",
                "error": None,
                "seconds": None,
            },
            {
                "id": "0_0/forward",
                "process": process,
                "rank": None,
                "stage": "forward",
                "nodes": 5,
                "status": "failed",
                "error": "LoweringException: no lowering\nfor sin",
                "seconds": 1.25,
            },
        ],
    }


def test_ls_prints_a_row_per_compile_and_says_what_is_next(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = output(capsys, "ls", "myrun")
    assert out == (
        "compile  status  stages   nodes  seconds  function\n"
        "0_0      failed  forward      5     1.25\n"
        "  0_0/forward: LoweringException: no lowering\n"
    )
    assert err == "2 graphs in 1 compile of 1 process, 1 failed; next: graphdbg replay myrun/0_0/forward\n"
    assert output(capsys, "ls", "myrun", "--filter", "lowering joint")[1].startswith("1 of 1 compile\n")
    assert output(capsys, "ls", "myrun", "--filter", "-failed")[0] == ""
    assert "cannot be used together" in output(capsys, "ls", "myrun", "--stages", "--why", code=2)[1]
    assert "ls RUN --stages" in output(capsys, "ls", "--stages", code=2)[1]


def test_ls_stages_prints_a_row_per_graph(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = output(capsys, "ls", "myrun", "--stages")
    assert out == (
        "id           stage    nodes  status  seconds  error\n"
        "0_0/joint    joint        5  ran\n"
        "0_0/forward  forward      5  failed     1.25  LoweringException: no lowering\n"
    )
    assert output(capsys, "ls", "myrun", "--stages", "--filter", "joint")[0].count("\n") == 2


def test_ls_without_a_run_lists_the_runs_here(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [(row["run"], row["graphs"], row["failed"]) for row in document(capsys, "ls")["runs"]] == [("myrun", 2, 1)]
    assert output(capsys, "ls")[0].splitlines()[1].startswith("myrun ")
    (work / "myrun/run.json").write_text("{")
    out, err = output(capsys, "ls")
    assert out == ""
    assert "run.json: the file is cut off" in err


def test_ls_of_an_empty_run_and_of_nothing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunWriter.create("empty", RunRecord(format=FORMAT, command=["x.py"]))
    out, err = output(capsys, "ls", "empty")
    assert (out, "nothing was compiled" in err) == ("", True)
    assert "graphdbg: nowhere is neither" in output(capsys, "ls", "nowhere", code=2)[1]


def test_ls_of_a_case(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_graph_folder(Path("case"), chain("case/inference"))
    assert document(capsys, "ls", "case")["graphs"][0]["id"] == "case/inference"


def test_show_lists_nodes(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = output(capsys, "show", "myrun/0_0/joint")
    assert out.splitlines()[:2] == [
        "#  name    target            inputs  dtype    shape    stride   line         code",
        "0  x       placeholder x             float32  [2, s0]  [s0, 1]",
    ]
    assert (
        " ".join(out.splitlines()[2].split())
        == "1 sin_0 aten.sin.default x float32 [2, s0] [s0, 1] model.py:12 return h.sin()"
    )
    assert err == "0_0/joint: stage joint, 5 nodes, ran\n"
    result = document(capsys, "show", "myrun/0_0/joint")
    assert result["nodes"][1]["shape"] == [2, "s0"]
    assert (result["id"], result["status"], len(result["nodes"])) == ("0_0/joint", "ran", 5)


def test_show_of_a_large_graph_opens_no_graph_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sidecar, "MANY_NODES", 5)
    new_run(Path("myrun"))[1].save_graph(chain("0_0/joint"))
    for file in Path("myrun").rglob("graph.json"):
        file.unlink()
    assert "sin_0" in output(capsys, "show", "myrun/0_0/joint")[0]
    assert "aten.sin.default" in output(capsys, "show", "myrun/0_0/joint", "--stats")[0]
    assert document(capsys, "show", "myrun/0_0/joint", "--stats")["stats"]["nodes"] == 5


def test_show_code_and_kernels(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = "myrun/0_0/forward"
    assert output(capsys, "show", graph, "--code")[0] == "import torch\n"
    assert output(capsys, "show", graph, "--kernel")[0].split() == ["cpp_fused_0.cpp", "cpp_fused_1.cpp"]
    assert output(capsys, "show", graph, "--kernel", "cpp_fused_1")[0] == "int b;\n"
    assert document(capsys, "show", graph, "--kernel", "_0")["files"] == [
        {"name": "cpp_fused_0.cpp", "text": "int a;\n"}
    ]
    assert "several kernels 'cpp'" in output(capsys, "show", graph, "--kernel", "cpp", code=2)[1]
    assert "no kernel 'triton'" in output(capsys, "show", graph, "--kernel", "triton", code=2)[1]
    assert "no code was generated" in output(capsys, "show", "myrun/0_0/joint", "--kernel", code=2)[1]
    assert "leave all but one out" in output(capsys, "show", graph, "--code", "--stats", code=2)[1].lower()


def test_a_thousand_graphs_are_listed_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a benchmark: far above the goal of 0.3 s, far below what opening every graph.json would cost."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    _, process = new_run(Path("big"))
    for number in range(1000):
        process.save_graph(chain(f"{number}_0/forward", nodes=3))
    start = time.perf_counter()
    assert len(document(capsys, "ls", "big")["graphs"]) == 1000
    assert time.perf_counter() - start < 3
