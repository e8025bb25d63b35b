# pyright: basic
"""Atoms of a graph, and graphs built from any subset of them (the K-encoding).

A candidate keeps some atoms. Every edge from a dropped node becomes a placeholder that holds the recorded value; the outputs are
the original outputs among what is kept, and the kept nodes that nothing kept reads. So any subset is a valid graph.

An atom is one node, except: a multi-output op with its getitems; nodes that share memory where one is read after a write to it;
producers of values that cannot be inputs, with their users; the mode switches of a Dynamo graph. Returning a placeholder or an
attribute is an atom too. Numbers computed by dropped nodes are written into the arguments as constants.

>>> values = record_values(gm, inputs)
>>> atoms = Atoms.of(gm, values)
>>> module, inputs = build(gm, atoms, values, keep={3, 4})
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .values import Held, Values, copies, leaves, opaque

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

    def __len__(self) -> int:
        return len(self.nodes)

    @classmethod
    def of(cls, gm: fx.GraphModule, values: Values) -> Atoms:
        """The atoms of a graph whose values were recorded."""
        atoms = cls()
        compute = [node for node in gm.graph.nodes if node.op in COMPUTE]
        groups = _groups(gm.graph, compute, values)
        for node in compute:
            members = groups[node.name]
            if members[0] == node.name:
                for member in members:
                    atoms.of_node[member] = len(atoms.nodes)
                atoms.nodes.append(tuple(members))
                atoms.returns.append(None)
        by_name = {node.name: node for node in gm.graph.nodes}
        for number, members in enumerate(atoms.nodes):
            atoms._describe(number, [by_name[member] for member in members], values)
        for node in output_nodes(gm.graph):
            if node.op in ("placeholder", "get_attr"):
                atoms.nodes.append(())
                atoms.returns.append(node.name)
                atoms.parents.append([])
                atoms.labels.append("return")
                atoms.bypasses.append([])
        return atoms

    def _describe(self, number: int, members: list[fx.Node], values: Values) -> None:
        before = {self.of_node[a.name] for node in members for a in node.all_input_nodes if a.name in self.of_node}
        self.parents.append(sorted(parent for parent in before if parent < number))
        self.labels.append(tuple((node.op, target_text(node), _looks(values.tree(node.name))) for node in members))
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
    fx.node.map_arg(output.args[0], lambda node: found.setdefault(node))
    return list(found)


def _looks(tree: Any) -> Hashable:
    return tuple((held.shape, held.dtype) for held in leaves(tree)) if not isinstance(tree, Held) else (tree.shape, tree.dtype)


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


def _groups(graph: fx.Graph, compute: list[fx.Node], values: Values) -> dict[str, list[str]]:
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
    for storage in _read_after_write(graph, values):
        unite(node.name for node in compute if storage in values.memory[node.name] | values.writes.get(node.name, frozenset()))
    unite(node.name for node in compute if _switches_mode(node))
    groups: dict[str, list[str]] = {}
    for node in compute:
        groups.setdefault(find(node.name), []).append(node.name)
    return {name: members for members in groups.values() for name in members}


def _read_after_write(graph: fx.Graph, values: Values) -> set[int]:
    """Storages read through a node that is older than the last write to them."""
    found: set[int] = set()
    for (_, name), version in values.read.items():
        if version != values.produced[name]:
            found |= values.memory[name]
    return found


def _switches_mode(node: fx.Node) -> bool:
    return node.op == "call_function" and not node.users and getattr(node.target, "__module__", None) == "torch._C"


def build(
    gm: fx.GraphModule,
    atoms: Atoms,
    values: Values,
    keep: Collection[int],
    *,
    bypass: Collection[int] = (),
    returned: Collection[int] | None = None,
) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of the kept atoms and its inputs: original ones as the caller gave them, recorded ones for what was dropped.

    `bypass`: atoms replaced by an argument of the same kind. `returned`: positions of nodes in the original graph that are
    returned in place of the original outputs and sinks. Raises where FX finds the result malformed.
    """
    return _Builder(gm, atoms, values, keep, bypass).build(returned)


