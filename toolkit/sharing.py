# pyright: basic
"""Recorded values that were views of one storage, loaded as views of one storage again.

Each was kept alone, with the bytes that it spans; those of one version agree where they overlap. Later versions lie inside and
bring no bytes: the graph itself writes them. Views far from each other get storages of their own: nothing in between was kept.

>>> rows = together([values.tree("select"), values.tree("select_1")])
>>> rows[0].untyped_storage().data_ptr() == rows[1].untyped_storage().data_ptr()
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .values import Held, near

GAP = 65536
"""Bytes between two views from which on they are loaded apart."""


def together(views: Sequence[Held]) -> list[torch.Tensor]:
    """The tensors, in the order given. Each is a leaf."""
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
    """A recorded value as a view of the storage that it lay in, which came in as an input. A leaf."""
    flat = torch.empty(0, dtype=torch.uint8, device=owner.device).set_(owner.detach().untyped_storage())
    return _view(held, flat, held.first)


def load_fakes(inputs: Sequence[Any]) -> list[Any]:
    """Fake inputs for recorded forms (others as they are); those of one storage share it."""
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
    """Numbers of views that are loaded as one storage, in order of their first bytes."""
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
