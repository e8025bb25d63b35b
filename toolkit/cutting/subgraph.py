# pyright: basic
"""Graphs built from any subset of a graph's atoms (the K-encoding).

Also: where a subset of a graph is cut: for every argument of a kept node, the node or recorded value that it reads in
the new graph, so that it gets the same bits as in the whole one.

Every edge from a dropped node becomes a placeholder that holds the recorded value; the outputs are the original outputs
among what is kept, and the kept nodes that nothing kept reads. So any subset is a valid graph. Numbers that dropped
nodes computed are written into the arguments as constants (where sizes are symbols, they stay inputs).

>>> from graphdbg.toolkit.cutting.atoms import Atoms
>>> from graphdbg.toolkit.cutting.eager_values import record_values
>>> values = record_values(gm, inputs)
>>> module, part_inputs = build(gm, Atoms.of(gm, values), values, keep={3, 4})
>>> [node.name for node in module.graph.nodes]
['addmm', 'mul_1', 'erf', 'output']
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch import fx
from torch.fx.node import map_arg

from ..live.eager import attribute, clone_inputs
from ..live.spec import ReplaySpec
from ..live.values import Held, Values, leaves, onto, together
from .atoms import Atoms, binding, fake_of, output_nodes
from .eager_values import written_arguments
from .spill import load_inputs

Handle = str | tuple[str, int]
"""What an argument reads in the new graph: a kept or original node (name), or an input with a recorded value (name,
version)."""


@dataclass(eq=False)
class NewStorage:
    """One storage of the new graph, and the version of the original storage that it holds while the graph runs."""

    storage: int
    birth: int
    now: int
    given: bool
    """Whether it is there before the graph runs: of an original input or attribute, or of a recorded value."""
    inputs: list[str] = field(default_factory=list)
    """Original placeholders that lie in it."""
    held: list[Held] = field(default_factory=list)
    """Recorded values that lie in it."""
    written: bool = False
    last_read: int = -1


@dataclass
class CutPlan:
    """What the new graph uses: original placeholders and attributes (`used`), recorded values (`cut`), and what each
    argument reads (`reads`)."""

    used: set[str] = field(default_factory=set)
    cut: dict[tuple[str, int], dict[int, NewStorage]] = field(default_factory=dict)
    reads: dict[tuple[str, str], Handle] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    """Kept writes that are seen without being returned: in an input, or by a later reader."""
    memories: list[NewStorage] = field(default_factory=list)


class Cutting:
    """One walk over the kept nodes in graph order. `source` leads from an argument to the node that stands in for
    it."""

    def __init__(
        self, gm: fx.GraphModule, atoms: Atoms, values: Values, kept: Collection[str], source: Callable[[fx.Node], str]
    ) -> None:
        self.values, self.kept, self.source = values, kept, source
        self.by_name = {node.name: node for node in gm.graph.nodes}
        self.rank = {name: position for position, name in enumerate(atoms.order)}
        self.computed = atoms.of_node.keys() | atoms.carried.names
        self.versions: dict[int, int] = {}
        self.plan_ = CutPlan()
        self.there: dict[str, list[Handle]] = {}
        self.lies: dict[Handle, dict[int, NewStorage]] = {}
        self.writers: list[tuple[str, int, NewStorage]] = []

    def plan(self, outputs: Sequence[fx.Node]) -> CutPlan:
        """The whole plan; `outputs` are the nodes that the new graph returns."""
        self._originals()
        for name in sorted({*self.kept, *self.values.writes} & self.rank.keys(), key=self.rank.__getitem__):
            if name in self.kept:
                self._run(self.by_name[name])
            for storage in self.values.writes.get(name, ()):
                self.versions[storage] = self.versions.get(storage, 0) + 1
        for node in outputs:
            own = self.source(node)
            self.plan_.reads["output", node.name] = own if own in self.kept else self._find("output", node)
        self.plan_.effects = {name for name, place, memory in self.writers if memory.given or memory.last_read > place}
        return self.plan_

    def _originals(self) -> None:
        shared: dict[int, NewStorage] = {}
        for name, node in self.by_name.items():
            if node.op not in ("placeholder", "get_attr") or name in self.computed or name not in self.values.memory:
                continue
            lies: dict[int, NewStorage] = {}
            for storage in self.values.memory[name]:
                if storage not in shared:
                    shared[storage] = NewStorage(storage, 0, 0, given=True)
                    self.plan_.memories.append(shared[storage])
                lies[storage] = shared[storage]
                if node.op == "placeholder":
                    shared[storage].inputs.append(name)
            self._put(name, name, lies)

    def _put(self, name: str, handle: Handle, lies: dict[int, NewStorage]) -> None:
        self.there.setdefault(name, []).append(handle)
        self.lies[handle] = lies

    def _run(self, node: fx.Node) -> None:
        handles = {argument: self._find(node.name, argument) for argument in node.all_input_nodes}
        place = self.rank[node.name]
        lies: dict[int, NewStorage] = {}
        for handle in handles.values():
            for storage, memory in self.lies[handle].items():
                memory.last_read = place
                lies.setdefault(storage, memory)
        writes = self.values.writes.get(node.name, frozenset())
        declared = [handles[argument] for argument in written_arguments(node) if argument in handles]
        for storage in writes:
            of_declared = (self.lies[handle][storage] for handle in declared if storage in self.lies[handle])
            memory = next(of_declared, lies.get(storage))
            if memory is not None:
                lies[storage] = memory
                memory.now += 1
                memory.written = True
                self.writers.append((node.name, place, memory))
        own: dict[int, NewStorage] = {}
        for storage in self.values.memory.get(node.name, ()):
            after = self.versions.get(storage, 0) + (storage in writes)
            own[storage] = lies.get(storage) or NewStorage(storage, after, after, given=False)
        self._put(node.name, node.name, own)

    def _find(self, user: str, argument: fx.Node) -> Handle:
        name = self.source(argument)
        for handle in self.there.get(name, ()):
            if all(memory.now == self.versions.get(storage, 0) for storage, memory in self.lies[handle].items()):
                if name not in self.kept and isinstance(handle, str):
                    self.plan_.used.add(handle)
                self.plan_.reads[user, argument.name] = handle
                return handle
        version = self.values.produced[name]
        if name == argument.name:
            version = self.values.read.get((user, name), version)
        key = (name, version)
        lies = self._cut(key)
        self._put(name, key, lies)
        self.plan_.cut[key] = lies
        self.plan_.reads[user, argument.name] = key
        return key

    def _cut(self, key: tuple[str, int]) -> dict[int, NewStorage]:
        """The memories of a recorded value; it shares those of other inputs that hold the same storage in the same
        state."""
        lies: dict[int, NewStorage] = {}
        for held in leaves(self.values.tree(*key)):
            if held.place is not None:
                memory = self._joined(held, held.place[0])
                memory.held.append(held)
                lies[held.place[0]] = memory
        for storage in self.values.memory[key[0]]:
            now = self.versions.get(storage, 0)
            lies.setdefault(storage, NewStorage(storage, now, now, given=True))
        return lies

    def _joined(self, held: Held, storage: int) -> NewStorage:
        now = self.versions.get(storage, 0)
        for memory in self.plan_.memories:
            if memory.storage == storage and memory.now == now and (memory.inputs or memory.held):
                covered = self.plan_.used.intersection(memory.inputs) or any(
                    other.first <= held.first and held.end <= other.end for other in memory.held
                )
                if memory.now == memory.birth or covered:
                    return memory
        memory = NewStorage(storage, now, now, given=True)
        self.plan_.memories.append(memory)
        return memory


__all__ = ["Atoms", "build", "depends_on_tangents", "output_nodes", "until"]


def build(
    gm: fx.GraphModule,
    atoms: Atoms,
    values: Values,
    keep: Collection[int],
    *,
    bypass: Collection[int] = (),
    returned: Collection[int] | None = None,
    joint: bool = False,
) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of the kept atoms and its inputs: original ones as the caller gave them, recorded ones for what was
    dropped.

    `gm` may be pruned (see `prune`). `bypass`: atoms replaced by an argument of the same kind. `returned`: positions of
    nodes in the original graph that are returned in place of the original outputs and sinks. `joint`: the graph is a
    training joint graph, which the partitioner reads by names: inputs that stand for values which depend on tangents
    are named tangents_..., and the outputs of the backward come last. Raises where FX finds the result malformed.
    """
    return _SubgraphBuilder(gm, atoms, values, keep, bypass, joint).build(returned)


