# pyright: basic
"""Dynamo's graph of a captured backward, with each step of autograd as the operators that it runs.

Torch's compiled autograd leaves these steps whole: the C++ backward of each autograd node, `validate_outputs`, the
prologue of a compiled part, the accumulation of a gradient. They are functions of this process alone, made when a node
is first captured, so a saved graph could not call them. Each is traced with the fake values that Dynamo gave its
arguments, as AOTAutograd traces it next. A step that cannot be traced stays as it is.

For example:

    spelt_out(gm).graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)[0].meta["autograd_node"]
    # 'MulBackward0 (NodeCall 2)'
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from ....dumps.torchside.targets import is_autograd_step, name_of
from ... import torch_private as t


def spelt_out(gm: fx.GraphModule, place_of: Callable[[fx.Node], dict[str, str]] = lambda node: {}) -> fx.GraphModule:
    """Returns a copy of the graph with each autograd step replaced by its operators, or the graph itself where it has
    none. `place_of` gives the meta that says where in the backward a node is ("autograd_node", "hook")."""
    if not any(is_step(node) for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    copies: dict[fx.Node, Any] = {}
    now = copies.__getitem__
    for node in gm.graph.nodes:
        if is_step(node) and (body := _traced(node)) is not None:
            copies[node] = _inlined(graph, node, body, fx.map_arg(list(node.all_input_nodes), now), place_of(node))
        elif node.target is operator.getitem and isinstance(whole := copies[node.args[0]], (list, tuple)):
            copies[node] = whole[node.args[1]]
        elif node.op == "output":
            copies[node] = graph.output(fx.map_arg(node.args[0], now))
            copies[node].meta = dict(node.meta)
        else:
            copies[node] = graph.node_copy(node, now)
            copies[node].meta.update(place_of(node))
            if node.op == "placeholder" and isinstance(value := node.meta.get("example_value"), (list, tuple)):
                copies[node].meta["example_value"] = _items(node, value)
    return fx.GraphModule(gm, graph, type(gm).__name__)


def _items(node: fx.Node, value: Sequence[Any]) -> list[Any]:
    """The values of a list of inputs: Dynamo makes sizes symbols where an item is taken, not in the list."""
    taken = {user.args[1]: user.meta.get("example_value") for user in node.users if user.target is operator.getitem}
    return [taken.get(index, item) for index, item in enumerate(value)]


def is_step(node: fx.Node) -> bool:
    """Whether a node is a step of autograd that the capture left whole."""
    return node.op == "call_function" and is_autograd_step(name_of(node.target))


def _traced(step: fx.Node) -> fx.GraphModule | None:
    """Traces a step: returns its graph, whose inputs are the step's input nodes in order; None where it cannot be
    traced."""
    inputs = list(step.all_input_nodes)
    values = [node.meta.get("example_value") for node in inputs]

    def run(*given: Any) -> Any:
        known = dict(zip(inputs, given, strict=True))
        args, kwargs = fx.map_arg((step.args, step.kwargs), known.__getitem__)
        return step.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]

    mode = next((value.fake_mode for value in t.tree_leaves(values) if isinstance(value, t.FakeTensor)), None)
    environment = mode and mode.shape_env
    quiet = t.no_guards(environment) if environment is not None else nullcontext()
    unbacked = environment.ignore_fresh_unbacked_symbols() if environment is not None else nullcontext()
    try:
        with torch.no_grad(), quiet, unbacked, mode or nullcontext():
            body = t.make_fx(run)(*values)
    except Exception:  # noqa: BLE001 - a subclass, a C++ node without a fake form: shown as it is, and refused by name when loaded
        return None
    return None if body.graph.find_nodes(op="get_attr") else body


def _inlined(graph: fx.Graph, step: fx.Node, body: fx.GraphModule, given: list[Any], place: dict[str, str]) -> Any:
    """Copies a traced step into the graph; returns its results, nested as the step nests them."""
    copies: dict[fx.Node, Any] = dict(zip(body.graph.find_nodes(op="placeholder"), t.tree_leaves(given), strict=True))
    for node in body.graph.nodes:
        if node.op == "output":
            return fx.map_arg(node.args[0], copies.__getitem__)
        if node.op != "placeholder":
            copies[node] = copied = graph.node_copy(node, copies.__getitem__)
            kept = {key: step.meta[key] for key in ("stack_trace", "nn_module_stack") if key in step.meta}
            copied.meta = {"val": node.meta.get("val"), **kept, **place}
    return None
