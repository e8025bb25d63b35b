"""Program: turns the case into what Dynamo would have captured of a plain program, so that `torch.compile` shows it
from the top: the graph of an inner stage enters the whole stack, and aten calls become functions of torch that give the
very same aten calls.

This loses what the compiler was given at the inner stage (what is saved, how a backward is laid out), and perhaps the
failure, so it is asked with the functions, then without. Must not change a size, a value or an input; never proposed
for a graph that would then run other code: both halves of a joint graph, tokens, collectives, Triton kernels,
Inductor's own random numbers.

>>> propose(case)[-1]
['program enter']
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import fx

from ...toolkit.cutting.atoms import target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import GraphRunError, copy_graph
from ...toolkit.live.plain_calls import is_same, plain_of, rewrite
from ...toolkit.live.spec import FULL_STAGES, ReplaySpec, in_force, is_opaque
from . import Pass
from .forms import watched
from .symbolic import bound_symbols, renewed

STAGE = "dynamo"
MOST = 64
"""Calls that are looked at; in a larger case the rest stay as they are."""
KEPT_META = frozenset({"stack_trace", "nn_module_stack", "val", "example_value", "tensor_meta", "unbacked_bindings"})
"""Keys of `node.meta` that are kept: the others were set by compiler passes that now run again."""
BOUND = (
    "with_effects",
    "triton_kernel_wrapper",
    "auto_functionalized",
    "rngprims.",
    "run_and_save_rng_state",
    "run_with_rng_state",
    "graphsafe_run_with_rng_state",
    "_c10d_functional",
    "c10d",
    "prims.inductor_",
)
"""Calls that belong to the stage that they were recorded at (how their names begin)."""


def propose(case: Live) -> list[list[str]]:
    """One edit that does both, then entering from the top alone."""
    inner = case.spec.stage != STAGE
    if inner and not _may_enter(case):
        return []
    names = _spelled(case)
    rounds = [[" ".join(("program", "torch", *names))]] if names else []
    return [*rounds, ["program enter"]] if inner else rounds


def apply(case: Live, edit: str) -> Live:
    """The case at Dynamo's stage; with "torch" the named nodes call functions of torch. Raises ValueError where one
    cannot."""
    _, how, *names = edit.split(" ")
    if how not in ("torch", "enter"):
        raise ValueError(f"there is no edit {edit!r}")
    entered = case if case.spec.stage == STAGE else _entered(case)
    if not names:
        return entered
    gm = copy_graph(entered.gm)
    nodes = {node.name: node for node in gm.graph.nodes}
    for name in names:
        plain = plain_of(nodes[name]) if name in nodes else None
        if plain is None:
            raise ValueError(f"there is no node {name} with a plain form")
        rewrite(nodes[name], plain)
    gm.recompile()
    return Live(gm, entered.inputs, entered.spec)


def _entered(case: Live) -> Live:
    """The graph as Dynamo hands it to a backend: flat outputs, no gradients but those that it computes itself."""
    spec = _spec(case)
    gm = copy_graph(case.gm)
    for node in gm.graph.nodes:
        node.meta = {key: value for key, value in node.meta.items() if key in KEPT_META}
    if case.spec.stage in FULL_STAGES:
        return Live(gm, case.inputs, spec)
    output = gm.graph.output_node()
    returned = output.args[0] if isinstance(output.args[0], (tuple, list)) else (output.args[0],)
    output.args = (tuple(item for item in returned if item is not None),)
    gm.recompile()
    inputs = [item.detach() if isinstance(item, torch.Tensor) and item.requires_grad else item for item in case.inputs]
    with in_force(spec):
        return renewed(Live(case.gm, inputs, spec), gm, inputs)


def _spec(case: Live) -> ReplaySpec:
    """The spec at Dynamo's stage. Grad mode and autocast of an inner stage are in its graph already."""
    if case.spec.stage in FULL_STAGES:
        return msgspec.structs.replace(case.spec, stage=STAGE, compile_kwargs={})
    wants = any(parameter.requires_grad for parameter in case.gm.parameters())
    ambient = msgspec.structs.replace(
        case.spec.ambient, grad=not wants, inference_mode=False, autocast={}, autocast_cache=True
    )
    return msgspec.structs.replace(case.spec, stage=STAGE, compile_kwargs={}, ambient=ambient)


def _may_enter(case: Live) -> bool:
    """Whether the graph would be the same program when it enters from the top."""
    kwargs = case.spec.compile_kwargs
    if is_opaque(kwargs) or (case.spec.training_joint and kwargs["num_fwd_outputs"]):
        return False
    if bound_symbols(case.gm) is None:
        return False
    parts = [part for part in case.gm.modules() if isinstance(part, fx.GraphModule)]
    return not any(_name(node).startswith(BOUND) for part in parts for node in part.graph.nodes)


def _name(node: fx.Node) -> str:
    return str(node.target) if hasattr(node.target, "_schema") else target_name(node)


def _spelled(case: Live) -> list[str]:
    """The nodes whose call has a plain form that gives the same aten calls, seen with the values of an eager run."""
    wanted = [node for node in case.gm.graph.nodes if plain_of(node) is not None][:MOST]
    if not wanted:
        return []
    names: list[str] = []
    values: dict[fx.Node, Any] = {}

    def look(node: fx.Node, value: Any) -> Any:
        values[node] = value
        if node in wanted:
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if is_same(node.target, args, kwargs):
                names.append(node.name)
        return value

    try:
        watched(case, look)
    except (GraphRunError, RuntimeError):
        return []
    return names


PASS = Pass(
    order=120,
    words="entering through torch.compile, as a plain program",
    edits={
        "program enter": "the graph entered through torch.compile",
        "program *": "the graph entered through torch.compile, with functions of torch",
    },
    runs_eager=True,
)
