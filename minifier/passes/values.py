# pyright: basic
"""Values: recorded floating-point inputs give way to ones, or to seeded random numbers. Integers and booleans stay.

>>> propose(case)
[['values 0 ones', 'values 1 ones'], ['values 0 randn', 'values 1 randn']]
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...toolkit.copying import clone_inputs
from ...toolkit.values import shares_memory
from . import Case

SEED = 0


def _randn(shape: torch.Size, position: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(SEED + position))


KINDS: dict[str, Callable[[torch.Size, int], torch.Tensor]] = {
    "ones": lambda shape, position: torch.ones(shape),
    "randn": _randn,
}


def propose(case: Case) -> list[list[str]]:
    """One round per kind of value, plainest first; an input is asked again only while it still holds recorded values."""
    floats = [
        position for position, value in enumerate(case.inputs)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided and not _plain(value)
    ]  # fmt: skip
    return [[f"values {position} {kind}" for position in floats] for kind in KINDS] if floats else []


def _plain(value: torch.Tensor) -> bool:
    return value.numel() == 0 or bool((value == 1).all())


def apply(case: Case, edit: str) -> Case:
    """The case with one input's values replaced; shape, strides, dtype, device, and what memory is shared, stay."""
    _, position, kind = edit.split(" ")
    index = int(position)
    old = case.inputs[index]
    if any(shares_memory(old, other) for place, other in enumerate(case.inputs) if place != index):
        inputs = clone_inputs(case.inputs)
        with torch.no_grad():
            inputs[index].copy_(KINDS[kind](old.shape, index).to(old.dtype))
        return Case(case.gm, inputs, case.spec)
    new = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device)
    new.copy_(KINDS[kind](old.shape, index).to(old.dtype))
    inputs = list(case.inputs)
    inputs[index] = new.requires_grad_(old.requires_grad)
    return Case(case.gm, inputs, case.spec)
