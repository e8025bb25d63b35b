"""A graph that does not run by itself has the stored inputs of the graphs of its compile that do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import graphdbg
from graphdbg.dumps.store import Run, open_run
from graphdbg.toolkit.recorder.starting import record


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One training step, in all stages that an AOT backend without Inductor has."""
    path = tmp_path_factory.mktemp("borrowed") / "run"
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with record(path, inputs="first"):
        torch.compile(model, backend="aot_eager")(torch.randn(4, 3)).square().sum().backward()
    return open_run(path)


def by_name(run: Run, graph: str) -> dict[str, Any]:
    saved = run.graph(graph)
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    return dict(zip(names, saved.inputs(), strict=True))


def test_a_joint_graph_is_given_what_its_forward_and_its_backward_were(run: Run) -> None:
    joint, forward, backward = (by_name(run, f"0_0/{stage}") for stage in ("joint", "forward", "backward"))
    assert [name for name in joint if name.startswith("tangents")] == ["tangents_1"]
    for name, value in joint.items():
        assert torch.equal(value, backward[name] if name.startswith("tangents") else forward[name]), name


def test_what_lies_in_a_folder_is_told_apart_from_what_is_borrowed(run: Run) -> None:
    joint, forward = run.graph("0_0/joint"), run.graph("0_0/forward")
    assert joint.own_inputs_record is None
    assert joint.inputs_record is not None and forward.own_inputs_record == forward.inputs_record


def test_a_case_by_itself_borrows_nothing(tmp_path: Path) -> None:
    gm = torch.fx.symbolic_trace(lambda x: x + 1)
    graphdbg.save_graph(gm, [torch.ones(2)], tmp_path / "case")
    (tmp_path / "case" / "inputs.json").unlink()
    assert graphdbg.load_graph(tmp_path / "case").inputs_record is None


def test_ids_that_repeat_after_a_reset_are_not_mixed_up(tmp_path: Path) -> None:
    """The first compile has no backward; that of the second must not lend it its tangents."""
    weight = torch.randn(4, 3, requires_grad=True)
    with record(tmp_path / "run", inputs="first"):
        torch._dynamo.reset()
        torch.compile(lambda x: (x @ weight).sin(), backend="aot_eager")(torch.ones(2, 4))
        torch._dynamo.reset()
        torch.compile(lambda x: (x + weight).cos(), backend="aot_eager")(torch.ones(3)).sum().backward()
    run = open_run(tmp_path / "run")
    assert "0_0/joint.1" in [graph.id for graph in run.graphs()] and "0_0/backward.1" in [
        graph.id for graph in run.graphs()
    ]
    lent = {id: run.graph(id).inputs_record for id in ("0_0/joint", "0_0/joint.1")}
    tangents = [
        [tensor for tensor in seen.inputs if tensor.name == "tangents_1"] if seen else None for seen in lent.values()
    ]
    assert tangents[0] == [] and tangents[1]
