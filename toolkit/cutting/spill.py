# pyright: basic
"""Recorded values in files: one safetensors file per storage, and an index in JSON. No pickle.

A process that builds a small candidate loads only the tensors that the candidate needs.

For example:

    from graphdbg.toolkit.cutting.eager_values import record_values
    save_values(record_values(gm, inputs), Path("values"))
    load_values(Path("values")).tree("mul").load().shape
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...dumps.torchside.history import Base, bases_of, computed
from ..live.values import OPAQUE, Held, Values, load_fakes, read_storage, write_storage

INDEX = "values.json"


def spill_inputs(inputs: Sequence[Any], folder: Path) -> list[Any]:
    """The inputs with their tensors in files, one file per storage."""
    written: dict[int, Path] = {}
    held: list[Any] = []
    bases = bases_of(inputs)
    for place, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
            held.append(value)
            continue
        key = value.untyped_storage()._cdata
        if key not in written:
            written[key] = folder / f"input.{len(written)}.safetensors"
            write_storage(value.detach(), written[key])
        of_torch = {"parameter": isinstance(value, torch.nn.Parameter), "base": bases.get(place)}
        held.append(Held.of(value, path=written[key], **of_torch))
    return held


def load_inputs(inputs: Sequence[Any]) -> list[Any]:
    """Real inputs for spilled ones (others as they are); those of one storage share it, as views where they were."""
    storages: dict[Path, torch.Tensor] = {}
    loaded: list[Any] = []
    bases = {at: value.base for at, value in enumerate(inputs) if isinstance(value, Held) and value.base and value.path}
    for value in load_fakes(inputs):
        if isinstance(value, Held) and value.path is not None:
            if value.path not in storages:
                storages[value.path] = read_storage(value.path, value.device)
            value = value.on(storages[value.path])
        loaded.append(value)
    return computed(loaded, (), bases) if bases else loaded


def save_values(values: Values, folder: Path) -> None:
    """Writes the index of values whose tensors were spilled to `folder`, and the inputs with their storages."""
    data = {
        "inputs": [_plain(value) for value in spill_inputs(values.inputs, folder)],
        "trees": [[name, version, _plain(tree)] for (name, version), tree in values.trees.items()],
        "grads": values.grads,
        "random": values.random,
        "produced": values.produced,
        "read": [[user, name, version] for (user, name), version in values.read.items()],
        "memory": {name: sorted(storages) for name, storages in values.memory.items()},
        "writes": {name: sorted(storages) for name, storages in values.writes.items()},
    }
    (folder / INDEX).write_bytes(msgspec.json.encode(data))


def load_values(folder: Path, mode: Any = None) -> Values:
    """The values that `save_values` wrote; no tensor is read yet, and a tree is parsed when it is looked up.

    `mode`: the fake mode for values that are known by their form alone.
    """
    data = _INDEX.decode((folder / INDEX).read_bytes())
    return Values(
        [_live(value, folder, mode) for value in data.inputs],
        _Trees({(name, version): tree for name, version, tree in data.trees}, folder, mode),
        data.produced,
        {(user, name): version for user, name, version in data.read},
        dict[str, Collection[int]](data.memory),
        {name: frozenset(storages) for name, storages in data.writes.items()},
        data.grads,
        data.random,
    )


class _SpillIndex(msgspec.Struct, gc=False):
    inputs: list[Any]
    trees: list[tuple[str, int, msgspec.Raw]]
    produced: dict[str, int]
    read: list[tuple[str, str, int]]
    memory: dict[str, tuple[int, ...]]
    writes: dict[str, list[int]]
    grads: dict[str, tuple[bool, bool]]
    random: list[str]


_INDEX = msgspec.json.Decoder(_SpillIndex)


class _Trees(dict[tuple[str, int], Any]):
    """Value trees as they stand in the index; each is made live when it is first looked up."""

    def __init__(self, plain: dict[tuple[str, int], Any], folder: Path, mode: Any) -> None:
        super().__init__(plain)
        self._folder, self._mode = folder, mode
        self._live: set[tuple[str, int]] = set()

    def __getitem__(self, key: tuple[str, int]) -> Any:
        if key not in self._live:
            self[key] = _live(msgspec.json.decode(super().__getitem__(key)), self._folder, self._mode)
            self._live.add(key)
        return super().__getitem__(key)

    def get(self, key: tuple[str, int], default: Any = None) -> Any:
        """As `dict.get`, with the value made live."""
        try:
            return self[key]
        except KeyError:
            return default


_NAMED = (torch.dtype, torch.layout, torch.memory_format)


def _plain(value: Any) -> Any:
    if isinstance(value, Held):
        if value.path is None and value.fake is None:
            raise TypeError(f"a tensor of {value.dtype} with this layout cannot be kept in a file yet")
        kind = str(value.dtype), str(value.device), value.requires_grad
        file = value.path.name if value.path is not None else ""
        base = value.base and value.base[1:]
        return {"held": [value.shape, value.stride, value.offset, *kind, file, value.parameter, value.place, base]}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [_plain(part) for part in value]}
    if value is OPAQUE:
        return {"opaque": True}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": [_plain(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"an input of type {type(value).__name__} cannot be kept in a file")


def _live(value: Any, folder: Path, mode: Any = None) -> Any:
    if not isinstance(value, dict):
        return value
    [(tag, body)] = value.items()
    if tag == "held":
        shape, stride, offset, dtype, device, grad, file, parameter, place, base = body
        kind = getattr(torch, dtype.removeprefix("torch.")), torch.device(device), grad
        held = Held(tuple(shape), tuple(stride), offset, *kind, path=folder / file if file else None)
        held.parameter, held.place = parameter, None if place is None else tuple(place)
        held.fake = None if file else mode
        if base is not None:
            parts: list[Any] = [tuple(part) if isinstance(part, list) else part for part in base]
            held.base = Base(held.dtype, *parts)
        return held
    if tag in ("list", "tuple"):
        parts = [_live(part, folder, mode) for part in body]
        return parts if tag == "list" else tuple(parts)
    if tag == "opaque":
        return OPAQUE
    if tag == "slice":
        return slice(*(_live(part, folder, mode) for part in body))
    if tag == "complex":
        return complex(*body)
    return getattr(torch, body) if tag == "torch" else torch.device(body)
