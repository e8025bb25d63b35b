"""A backward graph whose saved tensors came channels-last, as AOTAutograd hands it to Inductor: it runs, and is as
traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.dumps import live
from graphdbg.dumps.errors import DeviceMissingError
from graphdbg.dumps.schema import InputRecord
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.cutting.parts import keep_values, part_of
from graphdbg.toolkit.debug_nop.checking import checked
from graphdbg.toolkit.live.case import Case, follow_saved
from graphdbg.toolkit.live.eager import GraphRunError, run_graph


def backward(saved: torch.Tensor, tangent: torch.Tensor) -> Any:
    twice = saved * 2
    flat = torch.ops.aten.view.default(twice, [16, 64])
    return flat.sum(1), tangent + twice


def loaded(*, relaid: bool, role: Any = "saved") -> tuple[fx.GraphModule, Any, Any, list[torch.Tensor]]:
    """The graph out of its record, its mode, the record, and real inputs."""
    layout = torch.channels_last if relaid else torch.contiguous_format
    saved = torch.randn(2, 8, 8, 8).to(memory_format=layout)
    with FakeTensorMode() as mode:
        fakes = [torch.empty(2, 8, 8, 8), torch.empty(2, 8, 8, 8)]
    gm = make_fx(backward, tracing_mode="fake")(*fakes)
    first = next(iter(gm.graph.nodes))
    first.meta["val"] = mode.from_tensor(saved)
    record = live.encode(gm, id="0_0/backward", stage="backward", roles=[InputRecord(first.name, role)])
    again, _, mode = live.fake_module(record, None)
    return again, mode, record, [saved, torch.randn(2, 8, 8, 8)]


def test_a_graph_with_relaid_saved_tensors_runs_and_is_as_traced() -> None:
    gm, mode, record, inputs = loaded(relaid=True)
    with pytest.raises(GraphRunError, match="view"):
        run_graph(gm, list(inputs))
    assert follow_saved(gm, mode, record) == [
        "saved tensors have other strides than traced (nodes: 1, views made reshapes: 1)"
    ]
    run = checked(gm)
    got = run(list(inputs))
    assert run.findings == []
    torch.testing.assert_close(list(got), [(inputs[0] * 2).reshape(16, 64).sum(1), inputs[1] + inputs[0] * 2])


@pytest.mark.parametrize("case", [{"relaid": False}, {"relaid": True, "role": "user"}])
def test_other_graphs_stay_as_recorded(case: dict[str, Any]) -> None:
    gm, mode, record, _ = loaded(**case)
    before = {node.name: node.meta.get("val") for node in gm.graph.nodes}
    assert follow_saved(gm, mode, record) == []
    assert all(before[node.name] is node.meta.get("val") for node in gm.graph.nodes)
    assert any(node.target is torch.ops.aten.view.default for node in gm.graph.nodes)


def test_a_part_of_such_a_graph_runs_too(tmp_path: Path) -> None:
    gm, _, record, inputs = loaded(relaid=True)
    saved = load_graph(live.save_graph(gm, inputs, tmp_path / "case", like=record))
    case = Case(saved)
    atoms = keep_values(case.live(), tmp_path, seed=0)
    number = next(number for number, nodes in enumerate(atoms.nodes) if nodes[0].startswith("view"))
    part = part_of(case, tmp_path, {number})
    assert not part.inputs[0].is_contiguous()
    torch.testing.assert_close(run_graph(part.gm, part.inputs), [(inputs[0] * 2).reshape(16, 64)])


def test_a_wrong_size_on_record_is_still_found() -> None:
    gm, mode, record, inputs = loaded(relaid=True)
    total = next(node for node in gm.graph.nodes if "sum" in node.name)
    with mode:
        total.meta["val"] = torch.empty(17)
    follow_saved(gm, mode, record)
    run = checked(gm)
    run(list(inputs))
    assert [(finding.node, finding.mismatches[0].property) for finding in run.findings] == [(total.name, "size")]


@pytest.mark.parametrize("device", ["nonsense", "cuda:99"])
def test_a_device_that_is_not_here_is_named(device: str, tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: x * 2)
    live.save_graph(gm, [torch.ones(2)], tmp_path / "case")
    with pytest.raises(DeviceMissingError, match=f"cannot be moved to {device}: .*Name a device"):
        Case.at(tmp_path / "case").live(device=device)
