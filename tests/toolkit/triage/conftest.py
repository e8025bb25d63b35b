"""One recorded run and one fork server for all tests of this folder; the planted faults can be imported by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphdbg.toolkit.isolation import JUDGING, ForkServer

PLANTED = Path(__file__).parents[2] / "planted"

SCRIPT = """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, w): return torch.tanh(torch.nn.functional.silu(x @ w)) * 1.25
with torch.no_grad(): f(torch.randn(4, 8), torch.randn(8, 8))
"""


@pytest.fixture(scope="session")
def recorded(recorded_script: Callable[..., Path]) -> Path:
    return recorded_script(SCRIPT, inputs="first")


@pytest.fixture(scope="session")
def server(warm_inductor_cache: Path) -> Iterator[ForkServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLANTED))  # the server searches where we search
        with ForkServer(warm_inductor_cache, threads=2, preload=JUDGING) as server:
            server.wait_ready()
            yield server
