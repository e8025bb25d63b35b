"""Values: replaces recorded floating-point inputs by ones, by seeded random numbers, by their largest number
everywhere; whole numbers by zeros, which are in range for any index, then by 0, 1, 2, ... up to their largest; booleans
by True, then by False.

>>> propose(case)[0]
['values 0 ones', 'values 1 ones', 'values 2 ones', 'values 3 ones', 'values 4 ones']
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

import torch

from ...toolkit.live.case import Live
from ...toolkit.live.eager import clone_inputs
from ...toolkit.live.values import shares_memory, span
from . import Pass

SEED = 0


def _randn(shape: torch.Size, position: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED + position))


def _top(old: torch.Tensor) -> torch.Tensor:
    """The tensor's number of largest magnitude everywhere; ones where it has no finite number but 0."""
    flat = old.detach().double().nan_to_num(0.0, 0.0, 0.0).flatten()
    return torch.ones(old.shape) if not flat.any() else flat[flat.abs().argmax()].expand(old.shape)


def _count(old: torch.Tensor) -> torch.Tensor:
    """0, 1, 2, ... up to the tensor's largest number, then again from 0."""
    return (torch.arange(old.numel()) % (max(0, int(old.to(torch.int64).max())) + 1)).reshape(old.shape)


KINDS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "ones": lambda old, position: torch.ones(old.shape),
    "zeros": lambda old, position: torch.zeros(old.shape),
    "randn": lambda old, position: _randn(old.shape, position),
    "count": lambda old, position: _count(old),
    "top": lambda old, position: _top(old),
    "arange": lambda old, position: torch.arange(old.numel()).reshape(old.shape) / max(1, old.numel()),
    "randn1": lambda old, position: _randn(old.shape, position + 1),
    "next": lambda old, position: ~old if old.dtype is torch.bool else (old.detach() + 1) % (old.detach().max() + 1),
}
"""Kind of content -> a function that makes it; the last three are asked about by `probes` alone."""
FLOATS, WHOLE, BOOLEANS = ("ones", "randn", "top"), ("zeros", "count"), ("ones", "zeros")


def propose(case: Live) -> list[list[str]]:
    """One round per kind of value, plainest first; an input is asked again only while it still holds recorded
    values."""
    kinds = {position: _kinds(value) for position, value in enumerate(case.inputs)}
    rows = [[f"values {position} {kind}" for kind in known] for position, known in kinds.items()]
    return [[edit for edit in edits if edit] for edits in zip_longest(*rows)]


def _kinds(value: object) -> tuple[str, ...]:
    """What may be put into an input, plainest first; nothing where it is plain already."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return ()
    if not value.numel() or value.is_complex():
        return ()
    if value.is_floating_point():
        return () if bool((value == 1).all()) else FLOATS
    given = value.to(torch.bool)  # some integer dtypes have few operators
    plain = given.all() if value.dtype is torch.bool else not given.any()
    return () if bool(plain) else BOOLEANS if value.dtype is torch.bool else WHOLE


def apply(case: Live, edit: str) -> Live:
    """The case with one input's values replaced; shape, strides, dtype, device, and what memory is shared, stay."""
    _, position, kind = edit.split(" ")
    index = int(position)
    old = case.inputs[index]
    new = KINDS[kind](old, index).to(old.dtype)
    inputs = list(case.inputs)
    with torch.no_grad():
        if any(shares_memory(old, other) for place, other in enumerate(inputs) if place != index):
            inputs = clone_inputs(inputs)
            _write(inputs[index], new)
        else:
            own = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device)
            own.as_strided((span(own),), (1,)).zero_()  # what lies between the elements may be read, too
            inputs[index] = _write(own, new).requires_grad_(old.requires_grad)
    return Live(case.gm, inputs, case.spec)


def _write(target: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Writes values into a tensor; into one that overlaps itself as many as its memory takes."""
    whole = target
    if (most := span(target)) < target.numel():
        target, values = target.as_strided((most,), (1,)), values.flatten()[:most]
    target.copy_(values)
    return whole


PASS = Pass(
    order=50,
    words="simpler values",
    edits={"values * *": "input {1} filled with {2}"},
    unneeded={"values": "recorded values"},
)
