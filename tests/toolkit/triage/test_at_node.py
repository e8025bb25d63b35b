"""`graphdbg replay RUN/ID --at NODE`: what a node was given and what it made, and a prompt there at a terminal."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.live import save_graph
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.commands.replay import replay
from graphdbg.toolkit.isolation import ForkServer
from graphdbg.toolkit.node_values.at_node import AtNode, at_node, lines

from ..test_subgraph import written_in_the_middle
from .test_node_values import RELU_BUG, W, X, net, saved


@pytest.mark.long
def test_inputs_are_as_the_node_read_them(tmp_path: Path, server: ForkServer) -> None:
    gm, inputs = written_in_the_middle()
    graph = load_graph(save_graph(gm, inputs, tmp_path / "case"))
    named = {row.target: row.name for row in graph.table.rows() if row.op.startswith("call")}
    multiplied = [row.name for row in graph.table.rows() if row.target == "aten.mul.Tensor"]
    y = inputs[0].sin()
    before, after = (at_node(graph, name, "eager", server=server).at for name in multiplied)
    assert before["inputs"][0]["name"] == after["inputs"][0]["name"] == named["aten.sin.default"]
    firsts = [at["inputs"][0]["values"]["eager"][0]["first"] for at in (before, after)]
    assert firsts[0] == pytest.approx(y.flatten()[:6].tolist())
    y[0] += 1
    assert firsts[1] == pytest.approx(y.flatten()[:6].tolist()), "the row was written in between"
    assert at_node(graph, "x_1", "eager", server=server).at["value"]["values"]["eager"][0]["shape"] == [3, 4]
    output = at_node(graph, "output", "eager", server=server).at
    assert len(output["inputs"]) == 3


@pytest.mark.long
def test_a_wrong_compiled_value_stands_beside_eagers(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W, **RELU_BUG)
    result = at_node(graph, "relu", server=server)
    assert result.exit_code == 1
    assert result.at["wrong"]["name"] == "relu"
    assert result.at["value"]["error"] > 0.1 > 1e-5 > result.at["value"]["eager_error"]
    text = "\n".join(lines(result, "relu", "case", "inductor"))
    assert "input mm  float32 [4, 8] stride [8, 1]" in text
    assert "wrong here, on right inputs: " in text
    assert text.count("  inductor  min") == 2
    assert max(len(line) for line in text.splitlines() if line.startswith("  ")) <= 80
    right = at_node(graph, "mm", server=server)
    assert (right.exit_code, right.at["wrong"]) == (1, None), "the graph fails, and this value does not"


@pytest.mark.long
def test_without_a_program_eagers_values_are_there(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W, **RELU_BUG | {"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"})
    result = at_node(graph, "relu", server=server)
    assert (result.exit_code, result.outcome.verdict.kind) == (1, "crash")
    assert list(result.at["value"]["values"]) == ["eager"]
    assert any(line.startswith("  inductor  no value: ") for line in lines(result, "relu", "case", "inductor"))


def test_the_command_prints_json_and_refuses(tmp_path: Path) -> None:
    path = str(saved(tmp_path / "case", net, X, W).path)
    done = CliRunner().invoke(replay, [path, "--at", "mm", "--rung", "eager", "--json"])
    assert done.exit_code == 0
    document = json.loads(done.stdout)
    assert (document["node"], document["target"], document["verdict"]) == ("mm", "aten.mm.default", "ok")
    assert [tensor["name"] for tensor in document["inputs"]] == ["x_1", "w_1"]
    with pytest.raises(UsageError, match="has no node 'nm'"):
        CliRunner().invoke(replay, [path, "--at", "nm"], catch_exceptions=False)
    for words in (["--at", "mm", "--values"], ["--values", "--stats"], ["--stats", "--json-lines"]):
        with pytest.raises(UsageError, match="cannot be used together"):
            CliRunner().invoke(replay, [path, *words], catch_exceptions=False)


def test_at_a_terminal_a_prompt_in_a_child_has_it_all_at_hand(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W)
    person, ours = os.openpty()
    said, reported = b"", list[AtNode]()

    def sit() -> None:
        nonlocal said
        typed = [
            b"torch.equal(value, inputs['mm'].relu()), torch.equal(gm(*graph_inputs)[0], value)\n",
            b"f'made {node.name} ' + type(gm).__name__, eager['mm'].shape\n",
            b"import os; 'child', os.getpid()\n",
            b"type(gm.grap\t)\n",
            b"\x04",
        ]
        while typed or not said.endswith(b"end"):
            said += os.read(person, 4096)
            if typed and said.endswith(b">>> "):
                os.write(person, typed.pop(0))
                said += b" "

    sitting = threading.Thread(target=sit, daemon=True)
    sitting.start()
    result = at_node(graph, "relu", "eager", server=server, report=reported.append, terminal=(ours, ours))
    os.write(ours, b"end")
    sitting.join(20)
    text = said.decode()
    assert reported == [result]
    assert "(True, True)" in text
    assert "('made relu GraphModule', torch.Size([4, 8]))" in text
    assert f"('child', {os.getpid()})" not in text and "('child', " in text
    assert "<class 'torch.fx.graph.Graph'>" in text, "Tab completes"
    banner = text.partition(">>>")[0].strip().splitlines()
    assert len(banner) <= 6
    assert banner[0] == "At relu = aten.relu.default(mm)"
    assert result.exit_code == 0


def test_a_prompt_that_kills_its_process_ends_the_command_alone(tmp_path: Path, server: ForkServer) -> None:
    graph = saved(tmp_path / "case", net, X, W)
    person, ours = os.openpty()
    os.write(person, b"import os; os.kill(os.getpid(), 9)\n")
    began = time.monotonic()
    result = at_node(graph, "relu", "eager", server=server, terminal=(ours, ours))
    assert (result.exit_code, result.at["value"]["name"]) == (0, "relu")
    assert time.monotonic() - began < 60
