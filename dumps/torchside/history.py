"""Autograd history of inputs: rebuilds inputs that are views, or that require grad and are no leaves.

A graph may write in place to a non-leaf input, but not to a leaf, and views of one tensor see each other's gradients.
For inputs that share memory AOTAutograd takes their base as the input, so its shape is part of the program. Results
keep their memory, except for wrapper tensors. Large tensors are copied only briefly, and tensors at other places are
not touched.

>>> base = torch.ones(2, 3, requires_grad=True)
>>> x, row = computed([base, base[0]], [0, 1])     # leaves that share memory become views of one result
>>> x.shape, row.shape
(torch.Size([2, 3]), torch.Size([3]))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..hints import extent
from . import torch_private as t
from .values import storage_key, viewed
from .wrappers import is_wrapper


class Base(NamedTuple):
    """The base that an input is a view of. Bases that are equal in all fields, and lie in the same memory, are one
    tensor."""

    dtype: torch.dtype
    shape: Sequence[Any]
    stride: Sequence[Any]
    offset: Any
    requires_grad: bool
    leaf: bool

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Base:
        """Describes a tensor as a base."""
        form = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
        return cls(tensor.dtype, *form, tensor.requires_grad, tensor.is_leaf)


def bases_of(values: Sequence[Any]) -> dict[int, Base]:
    """Place -> the base that autograd knows the tensor there to be a view of; tensors that are no views are left
    out."""
    bases: dict[int, Base] = {}
    for place, value in enumerate(values):
        of_torch = type(value) is torch.Tensor or isinstance(value, t.FakeTensor)
        if of_torch and (base := viewed(value)) is not None:
            bases[place] = Base.of(base)
    return bases


def computed(values: Sequence[Any], places: Collection[int], bases: Mapping[int, Base] | None = None) -> list[Any]:
    """Returns the values: those at `places` as results of an operation on a new leaf, those in `bases` as views of that
    base, or of the value that is that base.

    Without a known base, values at `places` that share memory become views of one result; or views of a leaf that
    requires grad and lies in the same memory.
    """
    seen = {place: base for place, base in (bases or {}).items() if _can_be_view(values[place], base)}
    results = list(values)
    roots: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    groups: dict[tuple[int, torch.dtype], list[int]] = {}
    known = {_key(values[place]) for place in seen}
    for place, value in enumerate(values):
        if place in seen or not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        if place not in places:
            if _is_plain(value):
                roots.setdefault(_key(value), value)
        elif _is_plain(value) and _key(value) not in known:
            groups.setdefault(_key(value), []).append(place)
        else:
            results[place] = with_history(value)
    for key, members in groups.items():
        whole = next((place for place in members if _is_all(values[place])), None) if key not in roots else None
        if key not in roots:
            roots[key] = with_history(_flat(values[members[0]]) if whole is None else values[whole])
        with torch.enable_grad():
            for place in members:
                value, root = values[place], roots[key]
                view = (value.shape, value.stride(), value.storage_offset())
                results[place] = root if place == whole else root.as_strided(*view)
    whole_ones = [tensor for at, tensor in enumerate(results) if at not in seen and _is_strided(tensor)]
    wholes = {_place(tensor, Base.of(tensor)): tensor for tensor in whole_ones}
    for place, base in seen.items():
        key = _place(values[place], base)
        if key not in wholes:
            wholes[key] = _base_in(values[place], base)
        results[place] = _view_of(wholes[key], values[place])
    return results


def _base_in(value: torch.Tensor, base: Base) -> torch.Tensor:
    plain = value.detach()
    plain = plain.conj() if plain.is_conj() else plain  # these bits belong to the view; applied again, they are off
    plain = t.neg_view(plain) if plain.is_neg() else plain
    base_tensor = plain.as_strided(base.shape, base.stride, base.offset).detach()
    if not base.requires_grad:
        return base_tensor
    return base_tensor.requires_grad_() if base.leaf else with_history(base_tensor)


def _view_of(base: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    with torch.set_grad_enabled(value.requires_grad and base.requires_grad):
        viewed_tensor = base.as_strided(value.shape, value.stride(), value.storage_offset())
        viewed_tensor = torch.conj(viewed_tensor) if value.is_conj() else viewed_tensor
        viewed_tensor = t.neg_view(viewed_tensor) if value.is_neg() else viewed_tensor
    return viewed_tensor.requires_grad_(value.requires_grad) if viewed_tensor.is_leaf else viewed_tensor


def _can_be_view(value: Any, base: Base) -> bool:
    """Whether a value that is alone in its memory can become a view of `base`: same dtype, and the storage is large
    enough."""
    if not _is_strided(value) or value.dtype != base.dtype:
        return False
    needed = extent(base.shape, base.stride, base.offset) * value.element_size()
    return bool(needed <= value.untyped_storage().nbytes())


def with_history(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in its own memory, as the result of an operation; it may be fake."""
    leaf = tensor.detach().requires_grad_()
    with torch.enable_grad():
        tensor_with_history = leaf.clone()
    if is_wrapper(tensor):
        return tensor_with_history  # its memory is that of its inner tensors
    tensor_with_history.data = tensor.detach()
    return tensor_with_history


def leaf_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that gets this tensor's gradient: itself if it is a leaf, else the first leaf in its history; None
    where none is known."""
    if tensor.is_leaf:
        return tensor
    node: Any = tensor.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((next_node for next_node, _ in node.next_functions if next_node is not None), None)
    return None if node is None else node.variable


def leaves_of(values: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Place -> the leaf that gets the gradient, for the values that require grad; a leaf of several non-leaves is
    listed for the first only."""
    leaves: dict[int, torch.Tensor] = {}
    known: set[int] = set()
    for place, value in enumerate(values):
        leaf = leaf_of(value) if isinstance(value, torch.Tensor) and value.requires_grad else None
        if leaf is not None and (value.is_leaf or id(leaf) not in known):
            known.add(id(leaf))
            leaves[place] = leaf
    return leaves


def _flat(value: torch.Tensor) -> torch.Tensor:
    storage = value.untyped_storage()
    count = storage.nbytes() // value.element_size()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, 0, (count,), (1,))


def _is_all(value: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage."""
    return value.numel() * value.element_size() == value.untyped_storage().nbytes() and 0 not in value.stride()


def _is_strided(value: Any) -> bool:
    """Whether a value is a tensor, maybe fake, that is completely described by its storage, strides and lazy bits."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) or isinstance(value, t.FakeTensor)
    return plain and value.layout is torch.strided and not value.is_quantized


def _is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor is strided as in `_is_strided`, real, and without lazy bits."""
    return _is_strided(value) and not (isinstance(value, t.FakeTensor) or value.is_conj() or value.is_neg())


def _place(value: torch.Tensor, base: Base) -> tuple[Any, ...]:
    """A key that is equal for two views of one tensor; sizes may be symbols."""
    return storage_key(value), *map(str, base)


def _key(value: torch.Tensor) -> tuple[int, torch.dtype]:
    return storage_key(value), value.dtype
