# pyright: basic
"""The values of one eager run of a graph, kept so that any node can be cut out and replaced by what it computed.

Each value is cloned with its strides and overlap, at the point of use: where a node is read again after its memory was
written, both versions are kept. Python numbers, sizes and the like are kept as they are. Tensors are held in memory, or in files of
a folder when one is given (`spill`), so that a process that needs a few reads only those.

The graph, its attributes and the inputs are not changed: the run works on copies.

>>> values = record_values(gm, inputs)
>>> values.tensor_at("sin", 0).load()
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

OPAQUE = object()
"""Stands for a value that cannot be given to a graph as an input (a context manager, a generator)."""

PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, slice)


@dataclass
class Held:
    """One recorded tensor: what it looked like, and where its bytes are (in memory, or in a file)."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    tensor: torch.Tensor | None = None
    path: Path | None = None

    def load(self) -> torch.Tensor:
        """The tensor: a leaf of its own, with the recorded shape, strides and alignment."""
        if self.tensor is not None:
            return self.tensor
        from safetensors.torch import load_file

        assert self.path is not None
        flat = load_file(self.path)["value"].view(self.dtype).to(self.device)
        return flat.as_strided(self.shape, self.stride, self.offset).requires_grad_(self.requires_grad)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be equal for one tensor to stand in for another."""
        return self.shape, self.stride, self.dtype, self.device


@dataclass
class Values:
    """Everything that one run computed. Trees are nested lists and tuples of Held and plain values, or OPAQUE."""

    inputs: list[Any]
    trees: dict[tuple[str, int], Any] = field(default_factory=dict)
    """Value of (node name, version). Placeholders and attributes appear from the version after a write on."""
    produced: dict[str, int] = field(default_factory=dict)
    """The version of a node's memory when the node ran."""
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    """(user, node) -> the version the user saw."""
    memory: dict[str, frozenset[int]] = field(default_factory=dict)
    """The storages that a node's value lies in, numbered."""
    writes: dict[str, frozenset[int]] = field(default_factory=dict)
    """The storages that a node wrote to."""

    def tree(self, name: str, version: int | None = None) -> Any:
        """The recorded value of a node, as it was when the node ran, or at a later version."""
        return self.trees[name, self.produced[name] if version is None else version]

    def written(self, name: str) -> bool:
        """Whether some node of the graph writes to this node's memory."""
        touched = self.memory.get(name, frozenset())
        return any(touched & storages for storages in self.writes.values())


def leaves(tree: Any) -> Iterator[Held]:
    """The tensors of a value tree."""
    if isinstance(tree, Held):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for part in tree:
            yield from leaves(part)


def opaque(tree: Any) -> bool:
    """Whether any part of the value cannot be an input or a constant of a graph."""
    if isinstance(tree, (list, tuple)):
        return any(opaque(part) for part in tree)
    return tree is OPAQUE


def span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last that a strided tensor touches."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def input_bytes(inputs: Sequence[Any]) -> int:
    """Bytes that must be stored to give these inputs again: the spans of the tensors, numbers not counted."""
    total = 0
    for value in inputs:
        if isinstance(value, torch.Tensor):
            plain = value.layout is torch.strided
            total += (span(value) if plain else value.numel()) * value.element_size()
    return total


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """A detached clone with the same strides, overlap and 16-byte alignment, on memory of its own and no larger than needed."""
    bare = tensor.detach()
    if bare.layout is not torch.strided or bare.is_quantized or bare.is_conj() or bare.is_neg():
        return bare.clone().requires_grad_(tensor.requires_grad)
    length = span(bare)
    lead = (bare.storage_offset() * bare.element_size() % 16) // bare.element_size()
    flat = torch.empty(lead + length, dtype=bare.dtype, device=bare.device)
    if length:
        flat[lead:].copy_(bare.as_strided((length,), (1,), bare.storage_offset()))
    return flat.as_strided(bare.shape, bare.stride(), lead).requires_grad_(tensor.requires_grad)


def copies(values: Sequence[Any]) -> list[Any]:
    """Fresh copies of tensors (anything else as it is): whole storages are copied, so aliasing among them stays."""
    made: dict[int, torch.Tensor] = {}
    return [_copy(value, made) if isinstance(value, torch.Tensor) else value for value in values]


