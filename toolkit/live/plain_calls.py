# pyright: basic
"""Replaces calls in a graph by the plain forms of `torch_names`, and checks each with values first: same results, same
aten calls.

A form that fits an operator may not fit one call of it (a number in place of a tensor selects another overload). So a
call is traced both as it is and in its plain form; where the traces differ, both are traced again with Inductor's
decompositions. Values are not changed.

>>> is_same(torch.ops.aten.relu.default, (torch.ones(2),), {})
True

For example: `rewrite(node, plain_of(node))`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ...dumps.program.torch_names import INDEX, PlainCall, Slice, plain_call
from .. import torch_private as t
from .execution import identical

SEED = 0
_NOTHING = {"pin_memory": (None, False), "layout": (None, torch.strided)}
"""Argument -> the values that mean the same as leaving it out."""
_UNINITIALISED = ("aten.empty", "aten.new_empty")
"""Name prefixes of operators whose results have a shape but no defined values."""


def plain_of(node: fx.Node) -> PlainCall | None:
    """The plain form of a node's call, going by its name and arguments; None where it has none, or already is plain."""
    if node.op != "call_function" or not hasattr(node.target, "_schema"):
        return None
    return plain_call(str(node.target), node.args, node.kwargs)


def rewrite(node: fx.Node, plain: PlainCall) -> None:
    """Turns a node into the plain call; its users stay, its recorded origin is dropped."""
    target, args = _applied(plain)
    node.op, node.target = ("call_method" if isinstance(target, str) else "call_function"), target
    node.args, node.kwargs = args, dict(plain.kwargs)
    for key in ("original_aten", "torch_fn", "source_fn_stack", "fwd_source_fn_stack"):
        node.meta.pop(key, None)


def is_same(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator's call on these values has a plain form with the same bits, shapes and dtypes, by the same
    aten calls.

    False where it cannot be traced. The values are not changed.
    """
    given = [leaf for leaf in t.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]

    def call(form: Callable[..., Any]) -> Callable[..., Any]:
        def of(*tensors: Any) -> Any:
            left = iter(tensors)
            some, named = t.tree_map(lambda leaf: next(left) if torch.is_tensor(leaf) else leaf, (args, kwargs))
            return form(*some, **named)

        return of

    own, plain = call(target), call(lambda *some, **named: _plainly(target, some, named))
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            ours, theirs = _run(own, given), _run(plain, given)
            if str(target).startswith(_UNINITIALISED):
                ours, theirs = t.tree_map(_blank, (ours, theirs))
            return _same_values(ours, theirs) and (
                _calls(own, given) == _calls(plain, given)
                or _calls(own, given, deep=True) == _calls(plain, given, deep=True)
            )
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError):  # no fit
        return False


def _plainly(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    plain = plain_call(str(target), args, kwargs)
    if plain is None:
        raise ValueError(f"{target} has no plain form")
    form, given = _applied(plain)
    if isinstance(form, str):
        form, given = getattr(given[0], form), given[1:]
    return form(*given, **plain.kwargs)


def _applied(plain: PlainCall) -> tuple[Any, tuple[Any, ...]]:
    """The function, or method name, of a plain call, with its arguments."""
    if plain.call == INDEX:
        parts = tuple(slice(*argument) if isinstance(argument, Slice) else argument for argument in plain.args[1:])
        return operator.getitem, (plain.args[0], parts[0] if len(parts) == 1 else parts)
    if plain.call.startswith("."):
        return plain.call[1:], tuple(plain.args)
    return reduce(getattr, plain.call.split(".")[1:], torch), tuple(plain.args)


def _run(call: Callable[..., Any], tensors: list[Any]) -> list[Any]:
    """The results of a call, and its arguments afterwards."""
    torch.manual_seed(SEED)
    copies = [tensor.clone() for tensor in tensors]
    return [*t.tree_leaves(call(*copies)), *copies]


def _same_values(ours: list[Any], theirs: list[Any]) -> bool:
    if len(ours) != len(theirs):
        return False
    return all(
        identical(_real(value), _real(other))
        and (not isinstance(value, torch.Tensor) or value.stride() == other.stride())
        for value, other in zip(ours, theirs, strict=True)
    )


def _real(value: Any) -> Any:
    """Complex tensors as pairs of real numbers, with a pending conjugation applied."""
    complex_ = isinstance(value, torch.Tensor) and value.is_complex()
    return torch.view_as_real(value.resolve_conj()) if complex_ else value


def _blank(value: Any) -> Any:
    return value.zero_() if isinstance(value, torch.Tensor) else value


def _calls(call: Callable[..., Any], tensors: list[Any], *, deep: bool = False) -> list[Any]:
    """The aten calls of a trace: what is called, with every argument that is not its default."""
    torch.manual_seed(SEED)
    table: Any = t.select_decomp_table() if deep else {}
    graph = make_fx(call, decomposition_table=table)(*[tensor.clone() for tensor in tensors]).graph
    graph.eliminate_dead_code()
    places = {node: f"%{place}" for place, node in enumerate(graph.nodes)}
    calls: list[Any] = []
    for node in graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), places.__getitem__)
        if node.op == "output":
            calls.append(t.tree_leaves(args))
        elif node.op != "placeholder":
            calls.append((str(node.target), sorted(_given(node.target, args, kwargs))))
    return calls


def _given(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, str]]:
    declared: Any = getattr(getattr(target, "_schema", None), "arguments", None)
    if declared is None:
        yield "", str((args, kwargs))
        return
    names = [parameter.name for parameter in declared if not parameter.kwarg_only]
    known = dict(zip(names, args, strict=False)) | kwargs
    for parameter in declared:
        value = known.get(parameter.name)
        if parameter.name not in known or value in _NOTHING.get(parameter.name, ()):
            continue
        if not (parameter.has_default_value() and value == parameter.default_value):
            yield parameter.name, str(value)
