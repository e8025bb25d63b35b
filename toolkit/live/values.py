# pyright: basic
"""The values of one eager run of a graph, kept so that any node can be cut out and replaced by its recorded value.

A value is a tree of recorded tensors and plain Python values. Where a node is read again after its memory was written,
the values of both versions are there. `eager_values` records, `spill` keeps the tensors in files.

For example: `from graphdbg.toolkit.cutting.eager_values import record_values`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...dumps.tensors import file_header
from ...dumps.torchside.history import Base
from ...dumps.torchside.values import storage_bytes

OPAQUE = object()
"""Marks a value that cannot be an input of a graph (a context manager, a generator)."""

_OF_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format)
PLAIN = (int, float, bool, complex, str, type(None), slice, *_OF_TORCH)


@dataclass
class Held:
    """One recorded tensor: its layout, and where its bytes are (in memory, or in a file).

    Inputs of one storage name one file, so that they can be loaded aliased (see `load_inputs`).
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    tensor: torch.Tensor | None = None
    path: Path | None = None
    parameter: bool = False
    place: tuple[int, int, int] | None = None
    """Its place in the run: number of the storage, version of that, first byte. None where views are not tracked."""
    fake: Any = None
    """The fake mode to create it in, for a tensor known by its shape and dtype only."""
    base: Base | None = None
    """The base of which autograd takes it for a view."""

    @classmethod
    def of(cls, value: torch.Tensor, **more: Any) -> Held:
        """Describes a strided tensor, or a sparse one, which has neither strides nor an offset."""
        plain = value.layout is torch.strided
        where = (value.stride(), int(value.storage_offset())) if plain else ((), 0)
        return cls(tuple(value.shape), *where, value.dtype, value.device, value.requires_grad, **more)

    @property
    def first(self) -> int:
        """The first byte of its storage that it touches."""
        return 0 if self.place is None else self.place[2]

    @property
    def end(self) -> int:
        """The byte after the last one that it touches."""
        return self.first + reach(self.shape, self.stride) * self.dtype.itemsize

    def load(self) -> torch.Tensor:
        """Loads the tensor as a leaf of its own, with the recorded shape, strides and alignment."""
        if self.tensor is not None:
            return self.tensor
        if self.fake is not None:
            with self.fake:
                size = self.offset + reach(self.shape, self.stride)
                return self.on(torch.empty(size, dtype=self.dtype, device=self.device))
        assert self.path is not None
        return self.on(read_storage(self.path, self.device))

    def on(self, storage: torch.Tensor) -> torch.Tensor:
        """The tensor as a view of a storage given as flat bytes."""
        flat = storage.view(self.dtype).as_strided(self.shape, self.stride, self.offset).detach()
        return (
            torch.nn.Parameter(flat, self.requires_grad) if self.parameter else flat.requires_grad_(self.requires_grad)
        )

    @property
    def kind(self) -> tuple[Any, ...]:
        """What must be equal for one tensor to replace another."""
        return self.shape, self.stride, self.dtype, self.device


@dataclass
class Values:
    """All values of one run. Trees are nested lists and tuples of Held and plain values, or OPAQUE."""

    inputs: list[Any]
    trees: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(node name, version of its memory) -> value. Placeholders and attributes appear only with versions after a
    write."""
    produced: dict[str, int] = field(default_factory=dict)
    """Node -> the version of its memory right after it ran."""
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    """(user, node) -> the version that the user read."""
    memory: dict[str, Collection[int]] = field(default_factory=dict)
    """Node -> numbers of the storages that hold its value."""
    writes: dict[str, frozenset[int]] = field(default_factory=dict)
    """Node -> numbers of the storages that it wrote to."""
    grads: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    """Node that switches grad mode -> the mode before and after."""
    random: list[str] = field(default_factory=list)
    """Nodes that draw random numbers."""
    raised: str = ""
    """The node at which the run raised, whose own value is zeros of the traced shape; "" where the run succeeded."""

    def tree(self, name: str, version: int | None = None) -> Any:
        """The recorded value of a node right after it ran, or at a later version."""
        return self.trees[name, self.produced[name] if version is None else version]

    def written(self, name: str) -> bool:
        """Whether some node of the graph writes to this node's memory."""
        touched = self.memory.get(name, ())
        return any(not storages.isdisjoint(touched) for storages in self.writes.values())


def read_storage(path: Path, device: torch.device) -> torch.Tensor:
    """The bytes of one spilled storage."""
    from safetensors.torch import load_file

    return load_file(path)["data"].to(device)


