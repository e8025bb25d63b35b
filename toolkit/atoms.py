# pyright: basic
"""Atoms: what a minifier keeps or drops as one.

An atom is one node, except: a multi-output op with its getitems; producers of values that cannot be inputs, with their
users; all of a vmap, grad or jvp that Dynamo traced into. Returning a placeholder or an attribute is an atom too. Symbolic
numbers and mode switches are no atoms (see `carried`).
A write in place is an atom like any other: who reads after a dropped write reads the recorded value (see `cutting`).

>>> atoms = Atoms.of(gm, record_values(gm, inputs))
>>> atoms.nodes[0], atoms.parents[1]
(('sin',), [0])
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from .carried import Carried
from .relaid import reshapes
from .values import Held, Values, leaves, opaque

COMPUTE = ("call_function", "call_method", "call_module")


@dataclass
class Atoms:
    """The atoms of one graph: which nodes each holds, what each reads, and how they look. Numbered in graph order."""

    nodes: list[tuple[str, ...]] = field(default_factory=list)
    returns: list[str | None] = field(default_factory=list)
    """The placeholder or attribute whose return this atom is, or None."""
    parents: list[list[int]] = field(default_factory=list)
    labels: list[Hashable] = field(default_factory=list)
    bypasses: list[list[int]] = field(default_factory=list)
    twins: dict[str, list[str]] = field(default_factory=dict)
    """For a node that may be bypassed: its arguments of the same shape, stride, dtype and device."""
    of_node: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    """The names of all nodes of the graph, in order."""
    random: list[int] = field(default_factory=list)
    """The atoms that draw random numbers."""
    carried: Carried = field(default_factory=Carried)
    reshaped: list[str] = field(default_factory=list)
    """Nodes that are reshapes here and may be views on record (see `relaid`)."""

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    def of(cls, gm: fx.GraphModule, values: Values) -> Atoms:
        """The atoms of a graph whose values were recorded."""
        atoms = cls(order=[node.name for node in gm.graph.nodes], carried=Carried.of(gm, values), reshaped=reshapes(gm))
        free = atoms.carried.names
        compute = [node for node in gm.graph.nodes if node.op in COMPUTE and node.name not in free]
        groups = _groups(compute, values)
        for node in compute:
            members = groups[node.name]
            if members[0] == node.name:
                for member in members:
                    atoms.of_node[member] = len(atoms.nodes)
                atoms.nodes.append(tuple(members))
                atoms.returns.append(None)
        by_name = {node.name: node for node in gm.graph.nodes}
        writers = _latest_writers(gm.graph, values)
        for number, members in enumerate(atoms.nodes):
            atoms._describe(number, [by_name[member] for member in members], values, writers)
        atoms.random = sorted({atoms.of_node[name] for name in values.random if name in atoms.of_node})
        for node in output_nodes(gm.graph):
            if node.op in ("placeholder", "get_attr") or node.name in free:
                atoms.nodes.append(())
                atoms.returns.append(node.name)
                atoms.parents.append([])
                atoms.labels.append("return")
                atoms.bypasses.append([])
        return atoms

    def positions(self, names: Iterable[str]) -> list[int]:
        """Where the named nodes stand in the graph."""
        wanted = set(names)
        return [position for position, name in enumerate(self.order) if name in wanted]

    def to_json(self) -> dict[str, Any]:
        """Plain data for another process; labels become texts."""
        names = ("nodes", "returns", "parents", "bypasses", "twins", "of_node", "order", "random", "reshaped")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"labels": [repr(label) for label in self.labels], "carried": self.carried.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Atoms:
        """The inverse of to_json."""
        nodes = [tuple(nodes) for nodes in data["nodes"]]
        return cls(**{**data, "nodes": nodes, "carried": Carried.from_json(data["carried"])})

    def _describe(self, number: int, members: list[fx.Node], values: Values, writers: dict[str, set[str]]) -> None:
        before = {self.of_node[a.name] for node in members for a in node.all_input_nodes if a.name in self.of_node}
        earlier = {self.of_node[writer] for node in members for writer in writers.get(node.name, ()) if writer in self.of_node}
        self.parents.append(sorted(parent for parent in before | earlier if parent < number))
        self.labels.append(tuple(
            (node.op, target_text(node), _looks(values.tree(node.name)), _constants(node)) for node in members
        ))  # fmt: skip
        twins: list[str] = []
        if len(members) == 1 and not values.written(members[0].name) and members[0].name not in values.writes:
            twins = _twins(members[0], values)
        if twins:
            self.twins[members[0].name] = twins
        self.bypasses.append(sorted({self.of_node[twin] for twin in twins if twin in self.of_node} & before))


def target_text(node: fx.Node) -> str:
    """A node's target as one string."""
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", None) or str(target)


