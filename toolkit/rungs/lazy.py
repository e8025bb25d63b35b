"""`lazy`: the graph extracted through torch's lazy TorchScript backend, whose tracing, IR and executor are its own.

Like `torchscript` it blames nothing but itself when it fails: where it agrees with eager, the graph is sound. Many
operators have no lazy kernel: then the reason names them with the user's line. Its process is the rung's own child, so
that what the lazy backend leaves behind in a process is left there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ...dumps.errors import EnvironmentLackError
from .. import torch_private as t
from ..compilers.lazy import lazy_compile
from ..compilers.lazy_tracing import NotExtractedError
from ..live.rung import CannotRun, Compiled
from ..live.spec import ReplaySpec
from .torchscript import TorchScript


class Lazy(TorchScript):
    """Runs the extracted graph; of a joint graph forward and backward in one."""

    name = "lazy"
    early = "lazy tensors take only graphs that AOTAutograd has processed"

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        if devices := {str(value.device) for value in fake_inputs if isinstance(value, torch.Tensor)} - {"cpu"}:
            where = ", ".join(sorted(devices))
            raise CannotRun(f"the lazy TorchScript backend runs on the CPU, and inputs are on {where}")
        try:
            compiled = lazy_compile(gm, fake_inputs)
        except (NotExtractedError, EnvironmentLackError) as error:
            raise CannotRun(error.why) from error

        def run(inputs: list[Any]) -> list[Any]:
            try:
                return t.tree_leaves(compiled(inputs), is_leaf=lambda value: value is None)
            except NotExtractedError as error:  # sizes may be symbolic until here
                raise CannotRun(error.why) from error

        return run


RUNG = Lazy(order=60, words="lazy tensors; operators without a lazy kernel are named", is_side=True, has_passes=False)
"""The one instance that the registry hands out."""
