"""`graphdbg.observe`, and pipelines that compile by themselves: vLLM's pieces, a traced trainer, a package made ahead
of time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg
from graphdbg.cli import run as command
from graphdbg.dumps.why.show import of_rows

SCRIPTS = Path(__file__).parent / "scripts"


def traced() -> fx.GraphModule:
    return make_fx(lambda x, w: torch.relu(x @ w).detach() + 1)(torch.ones(2, 3), torch.ones(3, 4))


def without_detach(gm: fx.GraphModule) -> fx.GraphModule:
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default)
    node.replace_all_uses_with(node.args[0])
    gm.graph.erase_node(node)
    gm.recompile()
    return gm


def graphdbg_says(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphdbg", *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_unrecorded_it_returns_what_it_is_given() -> None:
    anything = object()
    assert graphdbg.observe(anything, stage="whatever", inputs=[1]) is anything


def test_stages_of_a_pipeline_are_graphs_of_one_compile(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    inputs = [torch.randn(2, 3), torch.randn(3, 4)]
    gm = traced()
    code, meta = gm.code, [dict(node.meta) for node in gm.graph.nodes]
    with graphdbg.record(tmp_path / "run", inputs="first"):
        assert graphdbg.observe(gm, stage="traced", inputs=inputs, model="trainer") is gm
        assert (gm.code, [dict(node.meta) for node in gm.graph.nodes]) == (code, meta)
        graphdbg.observe(without_detach(gm), stage="after_detach", inputs=inputs, model="trainer")
        graphdbg.observe(gm, stage="inference", model="other")
    run = graphdbg.open_run(tmp_path / "run")
    assert [(row.id, row.word) for row in run.rows] == [
        ("x0_0/inference", "traced"),
        ("x0_0/inference.1", "after_detach"),
        ("x1_0/inference", "inference"),
    ]
    first, second, _ = run.graphs()
    assert first.module().code.split("\n", 3)[3] == code.split("\n", 3)[3]
    assert all(torch.equal(a, b) for a, b in zip(second.inputs(), inputs, strict=True))
    assert "None" not in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    command(["ls", "run", "--stages"])
    command(["ls", "run"])
    command(["diff", "run/x0_0/inference", "run/x0_0/inference.1"])
    printed = capsys.readouterr().out
    assert (
        "inference (traced)" in printed
        and "captured" in printed
        and "4 only in A" not in printed
        and "1 only in A" in printed
    )
    (line,) = [line for line in printed.splitlines() if line.startswith("x0_0  ")]
    assert "inference x2" in line and "trainer, test_pieces.py" in line


def test_fake_inputs_give_their_layout_alone(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: x.relu())
    with torch._subclasses.fake_tensor.FakeTensorMode():
        fake = torch.empty(3, 5)
    with graphdbg.record(tmp_path / "run", inputs="first"):
        graphdbg.observe(gm, stage="mine", inputs=[fake])
    (saved,) = graphdbg.open_run(tmp_path / "run").graphs()
    assert (saved.id, saved.inputs_record, list(saved.inputs()[0].shape)) == ("x0_0/dynamo", None, [3, 5])
    assert "val" not in next(iter(gm.graph.nodes)).meta


def test_what_cannot_be_recorded_is_said_and_raises_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with graphdbg.record(tmp_path / "run"):
        assert graphdbg.observe("no module", stage="mine") == "no module"
        graphdbg.observe(traced(), stage="inference", inputs=[torch.ones(2, 3)], model="m")
    said = capsys.readouterr().err
    assert "observe" in said and "inputs of m, inference are not kept: the graph takes 2 and 1 came" in said
    assert [row.id for row in graphdbg.open_run(tmp_path / "run").rows] == ["x0_0/inference"]


@pytest.fixture(scope="module")
def pieces(runner):
    return runner.dump("pieces", "--inputs", "first", "--", str(SCRIPTS / "pieces.py"), "observe")


@pytest.mark.slow
def test_pieces_in_the_call_order_of_vllm_are_recorded_as_they_are_and_judged(runner, pieces) -> None:
    plain = runner.script("pieces.py", "observe")
    assert (pieces.code, plain.code) == (0, 0), pieces.stderr + plain.stderr
    assert pieces.stdout == plain.stdout and b"departs False" in plain.stdout
    rows = graphdbg.open_run(pieces.run).rows
    (whole,) = of_rows(graphdbg.open_run(pieces.run))
    assert (whole.id, whole.worst.status, whole.stages) == ("0_0", "ran", "inference x3")
    seen = [graphdbg.open_run(pieces.run).graph(row.id) for row in rows if row.word == "after_split"]
    codes = ["".join(item.module().code.split()) for item in seen]
    assert len(codes) == 3 and all(code.partition("):")[2] in "".join(plain.stdout.decode().split()) for code in codes)
    reported = graphdbg_says(runner.folder, "triage", "pieces", "--trust", "--json")
    document = json.loads(reported.stdout)
    of_dynamo = {graph["verdict"] for graph in document["graphs"] if graph["stage"] == "dynamo"}
    of_inductor = {graph["verdict"] for graph in document["graphs"] if graph["stage"] != "dynamo"}
    assert (of_dynamo, of_inductor) == ({"cannot_tell"}, {"ok"}), (
        reported.stdout + reported.stderr
    )  # the run's own backend
    assert document["verdict"] == "cannot_tell" and "the run's own backend" in document["reason"]


@pytest.mark.slow
def test_a_wrong_relu_in_a_piece_is_found(runner) -> None:
    done = runner.dump("bug", "--inputs", "first", "--", str(SCRIPTS / "pieces.py"), "observe", "bug")
    assert b"departs True" in done.stdout, done.stderr
    document = json.loads(graphdbg_says(runner.folder, "triage", "bug", "--trust", "--json").stdout)
    assert (document["verdict"], document["kind"], document["layer"]) == ("fails", "wrong_numbers", "inductor")
    assert "relu" in document["where"]["node"], document["where"]


@pytest.mark.slow
def test_a_traced_trainer_and_a_package_made_ahead_of_time(runner) -> None:
    done = runner.dump("own", "--inputs", "first", "--", str(SCRIPTS / "own_pipeline.py"))
    assert (done.code, done.stdout) == (0, b"done\n"), done.stderr
    words = {row.word: row.id for row in graphdbg.open_run(done.run).rows if row.word}
    assert words == {"traced": "x0_0/inference", "after_detach": "x0_0/inference.1", "exported": "x2_0/inference"}
    document = json.loads(graphdbg_says(runner.folder, "triage", "own", "--json").stdout)
    assert {graph["id"]: graph["verdict"] for graph in document["graphs"]}.items() >= dict.fromkeys(
        words.values(), "ok"
    ).items()