class _Builder:
    def __init__(
        self, gm: fx.GraphModule, atoms: Atoms, values: Values, keep: Collection[int], bypass: Collection[int]
    ) -> None:
        self.gm, self.atoms, self.values = gm, atoms, values
        self.order: list[fx.Node] = list(gm.graph.nodes)
        self.kept = {name for atom in keep for name in atoms.nodes[atom]}
        self.bypassed = {name for atom in bypass for name in atoms.nodes[atom]}
        self.wanted = {atoms.returns[atom] for atom in keep} - {None}
        self.by_name = {node.name: node for node in self.order}
        self.cut: dict[tuple[str, int], None] = {}
        self.used: set[str] = set()
        self.graph = fx.Graph()
        self.env: dict[str, Any] = {}
        self.held: dict[tuple[str, int], Any] = {}

    def build(self, returned: Collection[int] | None) -> tuple[fx.GraphModule, list[Any]]:
        """See the module's `build`."""
        outputs = self.outputs() if returned is None else [self.order[position] for position in sorted(returned)]
        if returned is not None:
            self._drop_unread_items(outputs)
        self._find_references(outputs)
        inputs = self._placeholders()
        fresh_attributes: dict[str, torch.Tensor] = {}
        for node in self.order:
            if node.op == "get_attr" and node.name in self.used:
                self.env[node.name] = self._copy_node(node)
                if self.values.written(node.name):
                    fresh_attributes[str(node.target)] = _attribute(self.gm, str(node.target))
            elif node.name in self.kept:
                self.env[node.name] = self._copy_node(node)
        self._output(outputs)
        module = fx.GraphModule(self.gm, self.graph, class_name="GraphModule")
        for target, value in fresh_attributes.items():
            _replace_attribute(module, target, copies([value])[0])
        for node in self.graph.nodes:
            if node.op == "call_module" and any(True for _ in module.get_submodule(str(node.target)).buffers()):
                _replace_module(module, str(node.target))
        self.graph.lint()
        module.meta = dict(self.gm.meta)
        return module, inputs

    def outputs(self) -> list[fx.Node]:
        """The original outputs among what is kept, then the kept tensors that nothing kept reads."""
        original = output_nodes(self.gm.graph)
        found = {node: None for node in original if node.name in self.kept or node.name in self.wanted}
        read: set[str] = set()
        for node in self.order:
            if node.name in self.kept:
                read |= {self._source(argument) for argument in node.all_input_nodes}
        for node in self.order:
            if node.name in self.kept and node.name not in read and any(True for _ in leaves(self.values.tree(node.name))):
                found.setdefault(node)
        return list(found)

    def _source(self, node: fx.Node) -> str:
        """The node that stands in for this one: itself, or what a bypass leads to."""
        while node.name in self.bypassed:
            twins = self.atoms.twins[node.name]
            alive = [twin for twin in twins if twin in self.kept or twin in self.bypassed]
            node = self.by_name[(alive or twins)[0]]
        return node.name

    def _drop_unread_items(self, outputs: list[fx.Node]) -> None:
        returned = {node.name for node in outputs}
        for node in reversed(self.order):
            if node.name in self.kept and node.target is operator.getitem and node.name not in returned:
                if not any(user.name in self.kept for user in node.users):
                    self.kept.discard(node.name)

    def _find_references(self, outputs: list[fx.Node]) -> None:
        for node in self.order:
            if node.name in self.kept:
                for argument in node.all_input_nodes:
                    self._refer(node.name, argument)
        for node in outputs:
            self._refer("output", node)

    def _refer(self, user: str, argument: fx.Node) -> None:
        key = self._key(user, argument)
        if key is None:
            self.used.add(self._source(argument))
        else:
            self.cut[key] = None

    def _key(self, user: str, argument: fx.Node) -> tuple[str, int] | None:
        """None where the argument is there in the new graph; else the recorded value (node, version) to use for it."""
        source = self._source(argument)
        if source in self.kept:
            return None
        version = self.values.produced[source]
        if source == argument.name:
            version = self.values.read.get((user, source), version)
        if self.by_name[source].op in COMPUTE:
            return source, version
        if version == self.values.produced[source] or self._writers(source) <= self.kept:
            return None
        return source, version

    def _writers(self, name: str) -> set[str]:
        memory = self.values.memory[name]
        return {writer for writer, storages in self.values.writes.items() if storages & memory}

    def _placeholders(self) -> list[Any]:
        inputs: list[Any] = []
        originals = [node for node in self.order if node.op == "placeholder"]
        for node, value in zip(originals, self.values.inputs, strict=True):
            if node.name in self.used:
                self.env[node.name] = self._copy_node(node)
                inputs.append(value)
        if any(self.values.written(node.name) for node in originals if node.name in self.used):
            inputs = copies(inputs)
        rank = {node.name: position for position, node in enumerate(self.order)}
        for name, version in sorted(self.cut, key=lambda key: (rank[key[0]], key[1])):
            label = name if version == self.values.produced[name] else f"{name}_v{version}"
            self.held[name, version] = self._input(self.values.tree(name, version), label, self.by_name[name], inputs)
        return inputs

    def _input(self, tree: Any, label: str, node: fx.Node, inputs: list[Any]) -> Any:
        if isinstance(tree, Held):
            placeholder = self.graph.placeholder(label)
            if tree is self.values.trees.get((node.name, self.values.produced[node.name])):
                placeholder.meta = {key: node.meta[key] for key in KEPT_META if key in node.meta}
            tensor = tree.load()
            inputs.append(copies([tensor])[0] if self.values.written(node.name) else tensor)
            return placeholder
        if isinstance(tree, (list, tuple)):
            parts = [self._input(part, f"{label}_{i}", node, inputs) for i, part in enumerate(tree)]
            return parts if isinstance(tree, list) else tuple(parts)
        return tree

    def _copy_node(self, node: fx.Node) -> fx.Node:
        def argument(other: fx.Node) -> Any:
            key = self._key(node.name, other)
            return self.env[self._source(other)] if key is None else self.held[key]

        new = self.graph.create_node(
            node.op, node.target, fx.node.map_arg(node.args, argument), fx.node.map_arg(node.kwargs, argument),
            node.name, node.type,
        )  # fmt: skip
        new.meta = copy.copy(node.meta)
        return new

    def _output(self, outputs: list[fx.Node]) -> None:
        original = next(node for node in reversed(self.order) if node.op == "output")
        results = []
        for node in outputs:
            key = self._key("output", node)
            results.append(self.env[self._source(node)] if key is None else self.held[key])
        new = self.graph.output(tuple(results))
        new.meta = {key: value for key, value in original.meta.items() if key not in POSITIONAL_META}
        if "user_visible_output_idxs" in original.meta:
            new.meta["user_visible_output_idxs"] = list(range(len(results)))


