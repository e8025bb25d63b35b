"""Operators: in a small case, replaces an operator by the simplest one of its kind (SIMPLEST), drops optional
arguments, and makes numbers in arguments 1, 2 or 0.

Only edits are proposed after which eager gives the same shapes, strides and dtypes. Sizes are left to `dims`.

>>> propose(Live(torch.fx.symbolic_trace(lambda x: torch.ops.aten.gelu(x)), [torch.ones(2)]))
[['operators gelu to neg']]
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from ...toolkit.cutting.atoms import target_name
from ...toolkit.live.case import Live
from ...toolkit.live.eager import copy_graph
from . import Pass
from .forms import alike, forms, forms_after
from .symbolic import fewer

MOST_NODES = 10
"""Inputs and the output counted; in a larger case every operator would cost more queries than it is worth."""
NUMBERS = (1, 2, 0)
"""What numbers in arguments become, plainest first (0 last: little is left of an operation with it); numbers of PLAIN
stay as they are."""
PLAIN = (-1, *NUMBERS)

_KINDS: list[tuple[str, str, tuple[int, ...], str]] = [
    (
        "neg",
        "one tensor, each element by itself, or as if",
        (0,),
        """
        abs acos acosh asin asinh atan atanh ceil celu clamp clamp_max clamp_min cos cosh deg2rad digamma dropout elu
        erf erfc
        erfinv exp exp2 expm1 feature_dropout fix floor frac gelu hardshrink hardsigmoid hardswish hardtanh i0
        layer_norm
        leaky_relu lgamma log log10 log1p log2 log_sigmoid log_softmax logit logsigmoid mish nan_to_num normalize
        positive
        rad2deg reciprocal relu relu6 rms_norm round rsqrt selu sgn sigmoid sign silu sin sinc sinh softmax softmin
        softplus
        softshrink softsign sqrt square tan tanh tanhshrink trunc _log_softmax _softmax""",
    ),
    (
        "add",
        "two tensors, or one and a number, element by element",
        (0, 1),
        """
        arctan2 atan2 copysign div divide elu_backward floor_divide floordiv fmax fmin fmod gelu_backward hypot
        logaddexp
        logaddexp2 maximum minimum mod mul multiply pow remainder sigmoid_backward silu_backward sub subtract
        tanh_backward threshold_backward true_divide truediv iadd isub imul itruediv""",
    ),
    ("eq", "a comparison", (0, 1), "ge gt le lt ne greater greater_equal less less_equal not_equal"),
    ("add", "a choice", (1, 2), "where"),
    ("sum", "many numbers to one", (0, 1, 2), "amax amin logsumexp mean median nanmean nansum prod std var"),
    ("cumsum", "a scan", (0, 1), "cumprod logcumsumexp"),
    ("mm", "a product and a sum", (1, 2), "addmm"),
    ("bmm", "a product and a sum, batched", (1, 2), "baddbmm"),
]
"""Rows: the simplest operator of a kind, what the kind is, the places of the arguments that stay, the other
operators."""
SIMPLEST = {name: (simplest, places) for simplest, _, places, names in _KINDS for name in names.split()}
_KEPT = ("dim", "axis", "keepdim")
"""Keyword arguments of reductions that the simplest of them has, too."""


def propose(case: Live) -> list[list[str]]:
    """A round of operators, one of optional arguments, one for each plain number."""
    graph = case.gm.graph
    if len(graph.nodes) > MOST_NODES:
        return []
    known = forms(case)
    if known is None:
        return []
    simpler = [(node.name, SIMPLEST[name]) for node in graph.nodes if (name := operator_name(node)) in SIMPLEST]
    rounds = [[f"operators {name} to {simplest}" for name, (simplest, _) in simpler]]
    rounds.append([f"operators {node.name} default {name}" for node in graph.nodes for name in _optional(node)])
    numbers = [(node, name, value) for node in graph.nodes for name, value in _numbers(node)]
    rounds += [
        [f"operators {node.name} {name} {type(value)(plain)}" for node, name, value in numbers] for plain in NUMBERS
    ]
    valid = [[edit for edit in edits if alike(forms_after(case, edit, apply), known)] for edits in rounds]
    return [edits for edits in valid if edits]


def apply(case: Live, edit: str) -> Live:
    """The case with one operator or argument replaced; inputs that nothing reads any more go."""
    _, name, what, text = edit.split(" ")
    gm = copy_graph(case.gm)
    node = next((node for node in gm.graph.nodes if node.name == name), None)
    if node is None or (what == "to" and operator_name(node) not in SIMPLEST):
        raise ValueError(f"there is no node {name} of that kind")
    read = node.all_input_nodes
    if what == "to":
        _replace(node, text, SIMPLEST[operator_name(node)][1])
    elif what == "default":
        _without(node, text)
    else:
        _set(node, what, float(text) if not text.lstrip("-").isdecimal() else int(text))
    return fewer(case, gm, read)


def operator_name(node: fx.Node) -> str:
    """The name of what a node calls, without namespace and overload; empty for operators outside of aten, and for nodes
    that call nothing."""
    if node.op not in ("call_function", "call_method"):
        return ""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        space, _, name = schema.name.partition("::")
        return name if space == "aten" else ""
    return target_name(node)


def _replace(node: fx.Node, name: str, places: tuple[int, ...]) -> None:
    args = [node.args[place] for place in places if place < len(node.args)]
    kwargs = {key: value for key, value in node.kwargs.items() if key in _KEPT} if name in ("sum", "cumsum") else {}
    if hasattr(node.target, "_schema"):
        packet = getattr(torch.ops.aten, name)
        overload = "default"
        if name == "sum" and any(part is not None for part in (*args[1:], *kwargs.values())):
            overload = "dim_IntList"
            args[1:2] = [[part] if isinstance(part, int) else part for part in args[1:2]]
        elif name == "sum":
            args, kwargs = args[:1], {}
        elif name in ("add", "eq"):
            overload = "Scalar" if name == "eq" and not isinstance(args[1], fx.Node) else "Tensor"
        node.target = getattr(packet, overload)
    elif node.op == "call_method" and places[0] == 0:
        node.target = name
    else:
        node.op = "call_function"
        node.target = operator.add if name == "add" and len(args) == 2 else getattr(torch, name)
    node.args, node.kwargs = tuple(args), kwargs
    forget_source(node)


def forget_source(node: fx.Node) -> None:
    """Drops the entries of a node's meta that describe the call that it was."""
    for key in ("original_aten", "torch_fn", "source_fn_stack", "fwd_source_fn_stack"):
        node.meta.pop(key, None)


