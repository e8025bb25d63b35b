"""A copy of a graph that TorchScript can read: overloads stripped, devices as strings, symbolic scalars as plain Python numbers.

What has a sound translation is translated; anything else stays as it is, and TorchScript refuses it by name. Random state that
checkpointing saves goes through two operators of our own. Must not touch the graph that it is given.

>>> torch.jit.script(scriptable(fx_g, inps))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen
from torch.fx.node import map_aggregate

from .. import torch_private as t
from ..copying import copy_graph
from . import mutable_ops, rng_ops

aten = torch.ops.aten

_BY_FUNCTION: dict[Any, Callable[..., Any]] = {
    torch.sym_float: float,
    torch.sym_int: int,
    torch.sym_max: max,
    torch.sym_min: min,
    math.trunc: int,
    operator.abs: abs,
}
"""Functions on symbolic scalars -> the ones of Python that TorchScript knows."""

_SYM_MATH = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")


def scriptable(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> fx.GraphModule:
    """The copy. Node names are those of the original, so that an error can be traced to it; constants are shared."""
    gm = copy_graph(fx_g)
    gm.graph.set_codegen(CodeGen())  # flat arguments, whatever convention the original had
    _annotate(gm.graph, inps)
    for node in list(gm.graph.nodes):
        if node.op == "call_function":
            _translate(gm.graph, node)
        if node.op not in ("placeholder", "output"):
            _plain_arguments(gm.graph, node)
            _keep_bool(gm.graph, node)
    output = gm.graph.output_node()
    output.args = (map_aggregate(output.args[0], _plain),)
    if isinstance(output.args[0], list):
        output.args = (tuple(output.args[0]),)  # a list has one type in TorchScript
    gm.graph.lint()
    gm.recompile()
    return gm


def has_translation(node: fx.Node) -> bool:
    """Whether a higher-order operator can be written with plain ones."""
    return _is_rng_wrapper(node.target) or mutable_ops.can_translate(node)


def _annotate(graph: fx.Graph, inps: Sequence[Any]) -> None:
    """TorchScript takes every argument for a tensor unless told otherwise."""
    placeholders = graph.find_nodes(op="placeholder")
    for place, node in enumerate(placeholders):
        value = inps[place] if place < len(inps) else node.meta.get("val", node.meta.get("example_value"))
        node.type = _kind(value)


def _kind(value: Any) -> Any:
    for kinds, plain in (((bool, torch.SymBool), bool), ((int, torch.SymInt), int), ((float, torch.SymFloat), float)):
        if isinstance(value, kinds):
            return plain
    return torch.Tensor | None if value is None else torch.Tensor


def _plain(value: Any) -> Any:
    """A device as its text, index included; a symbolic constant as the number that it is."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, torch.SymInt):
        number = value.node.maybe_as_int()
        return value if number is None else number
    return value


def _plain_arguments(graph: fx.Graph, node: fx.Node) -> None:
    """Arguments as TorchScript reads them; the name `nan` is none that it knows."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            with graph.inserting_before(node):
                return graph.call_function(float, ("nan",))
        return _plain(value)

    node.args, node.kwargs = map_aggregate(node.args, plain), map_aggregate(node.kwargs, plain)  # type: ignore[assignment]


def _keep_bool(graph: fx.Graph, node: fx.Node) -> None:
    """A scalar True is the integer 1 in TorchScript, and `full([2], True)` a tensor of integers: it becomes bool again."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.bool:
        return
    if any(isinstance(argument, bool) for argument in (*node.args, *node.kwargs.values())):
        with graph.inserting_after(node):
            cast = graph.call_function(aten.to, (node, torch.bool))
        node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)
        cast.meta = dict(node.meta)


def _translate(graph: fx.Graph, node: fx.Node) -> None:
    target = node.target
    if target is aten._local_scalar_dense.default:
        # its type in TorchScript is "number", which no size accepts
        node.target = _kind(node.meta.get("val")) if node.meta.get("val") is not None else float
    elif target is aten._to_copy.default and set(node.kwargs) == {"dtype"} and _changes_dtype(node):
        node.target = aten.to
    elif target in _BY_FUNCTION:
        node.target = _BY_FUNCTION[target]
    elif target is round:
        _replace(graph, node, lambda number, *_: _call(graph, int, _call(graph, round, number)))
    elif target is torch.sym_not:
        node.target, node.args = operator.eq, (node.args[0], False)
    elif target is torch.sym_sum:
        _replace(graph, node, lambda terms: _chain(graph, operator.add, terms))
    elif target is torch.sym_ite:
        _replace(graph, node, lambda test, yes, no: graph.call_function(operator.getitem, ([no, yes], _call(graph, int, test))))
    elif target is operator.pow or target is pow:
        _translate_power(graph, node)
    elif _is_sym_math(target):
        node.target = getattr(math, getattr(target, "__name__", "").removeprefix("_sym_"))
    elif target in (t.optional("run_and_save_rng_state"), t.optional("run_with_rng_state")):
        rng_ops.translate(graph, node)
    elif mutable_ops.can_translate(node):
        mutable_ops.translate(graph, node)
    elif isinstance(target, t.OpOverload):
        node.target = target.overloadpacket


def _changes_dtype(node: fx.Node) -> bool:
    """`to` returns its argument where there is nothing to change, and a copy is a copy."""
    source = node.args[0]
    before = source.meta.get("val") if isinstance(source, fx.Node) else None
    return isinstance(before, torch.Tensor) and before.dtype != node.kwargs["dtype"]


def _is_sym_math(target: Any) -> bool:
    name = getattr(target, "__name__", "")
    return name.removeprefix("_sym_") in _SYM_MATH and getattr(torch, name, None) is target and name.startswith("_sym_")


def _translate_power(graph: fx.Graph, node: fx.Node) -> None:
    """An integer to an integer is a float in TorchScript, and rounds above 2**53; products do not."""
    base, exponent = node.args
    if isinstance(node.meta.get("val"), (int, torch.SymInt)) and isinstance(exponent, int) and 0 < exponent <= 16:
        _replace(graph, node, lambda *_: _chain(graph, operator.mul, [base] * exponent))
    elif isinstance(node.meta.get("val"), (int, torch.SymInt)):
        _replace(graph, node, lambda *_: _call(graph, int, graph.call_function(operator.pow, (base, exponent))))


def _replace(graph: fx.Graph, node: fx.Node, build: Callable[..., Any]) -> None:
    """Puts what `build(*args)` inserts in the place of a node."""
    with graph.inserting_before(node):
        new = build(*node.args)
    if isinstance(new, fx.Node):
        new.meta = {**node.meta, **new.meta}
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _call(graph: fx.Graph, function: Callable[..., Any], *args: Any) -> fx.Node:
    return graph.call_function(function, args)


def _chain(graph: fx.Graph, function: Callable[..., Any], terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = graph.call_function(function, (total, term))
    return total


def _is_rng_wrapper(target: object) -> bool:
    """Whether a target is what checkpointing leaves of `preserve_rng_state`."""
    return target is not None and target in (t.optional("run_and_save_rng_state"), t.optional("run_with_rng_state"))
