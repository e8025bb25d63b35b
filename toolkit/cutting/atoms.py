# pyright: basic
"""Atoms: what a minifier keeps or drops as one.

An atom is one node, except: a multi-output op with its getitems; producers of values that cannot be inputs, with their
users; all of a vmap, grad or jvp that Dynamo traced into. Returning a placeholder or an attribute is an atom too.
Symbolic numbers and mode switches are no atoms (see `Carried`). A write in place is an atom like any other: who reads
after a dropped write reads the recorded value (see `cutting`).

>>> from graphdbg.toolkit.cutting.eager_values import record_values
>>> atoms = Atoms.of(gm, record_values(gm, inputs))
>>> atoms.nodes[1], atoms.parents[1]
(('addmm',), [0])
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import fx
from torch.fx.node import map_arg

from ...dumps.torchside.values import fake_of
from ..live.case import reshapes
from ..live.values import Held, Values, leaves, opaque

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass
class Carried:
    """Nodes that no atom holds: they come with the kept nodes that need them, and go with them.

    Symbolic numbers (a size that a dropped node computed cannot be an input: its symbol would be bound nowhere) and the
    mode switches of a Dynamo graph (grad mode, autocast). So a subset never becomes static, or computes in another
    dtype, in silence.
    """

    numbers: dict[str, list[str]] = field(default_factory=dict)
    """A node that computes symbolic numbers -> those that it reads."""
    stands: dict[str, str] = field(default_factory=dict)
    """A symbolic number -> the placeholder that is the same number."""
    readers: dict[str, list[str]] = field(default_factory=dict)
    """Any other node -> the symbolic numbers that it reads."""
    grads: list[tuple[str, bool, bool]] = field(default_factory=list)
    """Switches of grad mode in order: name, mode before, mode after."""
    regions: list[tuple[str, str]] = field(default_factory=list)
    """Nodes that enter and leave autocast."""

    @classmethod
    def of(cls, gm: fx.GraphModule, values: Values) -> Carried:
        """The carried nodes of a graph with fake values (without them no number is symbolic) whose values were
        recorded."""
        carried = cls(grads=[(name, *modes) for name, modes in values.grads.items()])
        homes: dict[str, str] = {}
        for node in gm.graph.nodes:
            value = fake_of(node)
            if node.op == "placeholder":
                if isinstance(value, torch.SymInt) and not value.node.is_constant():
                    homes.setdefault(str(value.node.expr), node.name)
                continue
            read = [other.name for other in node.all_input_nodes if other.name in carried.numbers]
            if node.op == "output":
                continue
            if not is_symbolic(value):
                if read:
                    carried.readers[node.name] = read
                if target_name(node) == "_enter_autocast":
                    carried.regions += [(node.name, user.name) for user in node.users]
                continue
            if isinstance(value, torch.SymInt) and (home := homes.get(str(value.node.expr))) is not None:
                carried.stands[node.name] = home
                read = []
            carried.numbers[node.name] = read
        return carried

    @property
    def names(self) -> set[str]:
        """All nodes that no atom holds."""
        switches = {name for name, _, _ in self.grads}
        return {*self.numbers, *switches, *(name for region in self.regions for name in region)}

    def needed(self, kept: Collection[str], order: Sequence[str]) -> set[str]:
        """The nodes that must come with the kept ones. `order` are the names of all nodes of the graph."""
        stack = [number for name in kept for number in self.readers.get(name, ())]
        needed: set[str] = set()
        while stack:
            number = stack.pop()
            if number not in needed and number not in self.stands:
                needed.add(number)
                stack += self.numbers[number]
        if kept and (self.grads or self.regions):
            needed |= self._switches(kept, {name: position for position, name in enumerate(order)})
        return needed

    def _switches(self, kept: Collection[str], rank: dict[str, int]) -> set[str]:
        places = sorted(rank[name] for name in kept)
        needed: set[str] = set()
        for enter, leave in self.regions:
            if any(rank[enter] < place < rank[leave] for place in places):
                needed |= {enter, leave}
        if not self.grads:
            return needed
        now = self.grads[0][1]
        ends = [*(rank[name] for name, _, _ in self.grads[1:]), len(rank)]
        for (name, _, mode), end in zip(self.grads, ends, strict=True):
            last = end == len(rank)
            if mode != now and (last or any(rank[name] < place < end for place in places)):
                needed.add(name)
                now = mode
        return needed


def is_symbolic(value: Any) -> bool:
    """Whether a value is a number that is not known before the graph runs, or a list of numbers with such among
    them."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, (*SYMBOLIC, int, float)) for part in value) and any(map(is_symbolic, value))
    return isinstance(value, SYMBOLIC) and not value.node.is_constant()


