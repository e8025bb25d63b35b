# pyright: basic
"""Switches: what holds for the whole case is turned off where it is on: dynamic sizes, gradients, autocast, mode switches in the
graph, search for the fastest kernels, CUDA graphs; at last every setting that is not as in a fresh process.

>>> propose(case)
[['switches static', 'switches grad'], ['switches config']]
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import fx

from ...toolkit.carried import fake_of, is_symbolic, symbols_in
from ...toolkit.spec import FULL_STAGES
from . import Case, symbols
from .symbolic import renewed, without_fakes

SLOW = ("max_autotune", "triton.cudagraphs", "coordinate_descent_tuning", "epilogue_fusion_first", "benchmark_")
"""Settings of Inductor that cost time in every query; names, or how they begin."""


def early(case: Case) -> list[str]:
    """The switches worth a query on the whole graph: every later query is cheaper without them."""
    found: list[str] = []
    if case.spec.dynamic:
        found.append("switches static")
    if _trains(case):
        found.append("switches grad")
    return found + [f"switches config inductor {name}" for name in case.spec.config.get("inductor", {}) if name.startswith(SLOW)]


def propose(case: Case) -> list[list[str]]:
    """All of them at once, but dynamic sizes where `symbols` has tried that; settings all to what they are in a fresh process,
    then one by one.
    """
    first = [edit for edit in early(case) if edit != "switches static" or not symbols.propose(case)]
    if case.spec.stage in FULL_STAGES and case.spec.ambient.autocast:
        first.append("switches autocast")
    if any(_is_mode(node) for node in case.gm.graph.nodes):
        first.append("switches modes")
    rounds = [first] if first else []
    singly = [f"switches config {room} {name}" for room, values in case.spec.config.items() for name in values]
    if len(singly) > 1:
        rounds.append(["switches config"])
    return [*rounds, singly] if singly else rounds


def apply(case: Case, edit: str) -> Case:
    """The case with one switch off."""
    _, what, *names = edit.split(" ")
    spec, gm, inputs = case.spec, case.gm, case.inputs
    if what == "static":
        gm, inputs = _static(gm, inputs)
        spec = msgspec.structs.replace(spec, dynamic=False)
    elif what == "grad":
        spec = _ambient(spec, grad=False)
        inputs = [one.detach() if isinstance(one, torch.Tensor) and one.requires_grad else one for one in inputs]
    elif what == "autocast":
        spec = _ambient(spec, autocast={})
    elif what == "modes":
        return renewed(case, _without_modes(gm), inputs)
    elif names:
        room, name = names
        kept = {key: value for key, value in spec.config[room].items() if key != name}
        spec = msgspec.structs.replace(spec, config={**spec.config, room: kept})
    else:
        spec = msgspec.structs.replace(spec, config={})
    return Case(gm, inputs, spec)


def _ambient(spec: Any, **changed: Any) -> Any:
    return msgspec.structs.replace(spec, ambient=msgspec.structs.replace(spec.ambient, **changed))


def _trains(case: Case) -> bool:
    ambient = case.spec.ambient
    wants = any(isinstance(one, torch.Tensor) and one.requires_grad for one in (*case.inputs, *case.gm.parameters()))
    return case.spec.stage in FULL_STAGES and ambient.grad and not ambient.inference_mode and wants


def _static(gm: fx.GraphModule, inputs: list[Any]) -> tuple[fx.GraphModule, list[Any]]:
    """Without symbols; inputs that were sizes become numbers in the graph."""
    numbers = [
        isinstance(value, int) and is_symbolic(fake_of(node))
        for node, value in zip(_placeholders(gm), inputs, strict=True)
    ]
    known = any(symbols_in(fake_of(node)) for node in gm.graph.nodes)
    out = without_fakes(gm) if known else gm
    for node, value, number in zip(_placeholders(out), inputs, numbers, strict=True):
        if number:
            for user in list(node.users):
                user.args = fx.map_arg(user.args, lambda one, node=node, value=value: value if one is node else one)
                user.kwargs = fx.map_arg(user.kwargs, lambda one, node=node, value=value: value if one is node else one)
            out.graph.erase_node(node)
    out.recompile()
    return out, [value for value, number in zip(inputs, numbers, strict=True) if not number]


def _placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _is_mode(node: fx.Node) -> bool:
    return node.op == "call_function" and getattr(node.target, "__name__", "") in (
        "_set_grad_enabled", "_enter_autocast", "_exit_autocast",
    )  # fmt: skip


def _without_modes(gm: fx.GraphModule) -> fx.GraphModule:
    out = without_fakes(gm)
    for node in reversed(list(out.graph.nodes)):
        if _is_mode(node):
            out.graph.erase_node(node)
    out.recompile()
    return out
