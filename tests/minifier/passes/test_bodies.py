"""Graphs inside higher-order operators lose nodes: before and after; and a planted bug in the body of a loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._higher_order_ops import while_loop

from graphdbg.dumps import live, walk
from graphdbg.dumps.store import load_graph
from graphdbg.dumps.torchside.values import fake_of
from graphdbg.minifier.minify import minify
from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.symbolic import bodies as bodies_of
from graphdbg.minifier.passes.symbolic import node_count
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

inside = pass_of("bodies")


def captured(f: Any, *inputs: torch.Tensor, whole: bool = True) -> Live:
    """What Dynamo captures of a function."""
    seen: list[Any] = []

    def keep(gm: Any, _: Any) -> Any:
        seen.append(gm)
        return gm

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(f, backend=keep, fullgraph=whole, dynamic=False)(*inputs)
    return Live(seen[0], list(inputs), ReplaySpec("dynamo"))


def calls(case: Live, path: str) -> list[str]:
    """What the nodes of a body call."""
    nodes = case.gm.get_submodule(path).graph.nodes
    return [
        node.target if isinstance(node.target, str) else node.target.__name__ for node in nodes if "call" in node.op
    ]


def reduced(case: Live) -> Live:
    for edit in inside.propose(case)[0]:
        case = inside.apply(case, edit)
    case.gm(*case.inputs)
    assert inside.propose(case) == []
    return case


def branches(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: (x.sin() * 2).relu() + 1, lambda x: x.cos() - 1, (x,)) * 2


def looped(x: torch.Tensor) -> Any:
    def step(i: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (i * 1) + 1, torch.relu(y.sin() * 2).cos()

    return while_loop(lambda i, y: i < 3, step, (torch.tensor(0), x))


def test_each_branch_keeps_one_node() -> None:
    given = captured(branches, torch.ones(3))
    assert inside.propose(given) == [
        [
            "bodies cond_true_0 add relu",
            "bodies cond_true_0 relu mul",
            "bodies cond_true_0 mul sin",
            "bodies cond_false_0 sub cos",
        ],
        ["bodies cond_true_0 sin l_x__1", "bodies cond_false_0 cos l_x__1"],
    ]
    result = reduced(given)
    assert (calls(result, "cond_true_0"), calls(result, "cond_false_0")) == (["sin"], ["cos"])
    assert len(calls(given, "cond_true_0")) == 4, "the case itself is left alone"


@pytest.mark.parametrize("whole", [True, False])
def test_fake_values_keep_what_the_compiler_may_read(whole: bool) -> None:
    """Without `fullgraph=True` no number is read out of a tensor, and passes that trace again fail where they would."""
    less = reduced(captured(branches, torch.ones(3), whole=whole))
    place = less.gm.graph.find_nodes(op="placeholder")[0]
    assert fake_of(place).fake_mode.shape_env.allow_scalar_outputs is whole


def test_nodes_inside_count_before_and_after(tmp_path: Path) -> None:
    given = captured(branches, torch.ones(3))
    less = reduced(given)
    counts: list[int] = []
    for number, case in enumerate((given, less)):
        live.save_graph(case.gm, case.inputs, tmp_path / str(number), stage="dynamo")
        counts.append(walk.node_count(load_graph(tmp_path / str(number)).record.graph))
    assert counts == [node_count(given.gm), node_count(less.gm)]
    assert len(given.gm.graph.nodes) < counts[1] == counts[0] - 4


def test_no_body_is_left_with_a_view_of_its_input_or_a_list_for_its_item() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() < 9, lambda x: x.t().exp(), lambda x: x.sin(), (x,))

    given = captured(lambda x: torch.cond(x.sum() > 0, lambda x: x.t().exp(), inner, (x,)), torch.ones(1, 1))
    edits = [edit for edits in inside.propose(given) for edit in edits if edit != "bodies inline"]
    assert edits
    assert not any(edit.split()[2].startswith(("exp", "getitem")) for edit in edits)


def test_a_loop_that_would_not_end_is_not_proposed() -> None:
    given = captured(looped, torch.ones(3))
    assert not any(edit.split()[2].startswith("add") for edit in inside.propose(given)[0])
    result = reduced(given)
    assert calls(result, "cond_fn_0") == ["lt"]
    assert calls(result, "body_fn_0") == ["add", "sin"]


def test_an_edit_of_a_node_that_went_with_another_changes_nothing() -> None:
    given = captured(branches, torch.ones(3))
    once = inside.apply(given, "bodies cond_true_0 add relu")
    again = inside.apply(once, "bodies cond_true_0 add relu")
    assert calls(once, "cond_true_0") == calls(again, "cond_true_0") == ["sin", "mul", "relu"]
    with pytest.raises(ValueError, match="no body"):
        inside.apply(given, "bodies cond_9 add relu")


def test_a_graph_without_bodies_has_no_edits() -> None:
    assert inside.propose(captured(lambda x: x.sin().cos(), torch.ones(3))) == []


@pytest.mark.slow
def test_a_bug_in_the_body_of_a_loop_leaves_its_node(tmp_path: Path) -> None:
    given = captured(lambda x: looped(x.tanh())[1] * 2, torch.ones(3))
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error"}), torch.no_grad():
        result = minify(given.gm, given.inputs, out=tmp_path / "out")
    assert result.verified == (3, 3)
    (path,) = (path for path in bodies_of(result.module) if "body" in path)
    assert [name for name in calls(Live(result.module, []), path) if name != "add"] == ["relu"]