def target_name(node: fx.Node) -> str:
    """The name of a node's target, without its module."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def symbols_in(value: Any) -> set[str]:
    """The symbols in a fake value: those of a number, or of a tensor's sizes, strides and offset."""
    if isinstance(value, SYMBOLIC):
        return {str(symbol) for symbol in value.node.expr.free_symbols}
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        numbers = (*value.shape, *value.stride(), value.storage_offset())
        return {symbol for number in numbers if isinstance(number, SYMBOLIC) for symbol in symbols_in(number)}
    if isinstance(value, (list, tuple)):
        return {symbol for part in value for symbol in symbols_in(part)}
    return set()


def bound_by(value: Any) -> set[str]:
    """The symbols to which an input with this fake value gives a number: it is one, or has one as a size."""
    numbers = [value] if isinstance(value, SYMBOLIC) else value.shape if isinstance(value, torch.Tensor) else ()
    return {str(number.node.expr) for number in numbers if isinstance(number, SYMBOLIC) and number.node.expr.is_symbol}


def binding(others: Sequence[fx.Node], given: Sequence[Any]) -> tuple[set[str], set[str]]:
    """The names of the placeholders among `others` that must come in too, so that every symbol in `given` is bound, and
    the symbols that none of them binds (sizes that depend on data).
    """
    loose = {symbol for value in given for symbol in symbols_in(value)}
    loose -= {symbol for value in given for symbol in bound_by(value)}
    added: set[str] = set()
    for node in sorted(others, key=lambda node: isinstance(fake_of(node), torch.Tensor)):
        if gained := loose & bound_by(fake_of(node)):
            loose -= gained
            added.add(node.name)
    return added, loose


COMPUTE = ("call_function", "call_method", "call_module")


@dataclass
class Atoms:
    """The atoms of one graph: which nodes each holds, what each reads, and how they look. Numbered in graph order."""

    nodes: list[tuple[str, ...]] = field(default_factory=list)
    returns: list[str | None] = field(default_factory=list)
    """The placeholder or attribute whose return this atom is, or None."""
    parents: list[list[int]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
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
    """Nodes that are reshapes here and may be views on record (see `case.follow_saved`)."""

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
        before = _order_by_memory(gm.graph, values)
        for number, members in enumerate(atoms.nodes):
            atoms._describe(number, [by_name[member] for member in members], values, before)
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
        """The positions of the named nodes in the graph."""
        wanted = set(names)
        return [position for position, name in enumerate(self.order) if name in wanted]

    def to_json(self) -> dict[str, Any]:
        """Plain data for another process."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Atoms:
        """The inverse of to_json."""
        return msgspec.convert(data, cls)

    def _describe(self, number: int, members: list[fx.Node], values: Values, order: dict[str, set[str]]) -> None:
        before = {self.of_node[a.name] for node in members for a in node.all_input_nodes if a.name in self.of_node}
        names = {name for node in members for name in order.get(node.name, ())}
        earlier = {self.of_node[name] for name in names & self.of_node.keys()}
        self.parents.append(sorted(parent for parent in before | earlier if parent < number))
        looks = [(node.op, target_text(node), _looks(values.tree(node.name)), _constants(node)) for node in members]
        self.labels.append(repr(looks))
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
    nodes: dict[fx.Node, None] = {}
    map_arg(output.args[0], lambda node: nodes.setdefault(node))
    return list(nodes)


def _looks(tree: Any) -> Hashable:
    return tuple((held.shape, held.stride, held.dtype) for held in leaves(tree))


def _constants(node: fx.Node) -> Hashable:
    """A hash of a node's arguments that are not nodes, so that two sums over different dimensions do not look the
    same."""
    plain = map_arg((node.args, node.kwargs), lambda _: None)
    return zlib.crc32(repr(plain).encode())


def _order_by_memory(graph: fx.Graph, values: Values) -> dict[str, set[str]]:
    """Node -> the nodes that must run before it because of memory that it reads or writes: the last that wrote there
    and, for a writer, those that have read there since."""
    last: dict[int, str] = {}
    read: dict[int, set[str]] = {}
    before: dict[str, set[str]] = {}
    for node in graph.nodes:
        memory = {storage for argument in node.all_input_nodes for storage in values.memory.get(argument.name, ())}
        writes = values.writes.get(node.name, ())
        readers = {reader for storage in writes for reader in read.pop(storage, ())}
        if earlier := readers.union(last[storage] for storage in memory if storage in last):
            before[node.name] = earlier
        for storage in memory.difference(writes):
            read.setdefault(storage, set()).add(node.name)
        for storage in writes:
            last[storage] = node.name
    return before


def _twins(node: fx.Node, values: Values) -> list[str]:
    tree = values.tree(node.name)
    if not isinstance(tree, Held):
        return []
    names = [argument.name for argument in node.all_input_nodes if argument.op in COMPUTE]
    held = [(name, other) for name in names if isinstance(other := values.tree(name), Held)]
    return [name for name, other in held if other.kind == tree.kind and not values.written(name)]


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