KEPT_META = ("val", "example_value", "tensor_meta", "stack_trace", "nn_module_stack", "seq_nr", "original_aten", "from_node")
POSITIONAL_META = ("user_visible_output_idxs", "original_output_strides", "val", "example_value", "tensor_meta")


def _attribute(gm: torch.nn.Module, target: str) -> Any:
    return operator.attrgetter(target)(gm)


def _replace_attribute(gm: torch.nn.Module, target: str, value: torch.Tensor) -> None:
    path, _, name = target.rpartition(".")
    owner = gm.get_submodule(path)
    if name in owner._parameters:
        owner._parameters[name] = torch.nn.Parameter(value.detach(), value.requires_grad)
    elif name in owner._buffers:
        owner._buffers[name] = value
    else:
        setattr(owner, name, value)


def _replace_module(gm: torch.nn.Module, target: str) -> None:
    path, _, name = target.rpartition(".")
    owner = gm.get_submodule(path)
    owner._modules[name] = copy.deepcopy(owner._modules[name])


def positions(gm: fx.GraphModule, names: Sequence[str]) -> list[int]:
    """The positions of named nodes in the graph: what `returned` of `build` counts."""
    wanted = set(names)
    return [position for position, node in enumerate(gm.graph.nodes) if node.name in wanted]