def output_nodes(graph: fx.Graph) -> list[fx.Node]:
    """The distinct nodes that a graph returns, in order."""
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    found: dict[fx.Node, None] = {}
    map_arg(output.args[0], lambda node: found.setdefault(node))
    return list(found)


def _looks(tree: Any) -> Hashable:
    return tuple((held.shape, held.stride, held.dtype) for held in leaves(tree))


def _constants(node: fx.Node) -> Hashable:
    """What a node is given beside other nodes, as a number: two sums over different dimensions do not look the same."""
    plain = map_arg((node.args, node.kwargs), lambda _: None)
    return zlib.crc32(repr(plain).encode())


def _latest_writers(graph: fx.Graph, values: Values) -> dict[str, set[str]]:
    """Node -> the last nodes that wrote to the memory it reads."""
    last: dict[int, str] = {}
    found: dict[str, set[str]] = {}
    for node in graph.nodes:
        if last:
            memory = {storage for argument in node.all_input_nodes for storage in values.memory.get(argument.name, ())}
            if writers := {last[storage] for storage in memory if storage in last}:
                found[node.name] = writers
        for storage in values.writes.get(node.name, ()):
            last[storage] = node.name
    return found


def _twins(node: fx.Node, values: Values) -> list[str]:
    tree = values.tree(node.name)
    if not isinstance(tree, Held):
        return []
    twins: list[str] = []
    for argument in node.all_input_nodes:
        if argument.op in COMPUTE:
            other = values.tree(argument.name)
            if isinstance(other, Held) and other.kind == tree.kind and not values.written(argument.name):
                twins.append(argument.name)
    return twins


def _groups(compute: list[fx.Node], values: Values) -> dict[str, list[str]]:
    """Node name -> the names of all nodes that must stay with it, in graph order."""
    leader = {node.name: node.name for node in compute}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    def unite(names: Iterable[str]) -> None:
        roots = [find(name) for name in names if name in leader]
        for root in roots[1:]:
            leader[find(root)] = find(roots[0])

    for node in compute:
        tree = values.tree(node.name)
        if isinstance(tree, (list, tuple)) and any(True for _ in leaves(tree)):
            unite([node.name, *(user.name for user in node.users if user.target is operator.getitem)])
        if opaque(tree):
            unite([node.name, *(user.name for user in node.users)])
    unite(node.name for node in compute if _switches_mode(node))
    for region in _transforms(compute):
        unite(region)
    groups: dict[str, list[str]] = {}
    for node in compute:
        groups.setdefault(find(node.name), []).append(node.name)
    return {name: members for members in groups.values() for name in members}


_ENTERS = ("_increment_nesting", "_enter_dual_level", "_saved_tensors_hooks_disable")
_LEAVES = ("_decrement_nesting", "_exit_dual_level", "_saved_tensors_hooks_enable")


def _transforms(compute: list[fx.Node]) -> Iterator[list[str]]:
    """The nodes of each vmap, grad or jvp that Dynamo traced into: from the outermost level's beginning to its end."""
    inside: list[str] = []
    depth = 0
    for node in compute:
        name = target_text(node)
        depth += name.endswith(_ENTERS)
        if depth:
            inside.append(node.name)
        depth -= name.endswith(_LEAVES)
        if not depth and inside:
            yield inside
            inside = []


def _switches_mode(node: fx.Node) -> bool:
    return node.op == "call_function" and not node.users and getattr(node.target, "__module__", None) == "torch._C"
