# pyright: basic
"""Strides: inputs become contiguous with no storage offset.

>>> propose(case)
[['strides 1']]
"""

from __future__ import annotations

import torch

from . import Case


def propose(case: Case) -> list[list[str]]:
    """All strided inputs that are not contiguous from offset 0 on."""
    found = [
        f"strides {position}" for position, value in enumerate(case.inputs)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided
        and not (value.is_contiguous() and value.storage_offset() == 0)
    ]  # fmt: skip
    return [found] if found else []


def apply(case: Case, edit: str) -> Case:
    """The case with one input contiguous. Fake values, which know the old strides, are dropped."""
    from .dims import without_fakes

    index = int(edit.split(" ")[1])
    old = case.inputs[index]
    inputs = list(case.inputs)
    inputs[index] = old.detach().clone(memory_format=torch.contiguous_format).requires_grad_(old.requires_grad)
    return Case(without_fakes(case.gm), inputs)
