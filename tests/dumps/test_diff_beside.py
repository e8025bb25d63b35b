"""Two graphs line by line: every node is there once, marks say how lines differ, and a forward meets its backward by
seq_nr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphdbg.dumps.commands.diff import diff as command
from graphdbg.dumps.diff.beside import MARKS, Sideways, beside, beside_text
from graphdbg.dumps.diff.others import by_seq_nr, others
from graphdbg.dumps.errors import UsageError
from graphdbg.dumps.schema import FORMAT, GraphBody, GraphRecord, NodeRecord
from graphdbg.dumps.store import load_graph, open_run

from .graphs import chain, new_run
from .layered import layered, renumbered, scattered


def every_node_once(sideways: Sideways) -> bool:
    a, b = ([at for at in column if at >= 0] for column in (sideways.a, sideways.b))
    return sorted(a) == list(range(len(sideways.sides[0].names))) and sorted(b) == list(
        range(len(sideways.sides[1].names))
    )


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A run with a graph and the same with changes and other names."""
    _, process = new_run(tmp_path / "run")
    result = layered(200, "0_0/forward")
    process.save_graph(result)
    other = scattered(renumbered(result), 6, seed=3)
    other.id = "0_1/forward"
    process.save_graph(other)
    process.close()
    return tmp_path / "run"


def test_every_node_is_there_once_and_marks_agree_with_the_diff(pair: Path) -> None:
    run = open_run(pair)
    first, second = run.graph("0_0/forward"), run.graph("0_1/forward")
    result = beside(first, second)
    assert every_node_once(result)
    assert not result.same
    rows = [result.row(index) for index in range(len(result))]
    counts = {mark: sum(row.mark == mark for row in rows) for mark in MARKS}
    assert counts["changed"] + counts["only A"] + counts["only B"] + counts["replaced"] >= 6
    for row in rows:
        if row.mark in ("only A", "only B"):
            assert (row.b < 0) == (row.mark == "only A")
        if row.mark == "changed":
            assert "->" in row.text
        if row.mark == "":
            assert min(row.a, row.b) >= 0
    assert [rows[at].mark in ("changed", "only A", "only B", "replaced") for at in result.starts()] == [True] * len(
        result.starts()
    )
    text = beside_text(result, everything=False)
    assert "alike" in text
    assert len(beside_text(result, everything=True).splitlines()) == len(result) + 5
    itself = beside(first, first)
    assert itself.same
    assert itself.starts() == []
    assert set(itself.marks) == {0}


def call(name: str, number: int, *inputs: str) -> NodeRecord:
    args = [{"node": used} for used in inputs]
    return NodeRecord(name=name, op="call_function", target="aten.mul.Tensor", args=args, seq_nr=number)


def record(graph: str, *nodes: NodeRecord, inputs: tuple[str, ...] = ()) -> GraphRecord:
    placed = [NodeRecord(name=name, op="placeholder", target=name) for name in inputs]
    out = NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": nodes[-1].name}]}])
    return GraphRecord(
        format=FORMAT, id=graph, stage=graph.split("/")[1], graph=GraphBody(nodes=[*placed, *nodes, out])
    )


def test_forward_and_backward_are_joined_by_seq_nr_and_saved_values(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    calls = [call("mul", 1, "x"), call("mul_1", 2, "mul"), call("odd", 9, "mul_1")]
    process.save_graph(record("0_0/forward", *calls, inputs=("x",)))
    process.save_graph(
        record(
            "0_0/backward",
            call("grad", 2, "tangents_1"),
            call("grad_1", 1, "grad", "mul"),
            call("grad_2", 1, "grad_1"),
            inputs=("mul", "tangents_1"),
        )
    )
    process.close()
    run = open_run(tmp_path / "run")
    result = beside(run.graph("0_0/forward"), run.graph("0_0/backward"), by_seq_nr=True)
    assert every_node_once(result)
    rows = [result.row(index) for index in range(len(result))]
    a, b = (side.names for side in result.sides)
    messages = [(a[row.a] if row.a >= 0 else "", b[row.b] if row.b >= 0 else "", row.mark) for row in rows]
    assert messages == [
        ("x", "", ""),
        ("mul", "mul", "saved"),
        ("", "grad_1", "seq_nr"),
        ("", "grad_2", "seq_nr"),
        ("mul_1", "grad", "seq_nr"),
        ("odd", "", ""),
        ("output", "", ""),
        ("", "tangents_1", ""),
        ("", "output", ""),
    ]
    assert result.summary == "3 nodes of B joined by seq_nr, 1 value of A saved for B"
    process_alone = tmp_path / "alone"
    _, process = new_run(process_alone)
    process.save_graph(chain("0_0/joint"))
    process.close()
    with pytest.raises(UsageError, match="cannot be joined"):
        beside(open_run(process_alone).graph("0_0/joint"), run.graph("0_0/backward"), by_seq_nr=True)


def test_the_command_prints_it(pair: Path) -> None:
    first, second = f"{pair}/0_0/forward", f"{pair}/0_1/forward"
    text = CliRunner().invoke(command, [first, second, "--side-by-side"], standalone_mode=False)
    assert text.return_value == 1
    assert f"B  {second}" in text.stdout
    asked = [first, first, "--side-by-side", "--json", "--full"]
    document = json.loads(CliRunner().invoke(command, asked, standalone_mode=False).stdout)
    assert document["same"] is True
    assert document["side_by_side"]["a"] == list(range(len(open_run(pair).graph("0_0/forward").table)))
    missing = CliRunner().invoke(command, [first, "--side-by-side"], standalone_mode=False)
    assert "two graphs" in str(missing.exception)


def test_what_a_graph_can_be_compared_with(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _, process = new_run(tmp_path / name)
        for graph in ("0_0/joint", "0_0/forward", "0_0/backward", "0_1/forward", "1_0/forward"):
            process.save_graph(chain(graph))
        process.close()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    result = others(load_graph(tmp_path / "one" / "0_0" / "forward"), str(tmp_path / "one"))
    assert [(other.graph.removeprefix(str(tmp_path)), other.kind) for other in result] == [
        ("/one/0_1/forward", "recompile"),
        ("/two/0_0/forward", "other run"),
        ("/one/0_0/backward", "other side"),
        ("/one/0_0/joint", "stage"),
    ]
    assert by_seq_nr("post_grad_backward", "forward")
    assert not by_seq_nr("joint", "forward")
