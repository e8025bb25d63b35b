"""Strides: inputs become contiguous with no storage offset, on memory of their own.

>>> propose(Live(torch.fx.symbolic_trace(lambda x: x.sin()), [torch.ones(2, 3).t()]))
[['strides 0']]
"""

from __future__ import annotations

import torch

from ...toolkit.live.case import Live
from ...toolkit.live.gpu_only import is_tied
from . import Pass
from .symbolic import renewed


def propose(case: Live) -> list[list[str]]:
    """All strided inputs that are not contiguous from offset 0 on, or share memory with an earlier one."""
    if is_tied(case.gm):
        return []
    edits: list[str] = []
    seen: set[int] = set()
    for position, value in enumerate(case.inputs):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            memory = value.untyped_storage().data_ptr()
            if not value.is_contiguous() or value.storage_offset() or (memory in seen and memory):
                edits.append(f"strides {position}")
            seen.add(memory)
    return [edits] if edits else []


def apply(case: Live, edit: str) -> Live:
    """The case with one input contiguous. Fake values, which know the old strides, are made again."""
    index = int(edit.split(" ")[1])
    old = case.inputs[index]
    inputs = list(case.inputs)
    inputs[index] = old.detach().clone(memory_format=torch.contiguous_format).requires_grad_(old.requires_grad)
    return renewed(case, case.gm, inputs)


PASS = Pass(
    order=60,
    words="plainer strides",
    edits={"strides *": "input {1} laid out plainly"},
    unneeded={"strides": "recorded strides"},
)
