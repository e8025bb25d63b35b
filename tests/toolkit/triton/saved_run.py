"""A small graph whose kernels are a reduction and a pointwise one in place that is launched twice, and its saved
launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.experimental.proxy_tensor import make_fx

from graphdbg.toolkit.launching.launches import Launches, open_launches
from graphdbg.toolkit.launching.saving_child import saved_launches
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec


def traced(function: Any, *inputs: Any) -> fx.GraphModule:
    """A function as the inner compiler gets it."""
    return make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="fake")(*inputs)


def saved(function: Any, inputs: list[Any], folder: Path, *names: str) -> Launches:
    """The launches of a function's kernels, interpreted here."""
    case = Live(traced(function, *inputs), inputs, ReplaySpec("inference"), [])
    saved_launches(case, folder, "cuda:90", lambda kernel, call: not names or kernel in names)
    return open_launches(folder)


def example(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """Two products keep Inductor from fusing everything; relu is one kernel for both."""
    y = torch.relu(x @ w)
    z = torch.relu(y @ w)
    return [z.t()[1:].sum(0), z]


def example_inputs() -> list[torch.Tensor]:
    """Of `example`."""
    torch.manual_seed(0)
    return [torch.randn(64, 64), torch.randn(64, 64)]
