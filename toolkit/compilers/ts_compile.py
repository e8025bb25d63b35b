"""`ts_compile`: the graph through TorchScript: scripted, mutation removed, frozen, optimised for inference, run once.

Works on lazy graph modules, with symbolic sizes as inputs, in the graph and as outputs; an operator that TorchScript does not
know is named with the user's line. The caller's graph, inputs and random state stay as they are.

>>> aot_function(f, fw_compiler=ts_compile)(x)
>>> torch.compile(model, backend="graphdbg_ts", dynamic=True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .. import torch_private as t
from ..copying import clone_inputs
from .boxed import boxed
from .decompositions import default_decompositions
from .torchscript import returning, script, torchscript_alone


@boxed
def ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """Compiles with TorchScript; the first run is now unless an input is fake. Raises UnscriptableError (a GraphdbgError)."""
    with torchscript_alone():
        frozen = script(fx_g, inps, _optimised)
        if not any(isinstance(value, (t.FakeTensor, torch.SymInt)) for value in inps):
            _run_once(frozen, inps)
    return returning(fx_g, frozen)


def _optimised(scripted: torch.jit.ScriptModule) -> Any:
    t.remove_mutation(scripted.graph)
    return torch.jit.optimize_for_inference(torch.jit.freeze(scripted))


def _run_once(frozen: Any, inps: Sequence[Any]) -> None:
    """The run in which TorchScript profiles and specialises; on copies, since a graph may change its inputs, and draw numbers."""
    devices = {value.device for value in inps if isinstance(value, torch.Tensor) and value.device.type != "cpu"}
    kind = next(iter(devices)).type if devices else "cuda"
    with torch.random.fork_rng(devices=[device.index or 0 for device in devices], device_type=kind):
        frozen(*clone_inputs(inps))


def backend_arguments(decompose: bool = True) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_ts`; without `decompose` the graph keeps the operators that were called."""
    return {"fw_compiler": ts_compile, "decompositions": default_decompositions if decompose else None}
