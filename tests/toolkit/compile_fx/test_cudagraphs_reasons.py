"""Why something is not recorded, and what each part of a split graph is given: text and metadata alone, held against
torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._inductor.utils import GraphPartitionMap, get_first_incompatible_cudagraph_node
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.compile_fx import calls
from graphdbg.toolkit.compile_fx.calls import unfit_nodes
from graphdbg.toolkit.compile_fx.recording import CallFacts, part_of

STACK = '  File "/home/me/model.py", line 12, in forward\n    x.add_(1)\n'


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            f"skipping cudagraphs due to mutated inputs (1 instances). Found from : \n {STACK}",
            "y (model.w) is written to (model.py:12)",
        ),
        (
            "skipping cudagraphs due to skipping cudagraphs due to cpu device (add). Found from : \n" + STACK,
            "cpu device (add) (model.py:12)",
        ),
        (
            "disabling cudagraphs due to incompatible op aten.nonzero.default Found from " + STACK,
            "incompatible op aten.nonzero.default (model.py:12)",
        ),
        ("complex memory overlap", "x overlaps itself (complex memory overlap)"),
        ("non-Tensor inputs", "n is no tensor"),
        ("force_disable_cudagraph_TESTING_ONLY", "force_disable_cudagraph_TESTING_ONLY"),
    ],
)
def test_reasons_are_sentences(reason: str, expected: str) -> None:
    inputs = [torch.empty(9).as_strided((3, 3), (2, 1)), torch.empty(3), 2.5]
    assert calls.sentence(reason, ["x", "y (model.w)", "n"], [1], inputs) == expected
    assert calls.sentence(reason, devices=["cpu"]) == "no CUDA device in this graph"


def test_partitions_have_the_facts_of_their_own_inputs() -> None:
    a, b = torch.ones(1), torch.ones(2)
    whole = CallFacts(
        ["x", "w (model.w)", "b"], (1, 2), (2,), ["px", "pw", "pb"], ["first", "second"], {"a": a, "b": b}
    )
    maps = [GraphPartitionMap(0, [1, 0], [None, 1], ["a"]), GraphPartitionMap(7, [None, 2, 1], [0], ["b"])]
    first, second = (part_of(whole, item) for item in maps)
    assert (first.static, first.mutated, first.stacks, first.constants) == ((0,), (), [None, "second"], {"a": a})
    assert [str(name) for name in first.names] == ["w (model.w)", "x"] and first.placeholders == ["pw", "px"]
    assert (second.static, second.mutated, second.stacks) == ((1, 2), (1,), ["first"])
    assert [str(name) for name in second.names] == ["partition_7_placeholder_0", "b", "w (model.w)"]
    assert second.placeholders[0].name == "partition_7_placeholder_0"


def test_partition_facts_are_as_torch_makes_them() -> None:
    from torch._inductor.cudagraph_utils import CudagraphMetadata, PlaceholderInfo, get_partition_cudagraph_metadata
    from torch.utils._ordered_set import OrderedSet

    placeholders = [PlaceholderInfo(name, None, [], None) for name in "xyz"]
    theirs_whole = CudagraphMetadata(placeholders, OrderedSet([0, 2]), OrderedSet([2]), ["s"], {})
    ours_whole = CallFacts(list("xyz"), (0, 2), (2,), placeholders, ["s"], {})
    for item in (GraphPartitionMap(0, [2, None, 0], [0, None], []), GraphPartitionMap(1, [1], [], [])):
        theirs, ours = get_partition_cudagraph_metadata(item, theirs_whole), part_of(ours_whole, item)
        assert (tuple(theirs.static_input_idxs), tuple(theirs.mutated_input_idxs)) == (ours.static, ours.mutated)
        assert (list(theirs.placeholders), theirs.stack_traces) == (list(ours.placeholders), list(ours.stacks))


def masked(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.index_put.default(x, [m], torch.zeros(()))


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: x.sin() + 1, (torch.ones(3),), []),
        (lambda x: torch.nonzero(x).sin(), (torch.ones(3),), ["aten.nonzero.default", "aten.sin.default"]),
        (masked, (torch.ones(3), torch.ones(3, dtype=torch.bool)), ["aten.index_put.default"]),
        (masked, (torch.ones(3), torch.zeros(3, dtype=torch.long)), []),
    ],
    ids=["fit", "nonzero", "mask", "index"],
)
def test_operators_that_cannot_be_recorded(function: Any, inputs: tuple[Any, ...], expected: list[str]) -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    gm = make_fx(function)(*[mode.from_tensor(value) for value in inputs])
    for node in gm.graph.nodes:
        node.meta["stack_trace"] = STACK
    result = unfit_nodes(gm, with_cpu=False)
    assert [item.op for item in result] == expected
    first = get_first_incompatible_cudagraph_node(gm)
    assert (first.name if first else None) == (result[0].node if result else None)
    assert all("(model.py:12): " in str(item) for item in result)


def test_sparse_results_and_marked_operators_are_named() -> None:
    gm = torch.fx.symbolic_trace(lambda x: torch.neg(x))
    _, node, _ = gm.graph.nodes
    node.meta["val"] = torch.eye(2).to_sparse()
    assert [node.why for node in unfit_nodes(gm)] == ["it makes a sparse tensor"]
    assert get_first_incompatible_cudagraph_node(gm) is node
    with torch.library._scoped_library("graphdbg_unfit", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.cudagraph_unsafe,))
        node.target, node.meta["val"] = torch.ops.graphdbg_unfit.twice.default, torch.ones(2)
        assert [node.why for node in unfit_nodes(gm)] == ["its author has marked it cudagraph_unsafe"]
        assert get_first_incompatible_cudagraph_node(gm) is node


def test_what_runs_on_the_cpu_is_named() -> None:
    gm = torch.fx.symbolic_trace(lambda x: (x + 1).cpu() * 2)
    gpu, cpu = (torch.empty(3, device=device) for device in ("meta", "cpu"))
    for node, value in zip(gm.graph.nodes, (gpu, gpu, cpu, cpu, None), strict=True):
        node.meta["val"] = value
        node.op = "call_function" if node.op == "call_method" else node.op
    assert [(node.node, node.why) for node in unfit_nodes(gm)] == [
        ("cpu", "it runs on the CPU"),
        ("mul", "it runs on the CPU"),
    ]