def until(gm: fx.GraphModule, name: str) -> fx.GraphModule:
    """The graph up to a node, which it returns."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].name = node.name
        if node.name == name:
            graph.output((copies[node],))
            break
    return fx.GraphModule(gm, graph, class_name="GraphModule")


def depends_on_tangents(graph: fx.Graph) -> set[str]:
    """The names of all nodes of a joint graph that depend on a tangent: its backward."""
    dependent: set[str] = set()
    for node in graph.nodes:
        tangent = node.op == "placeholder" and "tangents" in node.name
        if tangent or any(argument.name in dependent for argument in node.all_input_nodes):
            dependent.add(node.name)
    return dependent


class _SubgraphBuilder:
    def __init__(
        self,
        gm: fx.GraphModule,
        atoms: Atoms,
        values: Values,
        keep: Collection[int],
        bypass: Collection[int],
        joint: bool,
    ) -> None:
        self.gm, self.atoms, self.values = gm, atoms, values
        self.order: list[fx.Node] = list(gm.graph.nodes)
        self.kept = {name for atom in keep for name in atoms.nodes[atom]}
        self.wanted = {name for atom in keep if (name := atoms.returns[atom]) is not None}
        self.kept |= (self.wanted & atoms.carried.numbers.keys()) - atoms.carried.stands.keys()
        self.kept |= atoms.carried.needed(self.kept, atoms.order)
        self.bypassed = {name for atom in bypass for name in atoms.nodes[atom]}
        self.by_name = {node.name: node for node in self.order}
        self.behind = depends_on_tangents(gm.graph) if joint else set()
        self.plan = CutPlan()
        self.loose: set[str] = set()
        self.graph = fx.Graph()
        self.env: dict[Handle, Any] = {}

    def build(self, returned: Collection[int] | None) -> tuple[fx.GraphModule, list[Any]]:
        """Builds the graph; see the module's `build`."""
        if returned is None:
            outputs = self.outputs()
        else:
            outputs = [self.by_name[self.atoms.order[position]] for position in sorted(returned)]
            self._drop_unread_items(outputs)
        outputs.sort(key=lambda node: node.name in self.behind)
        self.plan = self._cutting().plan(outputs)
        inputs = self._placeholders()
        fresh_attributes: dict[str, torch.Tensor] = {}
        for node in self.order:
            if node.op == "get_attr" and node.name in self.plan.used:
                self.env[node.name] = self._copy_node(node)
                if self.values.written(node.name):
                    fresh_attributes[str(node.target)] = attribute(self.gm, str(node.target))
            elif node.name in self.kept:
                self.env[node.name] = self._copy_node(node)
        self._output(outputs)
        module = fx.GraphModule(self.gm, self.graph, class_name="GraphModule")
        for target, value in fresh_attributes.items():
            _replace_attribute(module, target, clone_inputs([value])[0])
        for node in self.graph.nodes:
            if node.op == "call_module" and any(True for _ in module.get_submodule(str(node.target)).buffers()):
                path, _, name = str(node.target).rpartition(".")
                modules = module.get_submodule(path)._modules
                modules[name] = copy.deepcopy(modules[name])
        if self.loose:  # sizes that only a dropped node's data tells are numbers here
            for node in self.graph.nodes:
                for key in ("val", "example_value", "unbacked_bindings"):
                    node.meta.pop(key, None)
        self.graph.lint()
        module.meta = dict(self.gm.meta)
        return module, inputs

    def outputs(self) -> list[fx.Node]:
        """The original outputs among what is kept, then the kept tensors that nothing kept reads."""
        original = output_nodes(self.gm.graph)
        nodes = {node: None for node in original if node.name in self.kept or node.name in self.wanted}
        read: set[str] = set()
        for node in self.order:
            if node.name in self.kept:
                read |= {self._source(argument) for argument in node.all_input_nodes}
        effects = self._cutting().plan([]).effects if self.values.writes else set()
        for node in self.order:
            sink = node.name in self.kept and node.name not in read and node.name not in effects
            if sink and any(True for _ in leaves(self.values.tree(node.name))):
                nodes.setdefault(node)
        return list(nodes)

    def _cutting(self) -> Cutting:
        return Cutting(self.gm, self.atoms, self.values, self.kept, self._source)

    def _source(self, node: fx.Node) -> str:
        """The name of the node to read for this one: itself, a placeholder that is the same number, or the argument
        that a bypass leads to."""
        if node.name in self.atoms.carried.stands:
            return self.atoms.carried.stands[node.name]
        while node.name in self.bypassed:
            twins = self.atoms.twins[node.name]
            alive = [twin for twin in twins if twin in self.kept or twin in self.bypassed]
            node = self.by_name[(alive or twins)[0]]
        return node.name

    def _drop_unread_items(self, outputs: list[fx.Node]) -> None:
        returned = {node.name for node in outputs}
        for node in reversed(self.order):
            unread = node.name not in returned and not any(user.name in self.kept for user in node.users)
            if node.name in self.kept and node.target is operator.getitem and unread:
                self.kept.discard(node.name)

    def _placeholders(self) -> list[Any]:
        inputs: list[Any] = []
        computed = self.atoms.of_node.keys() | self.atoms.carried.names
        originals = [node for node in self.order if node.op == "placeholder" and node.name not in computed]
        others = [node for node in originals if node.name not in self.plan.used]
        added, self.loose = binding(others, self._values_given(originals))
        self.plan.used |= added
        there: list[str] = []
        for node, value in zip(originals, self.values.inputs, strict=True):
            if node.name in self.plan.used:
                self.env[node.name] = self._copy_node(node)
                inputs.append(value)
                there.append(node.name)
        inputs = load_inputs(inputs)
        if any(self.values.written(name) for name in there):
            inputs = clone_inputs(inputs)
        tensors = self._load(dict(zip(there, inputs, strict=True)))
        rank = {name: position for position, name in enumerate(self.atoms.order)}
        for name, version in sorted(self.plan.cut, key=lambda key: (rank[key[0]], key[1])):
            label = name if version == self.values.produced[name] else f"{name}_v{version}"
            if name in self.behind and "tangents" not in label:
                label = f"tangents_{label}"
            pair = (name, version)
            node = self.by_name[name]
            self.env[pair] = self._input(self.values.tree(*pair), label, node, fake_of(node), inputs, tensors)
        return inputs

    def _values_given(self, originals: list[fx.Node]) -> list[Any]:
        """The fake values of all inputs."""
        used = [node for node in originals if node.name in self.plan.used]
        return [fake_of(node) for node in (*used, *(self.by_name[name] for name, _ in self.plan.cut))]

    def _load(self, inputs: dict[str, Any]) -> dict[int, torch.Tensor]:
        """The recorded tensors that the plan names, by the id of their record; views of one memory share it."""
        tensors: dict[int, torch.Tensor] = {}
        for memory in self.plan.memories:
            owner = next((inputs[name] for name in memory.inputs if isinstance(inputs.get(name), torch.Tensor)), None)
            views = list({id(held): held for held in memory.held}.values())
            loaded = together(views) if owner is None else [onto(held, owner) for held in views]
            for held, tensor in zip(views, loaded, strict=True):
                # A leaf that requires grad cannot be written to in place.
                tensors[id(held)] = tensor.detach() if memory.written and held.requires_grad else tensor
            if memory.written and owner is None and len(views) == 1:
                [held] = views
                tensors[id(held)] = clone_inputs([tensors[id(held)]])[0]
        return tensors

    def _input(
        self, tree: Any, label: str, node: fx.Node, fake: Any, inputs: list[Any], tensors: dict[int, torch.Tensor]
    ) -> Any:
        if isinstance(tree, Held):
            placeholder = self.graph.placeholder(label)
            placeholder.meta = {key: node.meta[key] for key in KEPT_META if key in node.meta}
            if isinstance(fake, torch.Tensor):
                placeholder.meta |= {key: fake for key in ("val", "example_value") if key in node.meta}
            inputs.append(tensors[id(tree)] if id(tree) in tensors else tree.load())
            return placeholder
        if isinstance(tree, (list, tuple)):
            fakes = fake if isinstance(fake, (list, tuple)) and len(fake) == len(tree) else [None] * len(tree)
            parts = [self._input(part, f"{label}_{i}", node, fakes[i], inputs, tensors) for i, part in enumerate(tree)]
            return parts if isinstance(tree, list) else tuple(parts)
        return tree

    def _copy_node(self, node: fx.Node) -> fx.Node:
        def argument(other: fx.Node) -> Any:
            return self.env[self.plan.reads[node.name, other.name]]

        args, kwargs = map_arg(node.args, argument), map_arg(node.kwargs, argument)
        new = self.graph.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        new.meta = copy.copy(node.meta)
        return new

    def _output(self, outputs: list[fx.Node]) -> None:
        original = next(node for node in reversed(self.order) if node.op == "output")
        results = [self.env[self.plan.reads["output", node.name]] for node in outputs]
        new = self.graph.output(tuple(results))
        new.meta = {key: value for key, value in original.meta.items() if key not in POSITIONAL_META}
        if "user_visible_output_idxs" in original.meta:
            new.meta["user_visible_output_idxs"] = list(range(len(results)))


