# pyright: basic
"""Tensors that came out of other operations: what autograd knows of an input that requires grad and is no leaf.

A graph may write to such an input, which it may not to a leaf, and views of one such tensor see each other's gradients. The
memory stays where it is, but for tensors that hold others. Must not copy what is large for longer than a moment, and must not
touch tensors at other places.

>>> x, row = computed([x, row], [0, 1])     # leaves that require grad and share memory -> views of one result
>>> leaf_of(row).grad_fn is None
True
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from .values import storage_key
from .wrappers import is_wrapper


def computed(values: Sequence[Any], places: Collection[int]) -> list[Any]:
    """The same values, those at `places` as results of operations on a leaf of their own. Where values share memory, they are
    views of one result; of a leaf that requires grad and lies in the same memory, views of that."""
    roots: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    groups: dict[tuple[int, torch.dtype], list[int]] = {}
    made = list(values)
    for place, value in enumerate(values):
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        if place not in places:
            if _is_plain(value):
                roots.setdefault(_key(value), value)
        elif _is_plain(value):
            groups.setdefault(_key(value), []).append(place)
        else:
            made[place] = with_history(value)
    for key, members in groups.items():
        whole = next((place for place in members if _is_all(values[place])), None) if key not in roots else None
        if key not in roots:
            roots[key] = with_history(_flat(values[members[0]]) if whole is None else values[whole])
        with torch.enable_grad():
            for place in members:
                value, root = values[place], roots[key]
                made[place] = root if place == whole else root.as_strided(value.shape, value.stride(), value.storage_offset())
    return made


def with_history(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in its own memory, as what an operation returned; it may be a fake one."""
    leaf = tensor.detach().requires_grad_()
    with torch.enable_grad():
        made = leaf.clone()
    if is_wrapper(tensor):
        return made  # its memory is that of what it holds
    made.data = tensor.detach()
    return made


def leaf_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor whose gradient stands for this one's: itself, or the first leaf that it came from; None where none is known."""
    if tensor.is_leaf:
        return tensor
    node: Any = tensor.grad_fn
    while node is not None and not hasattr(node, "variable"):
        node = next((one for one, _ in node.next_functions if one is not None), None)
    return None if node is None else node.variable


def leaves_of(values: Sequence[Any]) -> dict[int, torch.Tensor]:
    """Place -> the leaf that gets the gradient, for the values that require grad; a leaf of several stands at the first."""
    found: dict[int, torch.Tensor] = {}
    known: set[int] = set()
    for place, value in enumerate(values):
        leaf = leaf_of(value) if isinstance(value, torch.Tensor) and value.requires_grad else None
        if leaf is not None and (value.is_leaf or id(leaf) not in known):
            known.add(id(leaf))
            found[place] = leaf
    return found


def _flat(value: torch.Tensor) -> torch.Tensor:
    storage = value.untyped_storage()
    count = storage.nbytes() // value.element_size()
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(storage, 0, (count,), (1,))


def _is_all(value: torch.Tensor) -> bool:
    """Whether it is all of its storage."""
    return value.numel() * value.element_size() == value.untyped_storage().nbytes() and 0 not in value.stride()


def _is_plain(value: torch.Tensor) -> bool:
    """Whether its storage and its strides say all of it."""
    plain = value.layout is torch.strided and type(value) in (torch.Tensor, torch.nn.Parameter)
    return plain and not (value.is_quantized or value.is_conj() or value.is_neg())


def _key(value: torch.Tensor) -> tuple[int, torch.dtype]:
    return storage_key(value), value.dtype
