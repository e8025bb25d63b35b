"""Probes: changes one part of a finished case, to see whether it still fails. No pass of the search: no edit is kept,
except one that leaves a part out (see `Needs.less`).

Sizes grow and shrink, one input dimension alone or all that must move together; arguments, values, layouts and
operators become others. A part that eager refuses to change alone is "tied". Where another pass has an edit for a
change, that edit is the probe: its answer may be known.

>>> "dim" in {row[2] for row in propose(case)}
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...toolkit.live.case import Live
from ...toolkit.live.eager import GraphRunError, copy_graph
from . import Pass, values
from .dims import laid, resize_arguments, within
from .forms import watched
from .operators import forget_source
from .probing import rows
from .symbolic import fewer, renewed

SMALL_NUMBER = 4
"""Up to this a number in the arguments of a plain function may be a dimension, or anything else."""


def propose(case: Live) -> list[list[str]]:
    """A row "names" with the canonical names (old, new, old, new, ...); then a row per probe: how soon it is worth a
    query ("0", "1"; "2": never, reported where it is known; "-": there is none), edit, kind of part, name with nodes in
    braces, value, value tried.
    """
    return rows(case)


def apply(case: Live, edit: str) -> Live:
    """The case with one part changed. Raises ValueError where there is no such part."""
    _, what, *words = edit.split(" ")
    return {
        "size": _size,
        "constant": _constant,
        "operator": _operator,
        "cut": _cut,
        "fill": _fill,
        "transposed": _transposed,
    }[what](case, *words)


def _size(case: Live, old_text: str, new_text: str, places: str) -> Live:
    """Gives dimensions of inputs ("0.1": input 0, dimension 1) another size; where these are several, size arguments
    too."""
    old, new = int(old_text), int(new_text)
    wanted = [tuple(map(int, place.split("."))) for place in places.split(",")]
    inputs = list(case.inputs)
    for position, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            shape = [new if (position, dim) in wanted else size for dim, size in enumerate(value.shape)]
            inputs[position] = _resized(value, shape, old, new)
    gm = copy_graph(case.gm)

    def resized(size: int) -> int:
        return new if size == old else size

    if len(wanted) > 1 and old > 1:
        for node in gm.graph.nodes:
            is_stated = old > SMALL_NUMBER or hasattr(node.target, "_schema")
            if is_stated and node.op in ("call_function", "call_method"):
                resize_arguments(node, resized, windows=False)
    gm.recompile()
    return renewed(case, gm, inputs)


def _resized(value: torch.Tensor, shape: Sequence[int], old: int, new: int) -> torch.Tensor:
    """The tensor cut or repeated along each dimension to `shape`, with its order of dimensions in memory; whole numbers
    below `old` stay below `new`."""
    flat = value.detach()
    for dim, size in enumerate(shape):
        if size != flat.shape[dim]:
            flat = flat.index_select(dim, torch.arange(size, device=flat.device) % max(1, flat.shape[dim]))
    inside = within(flat, old, new)
    return laid(inside, value, shape) if inside is not flat or list(shape) != list(value.shape) else value


def _node(gm: fx.GraphModule, name: str) -> fx.Node:
    node = next((node for node in gm.graph.nodes if node.name == name), None)
    if node is None:
        raise ValueError(f"there is no node {name}")
    return node


def _constant(case: Live, name: str, place: str, text: str) -> Live:
    """The `place`-th number of a node's arguments (in order, keywords last) becomes another."""
    gm = copy_graph(case.gm)
    node, count = _node(gm, name), -1

    def changed(value: Any) -> Any:
        nonlocal count
        if type(value) not in (int, float, bool):
            return value
        count += 1
        return value if count != int(place) else text == "True" if type(value) is bool else type(value)(text)

    node.args, node.kwargs = map_aggregate(node.args, changed), map_aggregate(node.kwargs, changed)
    gm.recompile()
    return renewed(case, gm, case.inputs)


def _operator(case: Live, name: str, other: str, *sources: str) -> Live:
    """Puts another operator in a node's place: on the node's inputs at these places, or ("same") on the arguments that
    it has."""
    gm = copy_graph(case.gm)
    node = _node(gm, name)
    read = node.all_input_nodes
    overloads: Any = getattr(torch.ops.aten, other, None)
    if sources == ("same",):
        schema: Any = getattr(node.target, "_schema", None)
        names = [name for name in (schema.overload_name, "default") if name in overloads.overloads()] if schema else []
        node.target = getattr(overloads, names[0]) if names else getattr(torch, other)
    else:
        aten = hasattr(node.target, "_schema")
        node.target = getattr(overloads, "Tensor" if len(sources) > 1 else "default") if aten else getattr(torch, other)
        node.args, node.kwargs = tuple(read[int(source)] for source in sources), {}
    node.op = "call_function"
    forget_source(node)
    return fewer(case, gm, read)


def _cut(case: Live, name: str) -> Live:
    """Makes a node's value an input. A node that only the outputs read is dropped, and what it read is returned
    instead."""
    gm = copy_graph(case.gm)
    node = _node(gm, name)
    output = gm.graph.output_node()
    read, added = node.all_input_nodes, dict[str, Any]()
    if set(node.users) == {output}:
        flat = [other for other in output.all_input_nodes if other is not node]
        flat += [other for other in read if other.op.startswith("call_") and other not in flat]
        if not flat:
            raise ValueError("nothing would be left")
        output.args = (tuple(flat),)
        if "user_visible_output_idxs" in output.meta:
            output.meta["user_visible_output_idxs"] = list(range(len(flat)))
    else:
        value = _value(case, name)
        last = gm.graph.find_nodes(op="placeholder")
        with gm.graph.inserting_after(last[-1]) if last else gm.graph.inserting_before(next(iter(gm.graph.nodes))):
            given = gm.graph.placeholder(f"{name}_given")
        given.meta = dict(node.meta)
        node.replace_all_uses_with(given)
        added[given.name] = value
    gm.graph.erase_node(node)
    return fewer(case, gm, read, **added)


def _value(case: Live, name: str) -> torch.Tensor:
    """What eager gives at a node."""
    values: list[Any] = []

    def look(node: fx.Node, value: Any) -> Any:
        values.extend([value.detach().clone()] if node.name == name and isinstance(value, torch.Tensor) else [])
        return value

    try:
        watched(case, look)
    except GraphRunError as error:
        raise ValueError(str(error)) from error
    if not values:
        raise ValueError(f"{name} is no tensor")
    return values[0]


def _fill(case: Live, position: str, kind: str) -> Live:
    """Fills one input with another value; shape, strides, dtype and device stay."""
    return values.apply(case, f"values {position} {kind}")


def _transposed(case: Live, position: str) -> Live:
    """Lays one input out in the opposite order of dimensions in memory."""
    inputs, place = list(case.inputs), int(position)
    old = inputs[place]
    order = list(reversed(range(old.dim())))
    inputs[place] = old.detach().permute(order).contiguous().permute(order).requires_grad_(old.requires_grad)
    return renewed(case, case.gm, inputs)


PASS = Pass(
    order=140,
    edits={
        "probes operator * * *": "{3} in place of {2}",
        "probes size *": "a size of {2} made {3}",
        "probes cut *": "without {2}",
        "probes constant * * *": "{4} in place of a constant of {2}",
        "probes fill * *": "input {2} filled with {3}",
        "probes transposed *": "input {2} transposed",
    },
    runs_eager=True,
    explains=True,
)
