"""Operands and results of higher-order operators that nobody reads: which go, which must stay, what goes with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch.utils.checkpoint import checkpoint

from graphdbg.minifier.passes import pass_of
from graphdbg.minifier.passes.bodies import bodies
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec

operands = pass_of("operands")
X, Y, W = torch.randn(3), torch.randn(3), torch.randn(3)


def captured(f: Any, *inputs: torch.Tensor) -> Live:
    """What Dynamo captures of a function, with the inputs that it gives to it."""
    seen: list[Live] = []

    def backend(gm: Any, _: Any) -> Any:
        def run(*given: Any) -> Any:
            seen.append(Live(gm, list(given), ReplaySpec("dynamo")))
            return gm(*given)

        return run

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(f, backend=backend, fullgraph=True, dynamic=False)(*inputs)
    return seen[0]


def without(case: Live, name: str) -> Live:
    """The case without nodes of its graphs that read an input so named, as `bodies` leaves it."""
    for path in bodies(case.gm):
        body = case.gm.get_submodule(path)
        (read,) = (node for node in body.graph.find_nodes(op="placeholder") if node.name.startswith(name))
        for node in list(read.users):
            node.replace_all_uses_with(node.all_input_nodes[0])
            body.graph.erase_node(node)
        body.recompile()
    return case


def reduced(case: Live) -> tuple[Live, list[str]]:
    edits: list[str] = []
    wanted = case.gm(*case.inputs)
    while rounds := operands.propose(case):
        for edit in rounds[0]:
            case = operands.apply(case, edit)
            case.gm.graph.lint()
        edits += rounds[0]
        for item, other in zip(case.gm(*case.inputs), wanted, strict=True):
            assert torch.equal(item, other)
    return case, edits


def taken(case: Live, name: str) -> Any:
    """The arguments of a call behind its graphs, as the number in each list."""
    (node,) = (node for node in case.gm.graph.nodes if node.name == name)
    return [
        len(argument) if isinstance(argument, (tuple, list)) else 1
        for argument in node.args
        if getattr(argument, "op", "") != "get_attr"
    ]


def three(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.cond(
        x.sum() > 0,
        lambda x, y, w: (x.sin(), y + 1, x + w),
        lambda x, y, w: (x.cos(), y - 1, x * w),
        (x, y.tanh(), w.exp()),
    )[0]


def test_both_branches_lose_what_neither_needs() -> None:
    given = captured(three, X, Y, W)
    case, edits = reduced(given)
    assert edits[:2] == ["operands cond returns 2", "operands cond returns 1"]
    assert [edit.split()[2] for edit in edits[2:]] == ["reads", "reads"]
    assert len(case.inputs) == 1, "the inputs that went only there are gone, and tanh and exp of them"
    assert taken(case, "cond") == [1, 1]
    assert len(given.inputs) == 3, "the case itself is left alone"
    assert taken(given, "cond") == [1, 3]


def test_an_operand_of_one_branch_stays() -> None:
    case = captured(lambda x, y: torch.cond(x.sum() > 0, lambda x, y: x + y, lambda x, y: x.cos(), (x, y)), X, Y)
    assert operands.propose(case) == []
    name = case.gm.get_submodule("cond_true_0").graph.find_nodes(op="placeholder")[1].name
    with pytest.raises(ValueError, match="needs its operand"):
        operands.apply(case, f"operands cond reads {name}")


def test_what_a_loop_carries_stays() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z.sin() + w), (torch.tensor(0), x))[1]

    case, edits = reduced(without(captured(f, X, W), "l_w_"))
    assert taken(case, "while_loop") == [2, 0]
    assert [edit.partition(" l_w_")[0] for edit in edits] == ["operands while_loop reads"]


def test_what_a_scan_or_a_map_stacks_goes_but_for_one() -> None:
    def scanned(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return scan(lambda c, s: (c + s, (c * 2, s + w)), x, torch.stack([y, y + 1]))[1][0]

    case, edits = reduced(captured(scanned, X, Y, W))
    assert edits == ["operands scan returns 2", "operands scan reads l_w_"]
    assert taken(case, "scan") == [1, 1, 0]
    case, edits = reduced(captured(lambda x, w: mapped(lambda s, w: (s + 1, s * w), x[None], w)[0], X, W))
    assert edits == ["operands map_impl returns 1", "operands map_impl reads l_w_"]
    assert taken(case, "map_impl") == [1, 0]


def test_regions_lose_operands() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> Any:
        return checkpoint(lambda x, y: (x.sin() * 2, y + w), x, y, use_reentrant=False)[0]

    case, edits = reduced(without(captured(f, X, Y, W), "l_w_"))
    assert edits == [f"operands tag_activation_checkpoint reads l_{name}_" for name in "yw"]
    assert len(case.inputs) == 1


@torch.compiler.nested_compile_region
def region(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() * 2, y + 1


def test_all_calls_of_a_region_lose_the_same() -> None:
    case = without(captured(lambda x, y: region(region(x, y)[0], x)[0], X, Y), "l_y_")
    case, edits = reduced(case)
    assert [edit.split()[2] for edit in edits] == ["reads"]
    calls = [node for node in case.gm.graph.nodes if "invoke_subgraph" in node.name]
    assert [len(node.args) for node in calls] == [3, 3]
    assert len(case.inputs) == 1