KEPT_META = ("stack_trace", "nn_module_stack", "seq_nr", "original_aten", "from_node")
POSITIONAL_META = ("user_visible_output_idxs", "original_output_strides", "desc", "val", "example_value", "tensor_meta")
"""Metadata of the output node that counts outputs: the partitioner drops those beyond the end of `desc`."""


def _replace_attribute(gm: torch.nn.Module, target: str, value: torch.Tensor) -> None:
    path, _, name = target.rpartition(".")
    owner = gm.get_submodule(path)
    if name in owner._parameters:
        value = torch.nn.Parameter(value.detach(), value.requires_grad)
    setattr(owner, name, value)


INPUT_INDICES = ("static_input_idxs", "bw_donated_idxs", "static_lifetime_input_indices", "mutated_input_indices")
OUTPUT_COUNTS = ("num_fwd_outputs", "num_orig_model_outputs", "num_mutated_inp_runtime_indices")


def candidate_spec(spec: ReplaySpec, before: Sequence[str], module: fx.GraphModule) -> ReplaySpec:
    """The spec of `module`, part of a graph whose spec is given and whose placeholders were named `before`: indices and
    counts in it are computed again."""
    now = {node.name: position for position, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    kwargs: dict[str, Any] = dict(spec.compile_kwargs)
    for name in INPUT_INDICES:
        if isinstance(kwargs.get(name), list):
            indices: list[int] = kwargs[name]
            named = [before[index] for index in indices if index < len(before)]
            kwargs[name] = [now[it] for it in named if it in now]
    if not spec.training_joint:
        return msgspec.structs.replace(spec, compile_kwargs=kwargs)
    behind = depends_on_tangents(module.graph)
    returned = [node.name for node in output_nodes(module.graph)]
    backward = sum(name in behind for name in returned)
    for name in OUTPUT_COUNTS:
        kwargs.pop(name, None)
    if backward:
        kwargs["num_fwd_outputs"] = kwargs["num_orig_model_outputs"] = len(returned) - backward
    # Where nothing is left of the backward the partitioner would have nothing to do.
    stage = "inference" if spec.stage == "joint" and not backward else spec.stage
    return msgspec.structs.replace(spec, stage=stage, compile_kwargs=kwargs)
