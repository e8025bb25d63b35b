# pyright: basic
"""Replaces higher-order operators by the nodes of their graphs, so that a minifier can cut inside them.

Covers checkpointed and wrapped regions, graphs that are called, and the branch that a `cond` took. Other operators with
graphs (loops, maps, flexible attention) stay one node. The inlined graph computes the same; whether it still fails the
same way must be tested.

>>> len(list(inlined(gm, inputs).graph.nodes))          # it holds no graph inside another
15
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from .eager import attribute, clone_inputs, copy_graph, run_graph

BODY_AT = {
    "wrap": 0,
    "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0,
    "wrap_with_set_grad_enabled": 1,
    "wrap_with_autocast": 4,
    "invoke_subgraph": 0,
    "invoke_quant_packed": 0,
}
"""Operator -> index of its graph among its arguments; the graph's inputs follow it."""


def inlinable(gm: fx.GraphModule, only: Collection[str] = ()) -> list[str]:
    """The names of the nodes that `inlined` would replace; `only`: restricts this to these operators."""
    nodes = [node for node in gm.graph.nodes if _body(gm, node) is not None or _is_cond(node)]
    return [node.name for node in nodes if not only or _name(node) in only]


def inlined(gm: fx.GraphModule, inputs: Sequence[Any], only: Collection[str] = ()) -> fx.GraphModule:
    """A copy in which operators that can be inlined are, also those inside their graphs. `inputs` decide which branch
    of a `cond` is taken."""
    out = copy_graph(gm)
    while inlinable(out, only):
        taken = _predicates(out, inputs)
        node: Any
        for node in list(out.graph.nodes):
            if only and _name(node) not in only:
                continue
            if _is_cond(node):
                branch = node.args[1] if taken[node.name] else node.args[2]
                _replace(out, node, attribute(out, str(branch.target)), list(node.args[3]))
            elif (body := _body(out, node)) is not None:
                first = BODY_AT[_name(node)] + (2 if _name(node) == "invoke_subgraph" else 1)
                _replace(out, node, body, list(node.args[first:]))
        out.graph.eliminate_dead_code(lambda node: node.op not in ("get_attr",))
        out.recompile()
    return out


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "") if node.op == "call_function" else ""


def _is_cond(node: Any) -> bool:
    return _name(node) == "cond" and len(node.args) == 4


def _body(gm: fx.GraphModule, node: Any) -> fx.GraphModule | None:
    place = BODY_AT.get(_name(node))
    if place is None or len(node.args) <= place or not isinstance(node.args[place], fx.Node):
        return None
    inner = attribute(gm, str(node.args[place].target)) if node.args[place].op == "get_attr" else None
    return inner if isinstance(inner, fx.GraphModule) else None


def _predicates(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[str, bool]:
    """Name of each `cond` -> whether its predicate holds on these inputs."""
    conds: list[Any] = [node for node in gm.graph.nodes if _is_cond(node)]
    if not conds:
        return {}
    seen: dict[fx.Node, bool] = {}
    wanted = {node.args[0] for node in conds}

    def look(node: fx.Node, value: Any) -> Any:
        if node in wanted:
            seen[node] = bool(value)
        return value

    with torch.random.fork_rng():
        run_graph(gm, clone_inputs(inputs), hook=look)
    return {
        node.name: seen[node.args[0]] if isinstance(node.args[0], fx.Node) else bool(node.args[0]) for node in conds
    }


def _replace(gm: fx.GraphModule, node: Any, body: fx.GraphModule, operands: list[Any]) -> None:
    env: dict[fx.Node, Any] = {}
    result: Any = None
    given = iter(operands)
    with gm.graph.inserting_before(node):
        for inner in body.graph.nodes:
            if inner.op == "placeholder":
                env[inner] = next(given)
            elif inner.op == "output":
                result = map_arg(inner.args[0], env.__getitem__)
            else:
                env[inner] = gm.graph.node_copy(inner, env.__getitem__)
                if inner.op in ("get_attr", "call_module"):
                    env[inner].target = _moved(gm, body, str(inner.target), node.name)
    for user in list(node.users):
        if user.target is operator.getitem and isinstance(result, (list, tuple)) and isinstance(user.args[1], int):
            user.replace_all_uses_with(result[user.args[1]])
            gm.graph.erase_node(user)
        else:
            user.args = map_arg(user.args, lambda argument: result if argument is node else argument)
            user.kwargs = map_arg(user.kwargs, lambda argument: result if argument is node else argument)
    gm.graph.erase_node(node)


def _moved(gm: fx.GraphModule, body: fx.GraphModule, target: str, prefix: str) -> str:
    """Copies an attribute of the inner graph to the outer one, and returns its new name."""
    value = attribute(body, target)
    name = f"{prefix}_{target.replace('.', '_')}"
    while hasattr(gm, name):
        name += "_"
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        gm.register_buffer(name, value)
    else:
        setattr(gm, name, value)
    return name
