"""A copy of a graph that TorchScript can read: overloads stripped, devices as strings, symbolic scalars as plain Python
numbers.

What has a sound translation is translated; anything else stays as it is, and TorchScript refuses it by name. Random
state that checkpointing saves goes through two operators of this package. The given graph stays unchanged.

>>> scripted = torch.jit.script(scriptable(gm, inputs))
>>> scripted(*inputs)[0].shape
torch.Size([2, 4])
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.graph import CodeGen
from torch.fx.node import map_aggregate

from ...dumps.torchside.values import fake_of, storage_key
from .. import torch_private as t
from ..live.eager import copy_graph


def storage_size(value: torch.Tensor) -> tuple[int, int]:
    """(identity, bytes) of a tensor's storage.

    A symbolic number counts as its hint; one without a hint, which depends on data, counts as 0.
    """
    storage = value.untyped_storage()
    size: Any = storage.nbytes()
    if isinstance(size, torch.SymInt):
        size = size.node.hint if size.node.has_hint() else 0
    return storage_key(value), int(size)


aten = torch.ops.aten

_BY_FUNCTION: dict[Any, Callable[..., Any]] = {
    torch.sym_float: float,
    torch.sym_int: int,
    torch.sym_max: max,
    torch.sym_min: min,
    math.trunc: int,
    operator.abs: abs,
    **{
        getattr(torch, f"_sym_{name}"): getattr(math, name)
        for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
        if hasattr(torch, f"_sym_{name}")
    },
}
"""Functions on symbolic scalars -> the ones of Python that TorchScript knows."""


def scriptable(fx_g: fx.GraphModule, inps: Sequence[Any] = ()) -> fx.GraphModule:
    """Returns a copy that TorchScript can read. Node names are the original's, so that an error can be traced to the
    original node; constants are shared."""
    gm = copy_graph(fx_g)
    gm.graph.set_codegen(CodeGen())  # flat arguments, whatever convention the original had
    for place, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        # TorchScript takes an argument without a type for a tensor
        node.type = _kind(inps[place] if place < len(inps) else fake_of(node))
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
    return _is_rng_wrapper(node.target) or _hides_mutation(node)


def _kind(value: Any) -> Any:
    for kinds, plain in (((bool, torch.SymBool), bool), ((int, torch.SymInt), int), ((float, torch.SymFloat), float)):
        if isinstance(value, kinds):
            return plain
    return torch.Tensor | None if value is None else torch.Tensor


def _plain(value: Any) -> Any:
    """A device as its text, index included; a symbolic constant as the number that it is."""
    if isinstance(value, torch.device):
        return str(value)
    number = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
    return value if number is None else number


def _plain_arguments(graph: fx.Graph, node: fx.Node) -> None:
    """Rewrites a node's arguments as TorchScript reads them; it does not know the name `nan`."""

    def plain(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            with graph.inserting_before(node):
                return graph.call_function(float, ("nan",))
        return _plain(value)

    node.args, node.kwargs = map_aggregate(node.args, plain), map_aggregate(node.kwargs, plain)  # type: ignore[assignment]


def _keep_bool(graph: fx.Graph, node: fx.Node) -> None:
    """Casts a node's value back to bool: a scalar True is the integer 1 in TorchScript, and `full([2], True)` a tensor
    of integers."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.bool:
        return
    if any(isinstance(argument, bool) for argument in (*node.args, *node.kwargs.values())):
        with graph.inserting_after(node):
            cast = graph.call_function(aten.to, (node, torch.bool))
        node.replace_all_uses_with(cast, delete_user_cb=lambda user: user is not cast)
        cast.meta = dict(node.meta)


def _translate(graph: fx.Graph, node: fx.Node) -> None:
    target, call = node.target, graph.call_function
    if target is aten._local_scalar_dense.default:
        # its type in TorchScript is "number", which no size accepts
        node.target = _kind(node.meta.get("val")) if node.meta.get("val") is not None else float
    elif target is aten._to_copy.default and set(node.kwargs) == {"dtype"} and _changes_dtype(node):
        node.target = aten.to
    elif target in _BY_FUNCTION:
        node.target = _BY_FUNCTION[target]
    elif target is round:
        _replace(graph, node, lambda number, *_: call(int, (call(round, (number,)),)))
    elif target is torch.sym_not:
        node.target, node.args = operator.eq, (node.args[0], False)
    elif target is torch.sym_sum:
        _replace(graph, node, lambda terms: _chain(graph, operator.add, terms))
    elif target is torch.sym_ite:
        _replace(graph, node, lambda test, yes, no: call(operator.getitem, ([no, yes], call(int, (test,)))))
    elif target is operator.pow or target is pow:
        _translate_power(graph, node)
    elif _is_rng_wrapper(target):
        _translate_rng(graph, node)
    elif _hides_mutation(node):
        _translate_mutable(graph, node)
    elif isinstance(target, t.OpOverload):
        node.target = target.overloadpacket


def _changes_dtype(node: fx.Node) -> bool:
    """Whether a `_to_copy` changes the dtype. Where it does not, `to` returns its argument, and is no copy."""
    source = node.args[0]
    before = source.meta.get("val") if isinstance(source, fx.Node) else None
    return isinstance(before, torch.Tensor) and before.dtype != node.kwargs["dtype"]


def _translate_power(graph: fx.Graph, node: fx.Node) -> None:
    """Rewrites an integer power, by products for small exponents: TorchScript's power of integers is a float, rounded
    above 2**53."""
    if not isinstance(node.meta.get("val"), (int, torch.SymInt)):
        return
    base, exponent = node.args
    if isinstance(exponent, int) and 0 < exponent <= 16:
        _replace(graph, node, lambda *_: _chain(graph, operator.mul, [base] * exponent))
    else:
        _replace(graph, node, lambda *args: graph.call_function(int, (graph.call_function(operator.pow, args),)))


def _replace(graph: fx.Graph, node: fx.Node, build: Callable[..., Any]) -> None:
    """Replaces a node by the nodes that `build(*args)` inserts."""
    with graph.inserting_before(node):
        new = build(*node.args)
    if isinstance(new, fx.Node):
        new.meta = {**node.meta, **new.meta}
    node.replace_all_uses_with(new)
    graph.erase_node(node)


def _chain(graph: fx.Graph, function: Callable[..., Any], terms: Sequence[Any]) -> Any:
    return functools.reduce(lambda total, term: graph.call_function(function, (total, term)), terms)


def _is_rng_wrapper(target: object) -> bool:
    """Whether a target is one of the operators that checkpointing writes for `preserve_rng_state`."""
    return target is not None and target in (t.optional("run_and_save_rng_state"), t.optional("run_with_rng_state"))


# Operators that change their arguments: AOTAutograd hides each in a higher-order operator (`auto_functionalized_v2`).
# It is translated into what it stands for: clones of the tensors that are changed, views of them as arguments, the
# operator itself. Lists of tensors, and tensors whose strides a clone would not keep, are left to be refused.


def _hides_mutation(node: fx.Node) -> bool:
    """Whether a node is such an operator, and its changed arguments are plain tensors whose clones keep their
    strides."""
    if node.target is None or node.target is not t.optional("auto_functionalized"):
        return False
    bases: Any = node.kwargs.get("_all_bases", [])
    return (
        isinstance(node.args[0], t.OpOverload)
        and not any(f"_{name}_length" in node.kwargs for name in _changed(node))
        and all(map(_is_dense, bases))
        and node.kwargs.get("_only_clone_these_bases") is None
        and all(isinstance(user.args[1], int) and user.target is operator.getitem for user in node.users)
    )


def _is_dense(base: Any) -> bool:
    value = base.meta.get("val") if isinstance(base, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.clone().stride() == value.stride()  # fake, hence cheap


def _changed(node: fx.Node) -> list[str]:
    """The names of the arguments that the operator writes to."""
    arguments = node.args[0]._schema.arguments  # type: ignore[union-attr]
    return [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]


def _translate_mutable(graph: fx.Graph, node: fx.Node) -> None:
    """Puts clones, views and the operator in the place of a node; the graph is changed in place."""
    op: Any = node.args[0]
    given = dict(node.kwargs)
    bases: Any = given.get("_all_bases", [])
    with graph.inserting_before(node):
        clones = [_clone(graph, base) for base in bases]
        changed = {name: _view(graph, clones, given, f"_{name}") for name in _changed(node)}
        plain = {argument.name: given[argument.name] for argument in op._schema.arguments if argument.name in given}
        result = graph.call_function(op.overloadpacket, (), {**plain, **changed})
        count = len(op._schema.returns)
        results = [result] if count <= 1 else [graph.call_function(operator.getitem, (result, i)) for i in range(count)]
    _take_apart(graph, node, [*results, *clones])


def _take_apart(graph: fx.Graph, node: fx.Node, parts: Sequence[fx.Node]) -> None:
    """Replaces each getitem of a node by the node of that number in `parts`, and erases the node."""
    for user in list(node.users):
        user.replace_all_uses_with(parts[int(user.args[1])])  # type: ignore[arg-type]
        graph.erase_node(user)
    graph.erase_node(node)


def _clone(graph: fx.Graph, base: fx.Node) -> fx.Node:
    clone = graph.call_function(aten.clone, (base,))
    clone.meta = dict(base.meta)  # the next such operator asks for its strides
    return clone


def _view(graph: fx.Graph, clones: list[fx.Node], given: dict[str, Any], prefix: str) -> fx.Node | None:
    """The argument as a view of its base's clone, from the view that AOTAutograd describes in the keyword arguments."""
    index = given[f"{prefix}_base_index"]
    if index is None:
        return None
    base = clones[index]
    if f"{prefix}_storage_offset" in given:
        layout = (given[f"{prefix}_{name}"] for name in ("size", "stride", "storage_offset"))
        return graph.call_function(aten.as_strided, (base, *layout))
    if f"{prefix}_slice_dim" in given:
        bounds = (given[f"{prefix}_slice_{name}"] for name in ("dim", "start", "end"))
        return graph.call_function(aten.slice, (base, *bounds))
    return graph.call_function(aten.alias, (base,)) if f"{prefix}_alias" in given else base


# Random state: `torch.utils.checkpoint` replays dropout by saving and restoring the generator's state, which
# AOTAutograd writes as higher-order operators. Each is translated into the operator itself and calls of ours, which
# read and set the state of the CPU's generator or of the current accelerator's. They must not be reordered with other
# random operators, nor dropped when their result is not used: TorchScript keeps an operator in its place if its
# aliasing is declared unknown (CONSERVATIVE).


@functools.cache
def operators() -> Any:
    """`graphdbg::rng_state`, registered once. `near` is a random tensor without elements: with constants alone as
    arguments TorchScript would run it once, while it freezes."""
    library = torch.library.Library("graphdbg", "FRAGMENT")
    library.define("rng_state(Tensor near, str device, Tensor? state) -> Tensor", "CONSERVATIVE")
    library.impl("rng_state", rng_state, "CompositeExplicitAutograd")
    operators.library = library  # type: ignore[attr-defined]  # it is undone when it is collected
    return torch.ops.graphdbg.rng_state


def rng_state(near: torch.Tensor, device: str, state: torch.Tensor | None) -> torch.Tensor:
    """The state of the default generator of a device, as it was before it is set to `state`."""
    home: Any = torch if device == "cpu" else torch.get_device_module(device)
    before = home.get_rng_state()
    if state is not None:
        home.set_rng_state(state)
    return before


def _translate_rng(graph: fx.Graph, node: fx.Node) -> None:
    """Replaces `run_and_save_rng_state(op, *args)` or `run_with_rng_state(state, op, *args)` in place."""
    saves = node.target is t.optional("run_and_save_rng_state")
    state, op, *args = (None, *node.args) if saves else node.args
    packet: Any = getattr(op, "overloadpacket", op)
    device = _device(node, args)
    with graph.inserting_before(node):
        near = graph.call_function(aten.rand, ([0],))
        before = graph.call_function(operators(), (near, device, state))
        result = graph.call_function(packet, tuple(args), dict(node.kwargs))
        if saves:
            _take_apart(graph, node, [before, result])
            return
        graph.call_function(operators(), (near, device, before))
    result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    graph.erase_node(node)


def _device(node: fx.Node, args: list[Any]) -> str:
    """The kind of device that the operator works on: of its `device` argument, else of its first tensor."""
    given = node.kwargs.get("device")
    if given is not None:
        return torch.device(given).type  # type: ignore[arg-type]
    values = [arg.meta.get("val") for arg in args if isinstance(arg, fx.Node)]
    return next((value.device.type for value in values if isinstance(value, torch.Tensor)), "cpu")
