"""Switches: turns off settings of the whole case: dynamic sizes, gradients, autocast, inference mode, the regions of
such modes, search for the fastest kernels, CUDA graphs; then gives autocast, where it must stay, its device's own
dtype; at last resets every setting that is not as in a fresh process.

For example: `propose(case)` gives `[['switches static', 'switches grad'], ['switches dtype float16 bfloat16'], ...]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps.schema import Ambient
from ...dumps.torchside.values import fake_of
from ...toolkit.cutting.atoms import is_symbolic, symbols_in, target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from ...toolkit.live.inlining import inlinable, inlined
from ...toolkit.live.spec import FULL_STAGES, in_force
from . import Pass, symbols
from .symbolic import put_number, renewed, without_fakes

SLOW = ("max_autotune", "triton.cudagraphs", "coordinate_descent_tuning", "epilogue_fusion_first", "benchmark_")
"""Settings of Inductor that cost time in every query; names, or how they begin."""
REGIONS = {
    "autocast": ("_enter_autocast", "_exit_autocast", "wrap_with_autocast"),
    "grad": ("_set_grad_enabled", "wrap_with_set_grad_enabled"),
    "inference": ("_enter_inference_mode", "_exit_inference_mode"),
}
"""Kind of region -> what begins it, ends it, or holds it as a graph."""
AUTOCAST = {"cpu": "bfloat16", "cuda": "float16", "xpu": "float16"}
"""Kind of device -> the dtype that autocast has there by default."""
STATE = (
    "deterministic",
    "deterministic_warn_only",
    "matmul_precision",
    "cudnn_tf32",
    "default_dtype",
    "autocast_cache",
)
"""Global state that can go back to what it is in a fresh process."""


def early(case: Live) -> list[str]:
    """The switches worth a query on the whole graph: every later query is cheaper without them."""
    edits = ["switches static"] * case.spec.dynamic + ["switches grad"] * _trains(case)
    slow = [name for name in case.spec.config.get("inductor", {}) if name.startswith(SLOW)]
    return edits + [f"switches config inductor {name}" for name in slow]


def propose(case: Live) -> list[list[str]]:
    """A round of all switches, without dynamic sizes where `symbols` has tried that; one of autocast; then all settings
    as in a fresh process at once, and one by one.
    """
    first = [edit for edit in early(case) if edit != "switches static" or not symbols.propose(case)]
    if case.spec.stage in FULL_STAGES and case.spec.ambient.autocast:
        first.append("switches autocast")
    if case.spec.stage in FULL_STAGES and case.spec.ambient.inference_mode:
        first.append("switches inference")
    first += [f"switches regions {kind}" for kind, names in REGIONS.items() if _regions(case.gm, names)]
    fresh = Ambient()
    first += [f"switches state {name}" for name in STATE if getattr(case.spec.ambient, name) != getattr(fresh, name)]
    rounds = [edits for edits in (first, list(_autocast_edits(case))) if edits]
    singly = [f"switches config {room} {name}" for room, values in case.spec.config.items() for name in values]
    if len(singly) > 1:
        rounds.append(["switches config"])
    return [*rounds, singly] if singly else rounds


def apply(case: Live, edit: str) -> Live:
    """The case with one switch off."""
    _, what, *names = edit.split(" ")
    spec, gm, inputs = case.spec, case.gm, case.inputs
    if what == "static":
        gm, inputs = _static(gm, inputs)
        spec = msgspec.structs.replace(spec, dynamic=False)
    elif what == "grad":
        spec = _ambient(spec, grad=False)
        inputs = [
            tensor.detach() if isinstance(tensor, torch.Tensor) and tensor.requires_grad else tensor
            for tensor in inputs
        ]
    elif what == "autocast":  # all of it, or that of one kind of device
        kept = {device: dtype for device, dtype in spec.ambient.autocast.items() if names and device not in names}
        return _under(case, _ambient(spec, autocast=kept), gm)
    elif what == "dtype":
        autocast = {device: names[1] if dtype == names[0] else dtype for device, dtype in spec.ambient.autocast.items()}
        return _under(case, _ambient(spec, autocast=autocast), _recast(gm, *(getattr(torch, name) for name in names)))
    elif what == "inference":
        spec = _ambient(spec, inference_mode=False, grad=False)
    elif what == "state":
        return _under(case, _ambient(spec, **{names[0]: getattr(Ambient(), names[0])}), gm)
    elif what == "regions":
        return renewed(case, _without_regions(gm, inputs, REGIONS[names[0]]), inputs)
    elif names:
        room, name = names
        kept = {key: value for key, value in spec.config[room].items() if key != name}
        spec = msgspec.structs.replace(spec, config={**spec.config, room: kept})
    else:
        spec = msgspec.structs.replace(spec, config={})
    return Live(gm, inputs, spec)


def _ambient(spec: Any, **changed: Any) -> Any:
    return msgspec.structs.replace(spec, ambient=msgspec.structs.replace(spec.ambient, **changed))


def _trains(case: Live) -> bool:
    ambient, values = case.spec.ambient, (*case.inputs, *case.gm.parameters())
    wants = any(isinstance(value, torch.Tensor) and value.requires_grad for value in values)
    return case.spec.stage in FULL_STAGES and ambient.grad and not ambient.inference_mode and wants


def _static(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """The graph and its inputs without symbols; inputs that were sizes become numbers in the graph."""
    places = gm.graph.find_nodes(op="placeholder")
    pairs = zip(places, inputs, strict=True)
    numbers = [isinstance(value, int) and is_symbolic(fake_of(node)) for node, value in pairs]
    out = without_fakes(gm) if any(symbols_in(fake_of(node)) for node in gm.graph.nodes) else gm
    for node, value, number in zip(out.graph.find_nodes(op="placeholder"), inputs, numbers, strict=True):
        if number:
            put_number(out, node, value)
    out.recompile()
    return out, [value for value, number in zip(inputs, numbers, strict=True) if not number]


def _under(case: Live, spec: Any, gm: fx.GraphModule) -> Live:
    """The case in another state, in which its values may have other dtypes."""
    with in_force(spec):
        return renewed(Live(case.gm, case.inputs, spec), gm, case.inputs)


def _autocast_edits(case: Live) -> Iterator[str]:
    """Edits that make autocast plainer where it stays."""
    autocast = case.spec.ambient.autocast if case.spec.stage in FULL_STAGES else {}
    there = {value.device.type for value in case.inputs if isinstance(value, torch.Tensor)}
    if there:
        yield from (f"switches autocast {device}" for device in autocast if device not in there)
    # A region without a dtype has the device's own.
    regions = [node for node in _regions(case.gm, REGIONS["autocast"]) if len(node.args) > 1]
    used = [*autocast.items(), *((str(node.args[0]), _plain(node.args[1])) for node in regions)]
    wanted = [(dtype, AUTOCAST[device]) for device, dtype in used if dtype and dtype != AUTOCAST.get(device, dtype)]
    yield from dict.fromkeys(f"switches dtype {dtype} {usual}" for dtype, usual in wanted)


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.") if isinstance(dtype, torch.dtype) else ""


def _regions(gm: fx.GraphModule, names: tuple[str, ...]) -> list[fx.Node]:
    """The nodes that begin a region, or hold one."""
    nodes = [node for node in gm.graph.nodes if node.op == "call_function" and len(node.args) > 0]
    return [node for node in nodes if target_name(node) in names and not isinstance(node.args[0], fx.Node)]


def _recast(gm: fx.GraphModule, old: torch.dtype, new: torch.dtype) -> fx.GraphModule:
    """Autocast regions of the graph with another dtype."""
    out = copy_graph(gm)
    for node in _regions(out, REGIONS["autocast"]):
        if len(node.args) > 1 and node.args[1] is old:
            node.update_arg(1, new)
    out.recompile()
    return out


def _without_regions(gm: fx.GraphModule, inputs: list[Any], names: tuple[str, ...]) -> fx.GraphModule:
    """The graph without the regions of these names: the nodes inside them stay."""
    wraps = [name for name in names if name.startswith("wrap_")]
    out = inlined(without_fakes(gm), inputs, wraps) if wraps and inlinable(gm, wraps) else without_fakes(gm)
    for node in reversed(list(out.graph.nodes)):
        if node.op == "call_function" and target_name(node) in names:
            out.graph.erase_node(node)
    out.recompile()
    return out


PASS = Pass(
    order=110,
    words="turning off settings that are not needed",
    edits={
        "switches config * *": "the setting {2}.{3} at its default",
        "switches static": "fixed sizes",
        "switches grad": "gradients off",
        "switches inference": "inference mode off",
        "switches autocast": "autocast off",
        "switches autocast *": "autocast off for {2}",
        "switches regions *": "the regions of another {2} mode left out",
        "switches dtype * *": "autocast to {3} in place of {2}",
        "switches state *": "{2} at its default",
    },
    unneeded={
        "switches static": "dynamic sizes",
        "switches grad": "gradients",
        "switches autocast": "autocast",
        "switches regions": "mode switches",
    },
)
