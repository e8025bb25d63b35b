"""Splits a graph into what depends on constants alone and the rest: ahead of time the first part is code that runs once.

Which operators may be folded is torch's decision (its table of impure ones is asked); which nodes follow from that, and the two
graphs, are worked out here. Values are computed once; the rest holds them under `_FOLDED_CONST_<node>`.

>>> constants, places = split_const_gm(gm)
>>> places
{'_FOLDED_CONST_mm': 0}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _torch as t

Skip = Callable[[torch.fx.Node], bool]

_UNKNOWN = object()
_LATER = object()
"""The value of a lifted constant, and of what follows from it: a constant, but not known yet."""


def split_const_gm(
    gm: torch.fx.GraphModule,
    skip_constructor: bool = True,
    lifted_constant_names: Sequence[str] | None = None,
    skip_folding_node_fn: Skip | None = None,
) -> tuple[torch.fx.GraphModule, dict[str, int]]:
    """The graph of the constant part; for each value that the rest takes from it, its name there and its place among the outputs.

    `gm` becomes the rest. `skip_constructor`: what is made from numbers alone (`arange`) stays in the rest.
    `lifted_constant_names`: placeholders that are constants; nothing is computed then, and the rest has placeholders for values.
    `skip_folding_node_fn`: nodes for which it is true are never constant.
    """
    lifted = frozenset(lifted_constant_names) if lifted_constant_names is not None else None
    with t.modes_off(), torch.no_grad():
        found = _Constants(gm, skip_constructor, lifted, skip_folding_node_fn)
    inside = found.inside()
    constants, taken = _constant_graph(gm, inside)
    places: dict[str, int] = {}
    for place, node in enumerate(taken):
        name = f"_FOLDED_CONST_{node.name}"
        value = None if lifted is not None else found.values[node]
        t.replace_node_with_constant(gm, node, value, name)
        places[name] = place
    for node in reversed(inside):
        if node not in taken and node.op != "placeholder" and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return constants, places


class _Constants:
    """Which nodes are constants, and the values of those that others still need."""

    def __init__(
        self, gm: torch.fx.GraphModule, skip_constructor: bool, lifted: frozenset[str] | None, skip: Skip | None
    ) -> None:
        self.gm = gm
        self.skip_constructor = skip_constructor
        self.lifted = lifted
        self.skip = skip
        self.values: dict[torch.fx.Node, Any] = {}
        self.folded: set[torch.fx.Node] = set()
        self.used: set[torch.fx.Node] = set()
        names = sorted(lifted) if lifted is not None else None
        self._torchs = t.ConstantFolder(gm, skip_constructor, names)
        self._interpreter = torch.fx.Interpreter(gm)
        self._waits: Counter[torch.fx.Node] = Counter({node: len(node.users) for node in gm.graph.nodes})
        for node in gm.graph.nodes:
            value = self._value(node)
            self.values[node] = value
            if value is _UNKNOWN:
                continue
            if not self._is_source(node) and self._is_foldable(node, value):
                if self._torchs.is_impure(node):
                    self.values[node] = _UNKNOWN
                    continue
                self.folded.add(node)
                self._take_with(node)

    def _take_with(self, node: torch.fx.Node) -> None:
        """What a constant is made from goes with it, several values at once included (the result of a split)."""
        for given in node.all_input_nodes:
            self._waits[given] -= 1
            if not self._waits[given]:
                self.values[given] = None  # large values go as soon as nothing outside can need them
            if given not in self.folded and given not in self.used and not self._is_source(given):
                self.used.add(given)
                self._take_with(given)

    def inside(self) -> list[torch.fx.Node]:
        """The nodes of the constant part, in order. A source that only the rest uses stays with the rest."""
        marked = {
            node
            for node in self.gm.graph.nodes
            if (node in self.folded or node in self.used or self._is_source(node))
            and not (self.skip is not None and self.skip(node))
        }
        return [
            node
            for node in self.gm.graph.nodes
            if node in marked
            and (not self._is_source(node) or any(user in marked and not self._is_source(user) for user in node.users))
        ]

    def _is_source(self, node: torch.fx.Node) -> bool:
        return node.op == "get_attr" or node.name in (self.lifted or ())

    def _is_foldable(self, node: torch.fx.Node, value: Any) -> bool:
        if value is _LATER:
            return True
        return isinstance(value, torch.Tensor) and value.device.type != "meta"

    def _value(self, node: torch.fx.Node) -> Any:
        if self.lifted is not None and node.name in self.lifted:
            return _LATER
        if node.op in ("placeholder", "output") or (self.skip is not None and self.skip(node)):
            return _UNKNOWN
        given = [self.values[one] for one in node.all_input_nodes]
        if any(value is _UNKNOWN for value in given) or self._is_never_constant(node):
            return _UNKNOWN
        tensors = any(isinstance(leaf, torch.Tensor) for value in given for leaf in t.pytree.tree_leaves(value))
        if self.skip_constructor and not tensors and not self._is_source(node):
            return _UNKNOWN
        if self.lifted is not None:
            return _LATER
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: self.values[one])
        return getattr(self._interpreter, node.op)(node.target, args, kwargs)

    def _is_never_constant(self, node: torch.fx.Node) -> bool:
        target = node.target
        return node.op == "call_function" and (
            target is torch.ops.aten._efficientzerotensor.default
            or isinstance(target, t.HigherOrderOperator)
            or (isinstance(target, t.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags)
        )


def _constant_graph(
    gm: torch.fx.GraphModule, inside: Sequence[torch.fx.Node]
) -> tuple[torch.fx.GraphModule, list[torch.fx.Node]]:
    """The constant part as a graph, and the nodes of the original whose values it returns."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in inside:
        copies[node] = graph.node_copy(node, lambda one: copies[one])
    taken = [node for node in inside if any(user not in copies for user in node.users)]
    graph.output(tuple(copies[node] for node in taken))
    graph.lint()
    return torch.fx.GraphModule(gm, graph), taken