def _optional(node: fx.Node) -> Iterator[str]:
    """Names of arguments that are given, but need not be."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        if node.op in ("call_function", "call_method") and node.target is not operator.getitem:
            yield from node.kwargs
            if len(node.args) > 1 and not node.kwargs and not isinstance(node.args[-1], fx.Node):
                yield str(len(node.args) - 1)
        return
    for argument, value in _given(node):
        nullable = argument.has_default_value() or str(argument.type).startswith("Optional")
        default = argument.default_value if argument.has_default_value() else None
        if nullable and (isinstance(value, fx.Node) or value != default):
            yield argument.name


def _given(node: fx.Node) -> Iterator[tuple[Any, Any]]:
    """Arguments of a schema with their values."""
    arguments: Any = getattr(getattr(node.target, "_schema", None), "arguments", ())
    for place, argument in enumerate(arguments):
        if place < len(node.args) and not argument.kwarg_only:
            yield argument, node.args[place]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _without(node: fx.Node, name: str) -> None:
    if name in node.kwargs:
        node.kwargs = {key: value for key, value in node.kwargs.items() if key != name}
        return
    if name.isdecimal():
        node.args = node.args[: int(name)]
        return
    place, argument = _declared(node, name)
    args = list(node.args)
    args[place] = argument.default_value if argument.has_default_value() else None
    if place == len(args) - 1 and argument.has_default_value():
        args.pop()
    node.args = tuple(args)


def _numbers(node: fx.Node) -> Iterator[tuple[str, int | float]]:
    """Arguments that are numbers but no sizes and not plain: by name where there is a schema, else by place or
    keyword."""
    if node.op not in ("call_function", "call_method") or node.target is operator.getitem:
        return
    if hasattr(node.target, "_schema"):
        pairs = [(argument.name, value) for argument, value in _given(node) if "SymInt" not in argument.real_type.str()]
    else:
        pairs = [*((str(place), value) for place, value in enumerate(node.args)), *node.kwargs.items()]
    for name, value in pairs:
        if type(value) in (int, float) and value not in PLAIN and name not in ("to", "default"):
            yield name, value  # type: ignore[misc]


def _set(node: fx.Node, name: str, value: float) -> None:
    if name in node.kwargs:
        node.kwargs = {**node.kwargs, name: value}
    elif name.isdecimal():
        node.update_arg(int(name), value)
    else:
        node.update_arg(_declared(node, name)[0], value)


def _declared(node: fx.Node, name: str) -> tuple[int, Any]:
    """The place of an argument that is given, and its declaration in the schema. Raises ValueError where it is not
    given."""
    for place, (argument, _) in enumerate(_given(node)):
        if argument.name == name and place < len(node.args):
            return place, argument
    raise ValueError(f"{node.name} is given no {name}")


PASS = Pass(
    order=90,
    words="simpler operators and numbers",
    edits={
        "operators * to *": "{3} in place of {1}",
        "operators * default *": "{1} without its argument {3}",
        "operators * * *": "the argument {2} of {1} made {3}",
    },
    runs_eager=True,
)
