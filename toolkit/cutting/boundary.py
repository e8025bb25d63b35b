# pyright: basic
"""Where a subset of a graph is cut: for every argument of a kept node what it reads in the new graph, so that it is bit
for bit what it read in the whole one.

Follows each piece of memory through the kept writes: an argument is taken from the kept node only while that node's
memory holds what the reader saw; else it is an input with the value recorded for that reader. Inputs that were views of
one memory at one time belong to one `Memory`, and are loaded as views of one storage. Knows names, no tensors'
contents.

For example:

    plan = Cutting(gm, atoms, values, kept, source).plan(outputs)
    plan.reads["cos", "sin"]  # -> ('sin', 1)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import fx

from ..live.values import Held, Values, leaves
from .eager_values import written_arguments

if TYPE_CHECKING:
    from .atoms import Atoms

Handle = str | tuple[str, int]
"""What stands for a node in the new graph: its copy (name), or an input with its value at a version."""


@dataclass(eq=False)
class Memory:
    """One storage of the new graph, and the state of the original one that it holds as the graph runs."""

    storage: int
    birth: int
    now: int
    given: bool
    """Whether it comes in as an input, an original or a recorded one."""
    inputs: list[str] = field(default_factory=list)
    """Original placeholders that lie in it."""
    held: list[Held] = field(default_factory=list)
    """Recorded values that lie in it."""
    written: bool = False
    last_read: int = -1


@dataclass
class CutPlan:
    """What is used: original placeholders and attributes, recorded values, and who reads what."""

    used: set[str] = field(default_factory=set)
    cut: dict[tuple[str, int], dict[int, Memory]] = field(default_factory=dict)
    reads: dict[tuple[str, str], Handle] = field(default_factory=dict)
    effects: set[str] = field(default_factory=set)
    """Kept writes that are seen without being returned: in an input, or by a later reader."""
    memories: list[Memory] = field(default_factory=list)


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
        self.lies: dict[Handle, dict[int, Memory]] = {}
        self.writers: list[tuple[str, int, Memory]] = []

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
        shared: dict[int, Memory] = {}
        for name, node in self.by_name.items():
            if node.op not in ("placeholder", "get_attr") or name in self.computed or name not in self.values.memory:
                continue
            lies: dict[int, Memory] = {}
            for storage in self.values.memory[name]:
                if storage not in shared:
                    shared[storage] = Memory(storage, 0, 0, given=True)
                    self.plan_.memories.append(shared[storage])
                lies[storage] = shared[storage]
                if node.op == "placeholder":
                    shared[storage].inputs.append(name)
            self._put(name, name, lies)

    def _put(self, name: str, handle: Handle, lies: dict[int, Memory]) -> None:
        self.there.setdefault(name, []).append(handle)
        self.lies[handle] = lies

    def _run(self, node: fx.Node) -> None:
        handles = {argument: self._find(node.name, argument) for argument in node.all_input_nodes}
        place = self.rank[node.name]
        lies: dict[int, Memory] = {}
        for handle in handles.values():
            for storage, memory in self.lies[handle].items():
                memory.last_read = place
                lies.setdefault(storage, memory)
        writes = self.values.writes.get(node.name, frozenset())
        declared = [handles[argument] for argument in written_arguments(node) if argument in handles]
        for storage in writes:
            memory = next(
                (self.lies[handle][storage] for handle in declared if storage in self.lies[handle]), lies.get(storage)
            )
            if memory is not None:
                lies[storage] = memory
                memory.now += 1
                memory.written = True
                self.writers.append((node.name, place, memory))
        own: dict[int, Memory] = {}
        for storage in self.values.memory.get(node.name, ()):
            after = self.versions.get(storage, 0) + (storage in writes)
            own[storage] = lies.get(storage) or Memory(storage, after, after, given=False)
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

    def _cut(self, key: tuple[str, int]) -> dict[int, Memory]:
        """The memory that a recorded value comes to lie in: that of other inputs where it was the same."""
        lies: dict[int, Memory] = {}
        for held in leaves(self.values.tree(*key)):
            if held.place is not None:
                memory = self._joined(held, held.place[0])
                memory.held.append(held)
                lies[held.place[0]] = memory
        for storage in self.values.memory[key[0]]:
            now = self.versions.get(storage, 0)
            lies.setdefault(storage, Memory(storage, now, now, given=True))
        return lies

    def _joined(self, held: Held, storage: int) -> Memory:
        now = self.versions.get(storage, 0)
        for memory in self.plan_.memories:
            if memory.storage == storage and memory.now == now and (memory.inputs or memory.held):
                covered = self.plan_.used.intersection(memory.inputs) or any(
                    other.first <= held.first and held.end <= other.end for other in memory.held
                )
                if memory.now == memory.birth or covered:
                    return memory
        memory = Memory(storage, now, now, given=True)
        self.plan_.memories.append(memory)
        return memory