def write_storage(tensor: torch.Tensor, path: Path) -> None:
    """Writes the storage of a tensor; `safetensors.torch.save_file` would need numpy."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = storage_bytes(tensor.untyped_storage())
    with path.open("wb") as file:
        file.writelines((file_header({"data": len(data)}), data))


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
    """Number of elements from the first to the last that a strided tensor touches."""
    return reach(tensor.shape, tensor.stride())


def reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Number of elements from the first to the last that a shape with these strides touches."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def input_bytes(inputs: Sequence[Any]) -> int:
    """Bytes needed to store these inputs: the spans of the tensors, shared memory counted once, numbers not counted."""
    total = 0
    shared: dict[int, tuple[int, int]] = {}
    for value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        strided = value.layout is torch.strided
        size = (span(value) if strided else value.numel()) * value.element_size()
        if not strided or not (place := _storage(value)):
            total += size
            continue
        start = int(value.storage_offset()) * value.element_size()
        first, last = shared.get(place, (start, start + size))
        shared[place] = min(first, start), max(last, start + size)
    return total + sum(last - first for first, last in shared.values())


def _storage(value: torch.Tensor) -> int:
    """The address of a tensor's memory; 0 where it has none of its own, such as a fake tensor."""
    try:
        return value.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def shares_memory(value: Any, other: Any) -> bool:
    """Whether two values are strided tensors on the same non-empty storage."""
    if not isinstance(value, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if value.layout is not torch.strided or other.layout is not torch.strided:
        return False
    where = value.untyped_storage().data_ptr()
    return where != 0 and where == other.untyped_storage().data_ptr()


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """A detached clone with the same strides and overlap, on memory of its own; a large offset is replaced by a small
    one."""
    bare = tensor.detach()
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and bare.layout is torch.strided
    if not plain or bare.is_quantized or bare.is_conj() or bare.is_neg():
        return bare.clone().requires_grad_(tensor.requires_grad)
    length = span(bare)
    lead = near(int(bare.storage_offset()) * bare.element_size()) // bare.element_size()
    flat = torch.zeros(lead + length, dtype=bare.dtype, device=bare.device)
    if length:
        flat[lead:].copy_(bare.as_strided((length,), (1,), bare.storage_offset()))
    return flat.as_strided(bare.shape, bare.stride(), lead).detach().requires_grad_(tensor.requires_grad)


FARTHEST = 4096


def near(offset: int) -> int:
    """The offset in bytes to keep: unchanged up to FARTHEST, else a nonzero one with the same alignment."""
    return offset if offset <= FARTHEST else offset % FARTHEST or FARTHEST


GAP = 65536
"""Bytes between two views from which on they are loaded as separate storages."""


def together(views: Sequence[Held]) -> list[torch.Tensor]:
    """Rebuilds recorded tensors that were views of one storage as views of one storage again, in the given order. Each
    is a leaf.

    Each was kept alone, with the bytes that it spans; those of one version agree where they overlap. Later versions lie
    inside and bring no bytes: the graph itself writes them. Views far from each other get storages of their own:
    nothing in between was kept.
    """
    loaded: dict[int, torch.Tensor] = {}
    version = min((held.place[1] for held in views if held.place is not None), default=0)
    for cluster in _clusters(views):
        if len(cluster) == 1:
            loaded[cluster[0]] = views[cluster[0]].load()
            continue
        first = views[cluster[0]].first
        lead = near(first)
        end = max(views[number].end for number in cluster)
        flat = torch.zeros(-(-(lead + end - first) // 16) * 16, dtype=torch.uint8, device=views[cluster[0]].device)
        for number in cluster:
            held, at = views[number], lead + views[number].first - first
            if held.place is None or held.place[1] == version:
                flat[at : at + held.end - held.first] = _bytes(held)
            loaded[number] = _view(held, flat, at)
    return [loaded[number] for number in range(len(views))]


def onto(held: Held, owner: torch.Tensor) -> torch.Tensor:
    """Rebuilds a recorded value as a view of an input that had the same storage. A leaf."""
    flat = torch.empty(0, dtype=torch.uint8, device=owner.device).set_(owner.detach().untyped_storage())
    return _view(held, flat, held.first)


def load_fakes(inputs: Sequence[Any]) -> list[Any]:
    """Fake inputs for recorded shapes and dtypes (other values unchanged); those of one storage share it."""
    ends: dict[int, int] = {}
    for held in inputs:
        if isinstance(held, Held) and held.fake is not None and held.place is not None:
            size = held.dtype.itemsize
            ends[held.place[0]] = max(ends.get(held.place[0], 0), -(-held.end // size) * size)
    storages: dict[int, torch.Tensor] = {}
    loaded: list[Any] = []
    for value in inputs:
        if isinstance(value, Held) and value.fake is not None and value.place is not None:
            number = value.place[0]
            with value.fake:
                if number not in storages:
                    storages[number] = torch.empty(ends[number], dtype=torch.uint8, device=value.device)
                value = value.on(storages[number])
        loaded.append(value)
    return loaded


def _view(held: Held, flat: torch.Tensor, at: int) -> torch.Tensor:
    out = torch.empty(0, dtype=held.dtype, device=flat.device)
    out.set_(flat.untyped_storage(), at // held.dtype.itemsize, held.shape, held.stride)
    return out.requires_grad_(held.requires_grad)


def _bytes(held: Held) -> torch.Tensor:
    tensor = held.load().detach()
    start = int(tensor.storage_offset()) * tensor.element_size()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
        tensor.untyped_storage(), start, (held.end - held.first,), (1,)
    )


def _clusters(views: Sequence[Held]) -> list[list[int]]:
    """Groups views into those loaded as one storage: lists of indices, in order of their first bytes."""
    order = sorted(range(len(views)), key=lambda number: views[number].first)
    clusters: list[list[int]] = []
    end = 0
    for number in order:
        if clusters and views[number].first - end <= GAP:
            clusters[-1].append(number)
            end = max(end, views[number].end)
        else:
            clusters.append([number])
            end = views[number].end
    return clusters
