"""A graph that was recorded on a GPU is loaded, run and its kernels checked where there is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import fx

import graphdbg
from graphdbg.dumps.graph_folder import GRAPH_FILE
from graphdbg.dumps.relocate import names_device, relocated
from graphdbg.dumps.store import SavedGraph
from graphdbg.toolkit.judging.judge import judge
from graphdbg.toolkit.live.case import Case


@pytest.fixture
def of_gpu(tmp_path: Path) -> SavedGraph:
    """A case folder whose graph says cuda:0 everywhere, device arguments included."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    ones = graph.call_function(torch.ops.aten.full.default, ([8], 2.0), {"device": torch.device("cpu")})
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (x, ones)),))
    graphdbg.save_graph(fx.GraphModule({}, graph), [torch.arange(8.0)], tmp_path / "case")
    saved = graphdbg.load_graph(tmp_path / "case")
    (tmp_path / "case" / GRAPH_FILE).write_bytes(msgspec.json.encode(relocated(saved.record, "cpu", "cuda:0")))
    return graphdbg.load_graph(tmp_path / "case")


def test_devices_are_named_and_moved(of_gpu: SavedGraph) -> None:
    assert names_device(of_gpu.record.graph, "cuda") and not names_device(of_gpu.record.graph, "cpu")
    assert not names_device(relocated(of_gpu.record, "cuda", "cpu").graph, "cuda")


def test_it_is_judged_on_the_cpu(of_gpu: SavedGraph) -> None:
    case = Case(of_gpu).live(seed=0, device="cpu")
    assert case.inputs[0].device.type == "cpu"
    outcome = judge(case, "nop", keep_outputs=True)
    assert outcome.ok and outcome.outputs is not None
    assert torch.equal(outcome.outputs[0], torch.arange(8.0) * 2)


def test_kernels_for_a_gpu_are_interpreted_on_the_cpu(of_gpu: SavedGraph) -> None:
    pytest.importorskip("triton")
    assert Case(of_gpu).device_for("triton_interpret", None) == "cpu"
    assert Case(of_gpu).device_for("inductor", None) is None
    from graphdbg.toolkit.kernel_checks.findings import CheckedKernels
    from graphdbg.toolkit.kernel_checks.showing import task

    answer = task({"path": str(of_gpu.path), "seed": 0, "imports": [], "kernel": None})
    result = msgspec.convert(answer, CheckedKernels)
    assert result.cannot == "" and result.findings == [] and result.launches == 1
