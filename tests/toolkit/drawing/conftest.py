"""What there is to draw: a run of real graphs, recorded once, and made-up records of any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.store import Run, open_run
from graphdbg.dumps.writer import RunWriter

from ...dumps.layered import layered


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Joint, forward and backward graphs of a transformer layer (0_0) and a convnet (1_0), no compiler behind them."""
    import torch
    from torch import nn

    from graphdbg.toolkit.compilers import graph_dumper_aot

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
            self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
            x = x + self.out((q @ k.transpose(1, 2)).softmax(-1) @ v)
            return x + self.down(torch.relu(self.up(x)))

    convnet = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    )
    folder = tmp_path_factory.mktemp("drawn")
    torch._dynamo.reset()
    backend = graph_dumper_aot("run", folder)
    for model, inputs in ((Layer(), torch.randn(2, 4, 16)), (convnet, torch.randn(2, 3, 8, 8))):
        torch.compile(model, backend=backend)(inputs).sum().backward()
    return open_run(folder / "run")


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one forward graph of 10,000 nodes."""
    path = tmp_path_factory.mktemp("large") / "big"
    process = RunWriter.create(path, RunRecord(format=FORMAT, command=["train.py"])).process()
    process.save_graph(layered(10_000))
    process.close()
    return path
