"""Saving and loading what lies on a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import graphdbg
from graphdbg.dumps import live

from .graphs import MemoryTensors
from .live_graphs import Block, caught, fresh, same
from .test_synth import REAL, graph_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("name", [name for name in REAL if not name.startswith("quantised")])
def test_stored_inputs_come_back_to_their_device(name: str) -> None:
    real = REAL[name].detach().cuda()
    sink = MemoryTensors()
    seen = live.observe(graph_of(None), [real], "first", sink)
    (again,) = live.inputs(graph_of(None), seen, sink, 0)
    assert (again.device, again.shape, again.stride()) == (real.device, real.shape, real.stride())
    assert torch.equal(again.to(torch.complex64), real.to(torch.complex64))


def test_views_of_one_gpu_storage_share_it() -> None:
    base = torch.randn(4, 4, device="cuda")
    sink = MemoryTensors()
    seen = live.observe(graph_of(None, None), [base, base.t()[1:]], "all", sink)
    a, b = live.inputs(graph_of(None, None), seen, sink, 0)
    a.zero_()
    assert not b.any()
    assert len(sink.storages) == 1


def test_a_case_from_a_gpu(tmp_path: Path) -> None:
    for number, (stage, gm, _) in enumerate(
        caught(Block().cuda(), torch.randn(4, 8, device="cuda", requires_grad=True))
    ):
        record = live.encode(gm, id=f"0_0/{stage}", stage=stage)
        inputs = live.inputs(record, None, None, 0)
        assert all(value.is_cuda for value in inputs if isinstance(value, torch.Tensor))
        folder = tmp_path / str(number)
        live.save_graph(gm, inputs, folder, like=record)
        saved = graphdbg.load_graph(folder)
        torch.manual_seed(1)
        expected = gm(*fresh(inputs))
        torch.manual_seed(1)
        assert same(saved.module()(*saved.inputs()), expected)
        done = subprocess.run([sys.executable, str(folder / "graph.py")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
