"""One small run, recorded for real, and a server to compile it in, which knows defects that can be imported."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphdbg
from graphdbg.dumps.store import Run, open_run
from graphdbg.toolkit.compile_fx.showing import asking
from graphdbg.toolkit.isolation import ForkServer, opened

from ...one_server import Lender

PLANTED = ("raise", "segfault", "hang", "code", "joint_pattern")
"""Each is a module `planted_<word>` for the option --import."""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """0_0: a trained layer, every stage of it; 1_0: `relu(x @ w).sum(-1)` with symbols, inference."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.tanh(self.up(x))).view(2, 3, 8)

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w).sum(-1)

    torch._dynamo.reset()
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("compiled") / "run"
    with graphdbg.record(str(path), inputs="none"):
        torch.compile(Layer())(torch.randn(6, 8)).sum().backward()
        with torch.no_grad():
            torch.compile(product, dynamic=True)(torch.randn(5, 7), torch.randn(7, 9))
    return open_run(path)


@pytest.fixture(scope="session")
def planted_modules(one_server: Lender) -> Iterator[Path]:
    """A folder with the defects of `planted_compile` as modules."""
    shutil.copy(Path(__file__).with_name("planted_compile.py"), one_server.modules)
    for how in PLANTED:
        (one_server.modules / f"planted_{how}.py").write_text(
            f"import planted_compile\n\nplanted_compile.plant({how!r})\n"
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(one_server.modules))  # a command looks for the modules of --import before it asks
        yield one_server.modules


@pytest.fixture(scope="session")
def server(planted_modules: Path) -> Iterator[ForkServer]:
    """It knows `planted_modules`."""
    with opened(None, "inductor", asking.TASK) as item:
        item.wait_ready()
        yield item
