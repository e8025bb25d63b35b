"""A saved graph enters at the stage where it was recorded: what runs for it, and in which parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdbg.dumps.store import Run
from graphdbg.toolkit.compile_fx.stage import NAMES, first_stage, order
from graphdbg.toolkit.isolation import ForkServer

from .recorded import stages, told

CODE = ["post_grad", "lower", "schedule", "codegen"]
ENTRIES = {
    "0_0/dynamo": {
        "dynamo": ["pre_grad", "capture"],
        "joint": ["joint", "partition"],
        "forward": CODE,
        "backward": CODE,
    },
    "0_0/pre_grad": {"joint": ["joint", "partition"], "forward": CODE, "backward": CODE},
    "0_0/joint": {"joint": ["joint", "partition"], "forward": CODE, "backward": CODE},
    "0_0/joint_passed": {"joint": ["partition"], "forward": CODE, "backward": CODE},
    "0_0/forward": {"forward": CODE},
    "0_0/backward": {"backward": CODE},
    "0_0/post_grad_forward": {"forward": CODE},
    "0_0/post_grad_backward": {"backward": CODE},
    "1_0/dynamo": {"dynamo": ["pre_grad", "capture"], "inference": ["joint", *CODE]},
    "1_0/inference": {"inference": ["joint", *CODE]},
    "1_0/joint_passed": {"inference": CODE},
    "1_0/post_grad_inference": {"inference": CODE},
}


@pytest.mark.long
@pytest.mark.parametrize("graph", ENTRIES)
def test_each_recorded_stage_enters_and_becomes_code(
    graph: str, recorded: Run, server: ForkServer, tmp_path: Path
) -> None:
    saved = recorded.graph(graph)
    result = told(saved, server, tmp_path)
    assert result.error is None, result.error
    for part, expected in ENTRIES[graph].items():
        assert [name for name in stages(result, part) if name in expected] == expected
        if expected[-4:] == CODE:
            assert result.part(part).kernels
    assert result.nodes == len(saved.record.graph.nodes)


@pytest.mark.parametrize("kind", ["forward", "backward", "inference"])
def test_passes_that_had_run_when_a_graph_was_recorded_run_no_second_time(
    kind: str, recorded: Run, server: ForkServer, tmp_path: Path
) -> None:
    graph = recorded.graph(f"{'1_0' if kind == 'inference' else '0_0'}/post_grad_{kind}")
    result = told(graph, server, tmp_path, until="post_grad")
    (row,) = result.part(kind).stages
    assert row.took == row.produced and not row.removed and "had run when it was recorded" in row.notes[-1]
    assert {own_pass.name for own_pass in row.passes} <= {"view_to_reshape", "fake_tensor_prop"}


def test_the_stages_of_a_dynamo_graph_are_those_of_its_saved_halves(
    recorded: Run, server: ForkServer, tmp_path: Path
) -> None:
    whole = told(recorded.graph("0_0/dynamo"), server, tmp_path / "whole")
    for part in ("forward", "backward"):
        half = told(recorded.graph(f"0_0/{part}"), server, tmp_path / part)
        assert [row.nodes for row in half.part(part).kernels] == [row.nodes for row in whole.part(part).kernels]


def test_every_stage_can_be_the_last(recorded: Run, server: ForkServer, tmp_path: Path) -> None:
    for until in NAMES[: order("load")]:
        result = told(recorded.graph("0_0/dynamo"), server, tmp_path / until, until=until)
        assert result.error is None, (until, result.error)
        ran = {row.stage for part in result.parts for row in part.stages}
        assert until in ran and all(order(stage) <= order(until) for stage in ran - {"capture"}), until


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        ("dynamo", "pre_grad"),
        ("compiled_autograd", "capture"),
        ("joint", "joint"),
        ("inference", "joint"),
        ("backward", "post_grad"),
        ("post_grad_forward", "lower"),
    ],
)
def test_first_stages(stage: str, first: str) -> None:
    assert first_stage(stage) == first


def test_a_joint_graph_after_its_passes_is_split_where_it_has_a_backward() -> None:
    assert first_stage("joint_passed", training_joint=True) == "partition"
    assert first_stage("joint_passed") == "post_grad"
