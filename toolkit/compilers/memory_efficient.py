"""`memory_efficient_fusion`: as little as possible is kept from forward to backward, and each goes through TorchScript.

The split is torch's min-cut: what is cheap to compute again is computed again in the backward. What that saves is told:
`.saved_bytes` of the result, and a line per graph on a stream on request.

>>> fused = memory_efficient_fusion(lambda x, y: (x + y).sin().exp().sum())
>>> fused(x, y).backward()
>>> print(fused.saved_bytes)
graphdbg x0_0: 1.0 KiB kept from forward to backward in 1 tensor (default partition: 2.0 KiB in 2), and 0 B of inputs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO

import torch

from .. import torch_private as t
from .decompositions import default_decompositions
from .saved_bytes import SavedBytes
from .ts_compile import ts_compile


def memory_efficient_fusion(
    fn: Callable[..., Any] | torch.nn.Module, *, report: TextIO | None = None, **kwargs: Any
) -> Any:
    """The function or module, compiled on its first call; returns what it returned, with the same gradients.

    `kwargs` are those of `functorch.compile.aot_function` and win over the ones chosen here (`fw_compiler`, `bw_compiler`,
    `partition_fn`, `decompositions`). The result has `.saved_bytes`, a SavedBytes; each of its lines goes to `report` too.
    """
    config: dict[str, Any] = {
        "fw_compiler": ts_compile,
        "bw_compiler": ts_compile,
        "partition_fn": t.min_cut_rematerialization_partition,
        "decompositions": default_decompositions,
        **kwargs,
    }
    saved = SavedBytes(report)
    config["partition_fn"] = saved.watching(config["partition_fn"])
    compiled: Any = FusedModule(fn, config) if isinstance(fn, torch.nn.Module) else t.aot_function(fn, **config)
    compiled.saved_bytes = saved
    return compiled


class FusedModule(torch.nn.Module):
    """A module run by its compiled graphs. Tied weights are one input, which `functorch.compile.aot_module` refuses; parameters
    and buffers are those that the module has at each call."""

    def __init__(self, module: torch.nn.Module, config: dict[str, Any]) -> None:
        super().__init__()
        self.orig_module = module
        state = len(list(module.parameters())) + len(list(module.buffers()))
        self._compiled = t.aot_function(self._call, num_params_buffers=state, **config)

    def _call(self, parameters: dict[str, Any], buffers: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return torch.func.functional_call(self.orig_module, {**parameters, **buffers}, args, kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module returns."""
        module = self.orig_module
        return self._compiled(dict(module.named_parameters()), dict(module.named_buffers()), args, kwargs)