def _copy(tensor: torch.Tensor, made: dict[int, torch.Tensor]) -> torch.Tensor:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    key = storage._cdata
    if key not in made:
        made[key] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).clone()
    fresh = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    fresh = fresh.set_(made[key].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return fresh.requires_grad_(tensor.requires_grad)


def record_values(gm: fx.GraphModule, inputs: Sequence[Any], spill: Path | None = None) -> Values:
    """Runs the graph once on copies of the inputs and keeps what every node computed. The caller's random state is kept."""
    cuda = sorted({value.device.index for value in inputs if isinstance(value, torch.Tensor) and value.is_cuda})
    with torch.random.fork_rng(devices=cuda):
        recorder = _Recorder(gm, list(inputs), spill)
        recorder.run(*copies(inputs), enable_io_processing=False)
    return recorder.values


class _Recorder(fx.Interpreter):
    """Interprets node by node; notices writes by schema and by tensor version counters."""

    def __init__(self, gm: fx.GraphModule, inputs: list[Any], spill: Path | None) -> None:
        super().__init__(gm)
        self.extra_traceback = False
        self.values = Values(inputs)
        self._spill = spill
        self._storages: dict[int, int] = {}
        self._alive: list[Any] = []
        self._versions: dict[int, int] = {}
        self._attributes: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        before: dict[fx.Node, int] = {}
        for node in n.all_input_nodes:
            self._note_read(n, node)
            before[node] = sum(_version(tensor) for tensor in _tensors(self.env[node]))
        result = super().run_node(n)
        written: set[int] = set()
        declared = set(_written_arguments(n))
        for node in n.all_input_nodes:
            value = self.env.get(node)
            if node in declared or sum(_version(tensor) for tensor in _tensors(value)) != before[node]:
                written |= self._memory(value)
        if written:
            self.values.writes[n.name] = frozenset(written)
            for storage in written:
                self._versions[storage] = self._versions.get(storage, 0) + 1
        if n.op != "output":
            self.values.memory[n.name] = frozenset(self._memory(result))
            version = self._version_of(n.name)
            self.values.produced[n.name] = version
            if n.op not in ("placeholder", "get_attr"):
                self.values.trees[n.name, version] = self._hold(result, f"{n.name}.{version}")
        return result

    def fetch_attr(self, target: str) -> Any:
        if target not in self._attributes:
            value = super().fetch_attr(target)
            self._attributes[target] = copies([value])[0] if isinstance(value, torch.Tensor) else value
        return self._attributes[target]

    def call_module(self, target: str, args: Any, kwargs: Any) -> Any:
        submodule = super().fetch_attr(target)
        return copy.deepcopy(submodule)(*args, **kwargs)

    def _note_read(self, user: fx.Node, node: fx.Node) -> None:
        version = self._version_of(node.name)
        self.values.read[user.name, node.name] = version
        if version != self.values.produced[node.name] and (node.name, version) not in self.values.trees:
            self.values.trees[node.name, version] = self._hold(self.env[node], f"{node.name}.{version}")

    def _version_of(self, name: str) -> int:
        return sum(self._versions.get(storage, 0) for storage in self.values.memory[name])

    def _memory(self, value: Any) -> set[int]:
        found: set[int] = set()
        for tensor in _tensors(value):
            # A weak reference keeps the storage's address from being used again, but not its bytes.
            reference = StorageWeakRef(tensor.untyped_storage()) if tensor.layout is torch.strided else tensor
            key = reference.cdata if isinstance(reference, StorageWeakRef) else id(tensor)
            self._alive.append(reference)
            if key not in self._storages:
                self._storages[key] = len(self._storages)
            found.add(self._storages[key])
        return found

    def _hold(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._hold_tensor(value, name)
        if isinstance(value, (list, tuple)):
            parts = [self._hold(part, f"{name}.{i}") for i, part in enumerate(value)]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value.node.hint
        return value if isinstance(value, PLAIN) else OPAQUE

    def _hold_tensor(self, value: torch.Tensor, name: str) -> Held:
        kept = compact(value)
        plain = kept.layout is torch.strided
        held = Held(
            tuple(kept.shape), kept.stride() if plain else (), kept.storage_offset() if plain else 0,
            kept.dtype, kept.device, kept.requires_grad, kept,
        )  # fmt: skip
        if self._spill is not None and plain and not kept.is_quantized:
            held.path = self._spill / f"{name}.safetensors"
            held.tensor = None
            _write(kept.detach(), held.path)
        return held


def _write(tensor: torch.Tensor, path: Path) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    save_file({"value": storage.cpu()}, path)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _written_arguments(node: fx.Node) -> Iterator[fx.Node]:
    """The arguments that an operator's own schema declares as written to."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not getattr(schema, "is_mutable", False):
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            for part in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(part, fx.Node):
                    yield part
