"""Metadata that a pass left behind: values of a captured graph are altered, and each is found as an origin of its
own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg
from graphdbg.toolkit.debug_nop.checking import checked


def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = torch.relu(x @ w)
    b = a.t()
    c = a[1:] + 1
    d = torch.sin(c)
    return b, d, torch.cos(d)


def captured(mode: str) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    inputs = [torch.randn(6, 4), torch.randn(4, 5)]
    return make_fx(function, tracing_mode=mode)(*inputs), inputs


def _alter(gm: fx.GraphModule, target: str, change: Callable[[Any], Any]) -> str:
    node = next(
        node for node in gm.graph.nodes if node.op == "call_function" and str(node.target).startswith(f"aten.{target}")
    )
    value = node.meta["val"]
    with value.fake_mode:
        node.meta["val"] = change(value)
    return node.name


ALTERED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("size", "sin", lambda v: v.new_empty(v.shape[0] + 1, v.shape[1])),
    ("dtype", "sin", lambda v: v.to(torch.float64)),
    ("stride", "sin", lambda v: torch.empty_strided(v.shape, (1, v.shape[0]))),
    ("offset", "t", lambda v: v.as_strided((3, 4), (1, 5), 2)),
    ("device", "sin", lambda v: torch.empty_like(v, device="meta")),
    ("alias", "t", lambda v: torch.empty_strided(v.shape, v.stride())),
    ("alias", "slice", lambda v: torch.empty_strided(v.shape, v.stride())),
]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize(("name", "target", "change"), ALTERED, ids=[f"{row[0]}-{row[1]}" for row in ALTERED])
def test_an_altered_value_is_the_one_origin(name: str, target: str, change: Callable[[Any], Any], mode: str) -> None:
    gm, inputs = captured(mode)
    altered = _alter(gm, target, change)
    run = checked(gm, inputs)
    outputs = run(list(inputs))
    assert all(torch.equal(item, other) for item, other in zip(outputs, function(*inputs), strict=True))
    origins = [finding for finding in run.findings if finding.origin]
    assert [finding.node for finding in origins] == [altered]
    assert name in {mismatch.property for mismatch in origins[0].own}
    assert {mismatch.cause for mismatch in origins[0].own} == {"stale"}


def test_behind_passes_a_view_of_a_replaced_node_is_a_note() -> None:
    gm, inputs = captured("fake")
    view, sine = _alter(gm, "t", ALTERED[5][2]), _alter(gm, "sin", ALTERED[1][2])
    run = checked(gm, inputs, rewritten=True)
    run(list(inputs))
    assert [finding.node for finding in run.findings if finding.origin] == [sine]
    assert [note for note in run.graph.unchecked() if view in note]


def test_two_in_a_row_are_two_origins() -> None:
    gm, inputs = captured("symbolic")
    first = _alter(gm, "sin", lambda v: v.to(torch.float64))
    second = _alter(gm, "cos", lambda v: torch.empty_strided(v.shape, (1, v.shape[0])))
    run = checked(gm, inputs)
    run(list(inputs))
    assert [finding.node for finding in run.findings if finding.origin] == [first, second]


def test_what_follows_from_a_stale_value_is_folded_under_it() -> None:
    gm, inputs = captured("fake")
    relu = _alter(gm, "relu", lambda v: v.to(torch.float64))
    for node in gm.graph.nodes:  # a pass that propagates from there makes its users wrong as well
        if node.op == "call_function" and str(node.target).startswith(
            ("aten.slice", "aten.add", "aten.sin", "aten.cos")
        ):
            node.meta["val"] = node.meta["val"].to(torch.float64)
    run = checked(gm, inputs)
    run(list(inputs))
    origins = [finding for finding in run.findings if finding.origin]
    assert relu in [finding.node for finding in origins]
    inherited = [finding for finding in run.findings if not finding.origin]
    assert inherited
    assert all(finding.under for finding in inherited)


def test_a_saved_graph_keeps_what_is_wrong_with_it(tmp_path: Any) -> None:
    from graphdbg.toolkit.replaying.checked import task

    gm, inputs = captured("symbolic")
    altered = [_alter(gm, "t", ALTERED[5][2]), _alter(gm, "sin", ALTERED[2][2])]
    graphdbg.save_graph(gm, inputs, tmp_path / "case")
    task_result = task({"path": str(tmp_path / "case"), "seed": 0, "device": None, "imports": []})
    origins = [
        row["node"]
        for row in task_result["findings"]
        if any(mismatch["cause"] != "inherited" for mismatch in row["mismatches"])
    ]
    assert origins == altered


def parts(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q, k = (x @ w).split(3, 1)
    return q.transpose(0, 1).relu() + 1, torch.cos(k)


ITEMS = [row for row in ALTERED if row[1] == "sin"] + [("offset", "", lambda v: v.as_strided(v.shape, (6, 1), 2))]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize(("name", "_", "change"), ITEMS, ids=[row[0] for row in ITEMS])
def test_a_part_of_a_tuple_with_a_record_of_its_own(name: str, _: str, change: Callable[[Any], Any], mode: str) -> None:
    """What was recorded in the memory of what it replaced follows from it."""
    inputs = [torch.randn(6, 4), torch.randn(4, 6)]
    gm = make_fx(parts, tracing_mode=mode)(*inputs)
    item = next(node for node in gm.graph.nodes if node.name.startswith("getitem"))
    value = item.meta["val"]
    with value.fake_mode:
        item.meta["val"] = change(value)
    run = checked(gm, inputs)
    run(list(inputs))
    origins = [finding for finding in run.findings if finding.origin]
    assert [finding.node for finding in origins] == [item.name]
    assert name in {mismatch.property for mismatch in origins[0].own}
    assert all(finding.under == [item.name] for finding in run.findings if not finding.origin)


@pytest.mark.parametrize("saved", [False, True])
def test_a_graph_traced_with_real_tensors_records_no_memory(saved: bool, tmp_path: Any) -> None:
    """Its views are no lies; what else it records is checked."""
    inputs = [torch.randn(6, 4), torch.randn(4, 6)]
    gm = make_fx(parts)(*inputs)
    relu = next(node for node in gm.graph.nodes if node.name == "relu")
    with next(node for node in gm.graph.nodes if node.name == "cos").meta["val"].fake_mode:
        relu.meta["val"] = torch.empty_strided((3, 6), (6, 1), dtype=torch.float64)
    if saved:
        from graphdbg.toolkit.replaying.checked import task

        graphdbg.save_graph(gm, inputs, tmp_path / "case")
        task_result = task({"path": str(tmp_path / "case"), "seed": 0, "device": None, "imports": []})
        assert [row["node"] for row in task_result["findings"]] == ["relu"]
        return
    run = checked(gm, inputs)
    run(list(inputs))
    assert [finding.node for finding in run.findings] == ["relu"]
    assert any("aliasing" in note for note in run.graph.unchecked())


def test_behind_passes_strides_that_nobody_reads_are_a_note_and_those_of_an_output_are_not() -> None:
    gm, inputs = captured("fake")
    returned = _alter(gm, "sin", lambda v: torch.empty_strided(v.shape, (1, v.shape[0])))
    run = checked(gm, inputs, rewritten=True)
    run(list(inputs))
    assert [finding.node for finding in run.findings if finding.origin] == [returned]
    gm, inputs = captured("fake")
    unread = _alter(gm, "add", lambda v: torch.empty_strided(v.shape, (1, v.shape[0])))
    run = checked(gm, inputs, rewritten=True)
    run(list(inputs))
    assert not run.findings
    assert [note for note in run.graph.unchecked() if unread in note and "nothing reads it" in note]


@pytest.mark.parametrize(("part", "flag"), [(0, False), (1, True)])
def test_a_part_that_nobody_takes_is_a_note(part: int, flag: bool) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x)[part] * 2

    gm = make_fx(halves, tracing_mode="fake")(torch.randn(4))
    node = next(node for node in gm.graph.nodes if "sort" in str(node.target))
    values, order = node.meta["val"]
    with values.fake_mode:
        node.meta["val"] = values, order.to(torch.int32)
    run = checked(gm)
    run([torch.randn(4)])
    assert bool(run.findings) is flag


def test_sizes_changed_twice_in_place_are_not_compared_before_the_last() -> None:
    def turned(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.t_()
        y.unsqueeze_(0)
        return y.relu()

    compiled = []

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        compiled.append(checked(gm))
        return lambda *given: compiled[0](list(given))

    torch.compile(turned, backend=backend)(torch.randn(3, 4))
    assert not compiled[0].findings


def test_what_an_operator_that_returns_nothing_stands_for_is_a_note() -> None:
    gm = make_fx(lambda x: (torch.ops.aten._assert_async.msg(x.all(), "some are zero"), x + 1)[1], tracing_mode="fake")(
        torch.ones(3)
    )
    node = next(node for node in gm.graph.nodes if "_assert_async" in str(node.target))
    node.meta["val"] = (None, node.args[0].meta["val"])  # as a functional form of it left it
    run = checked(gm, [torch.ones(3)])
    run([torch.ones(3)])
    assert [finding for finding in run.findings if finding.origin] == []
    assert [note for note in run.graph.unchecked() if node.name in note]
