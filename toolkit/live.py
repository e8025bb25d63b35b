"""How the live face of a case is made: module with fake values, real inputs, the spec it was compiled with.

>>> made_live(load_graph("myrun/0_0/forward"), seed=0).inputs        # Case(saved).live() keeps it
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ..dumps import live
from ..dumps.relocate import names_device, relocated
from ..dumps.torchside import targets
from . import gpu_only, kernel_calls, process_groups
from .case import Live
from .copying import clone_inputs
from .relaid import follow_saved
from .spec import ReplaySpec

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph


def made_live(saved: SavedGraph, *, seed: int, device: str | None, meeting: str) -> Live:
    """Loads a saved graph with its inputs; with `device`, moved there. Process groups that it names are made (see
    `process_groups.join` for `meeting`)."""
    process_groups.join(saved.record, meeting)
    record, inputs_record = saved.record, saved.inputs_record
    from_gpu = device == "cpu" and names_device(record.graph, "cuda")
    if from_gpu and inputs_record is not None:
        inputs_record = relocated(inputs_record, "cuda", "cpu")
    if from_gpu:  # tensors of a GPU cannot be made, to be moved, where there is none
        record = relocated(record, "cuda", "cpu")
    spec = ReplaySpec.of(record, device=device)
    gm, _, mode = live.fake_module(record, saved.tensors, where=str(saved.path))
    inputs = live.inputs(record, inputs_record, saved.tensors, seed, where=str(saved.path))
    notes = follow_saved(gm, mode, record)
    notes += [f"{name} was not recorded and is made up" for name in gm.meta.get("graphdbg", {}).get("made_up", ())]
    if device is not None and not from_gpu:
        gm, inputs = moved(gm, inputs, torch.device(device))
        spec.dynamic = False
    if from_gpu and (fused := gpu_only.used(gm)):
        gpu_only.register()
        notes.append(f"{', '.join(fused)}: there is no CPU kernel of torch; computed by the mathematics that defines it")
    if saved.record.kernels and device in (None, "cpu"):
        notes += kernel_calls.notes(gm)
    return Live(gm, inputs, spec, notes)


def warm() -> None:
    """Fills the tables by which targets are looked up, so that a forked child inherits them; no tensor work."""
    targets.name_of(operator.getitem)
    for name in ("operator.getitem", "aten.relu.default", "prims.convert_element_type.default"):
        targets.resolve(name, "warm-up")


def moved(gm: fx.GraphModule, inputs: list[Any], device: torch.device) -> tuple[fx.GraphModule, list[Any]]:
    """The graph and its inputs on another device: tensors, device arguments; recorded fake values are dropped. Changes `gm`."""
    for part in (one for one in gm.modules() if isinstance(one, fx.GraphModule)):
        for node in part.graph.nodes:
            node.args = map_aggregate(node.args, lambda value: device if isinstance(value, torch.device) else value)
            node.kwargs = map_aggregate(node.kwargs, lambda value: device if isinstance(value, torch.device) else value)
            node.meta.pop("val", None)
            node.meta.pop("example_value", None)
            if node.op == "get_attr" and isinstance(value := getattr(part, str(node.target), None), torch.Tensor):
                setattr(
                    part,
                    str(node.target),
                    type(value)(value.detach().to(device))
                    if isinstance(value, torch.nn.Parameter)
                    else value.to(device),
                )
        part.recompile()
    return gm, clone_inputs(inputs, lambda tensor: tensor.to(device, copy=True))
