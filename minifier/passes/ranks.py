"""Ranks: drops leading dimensions of size 1 from all inputs at once, so that a case of one number is `torch.ones(1)`.

Runs after `dims`, which leaves sizes of 1. A vector stays a vector. Not proposed: what eager refuses, what changes a
number of elements, and anything where sizes are symbolic.

For example: `propose(case)` gives `[['ranks 1'], ['ranks 2']]`.
"""

from __future__ import annotations

from math import prod
from typing import Any, cast

import torch

from ...toolkit.live.case import Live
from ...toolkit.live.eager import clone_inputs
from ...toolkit.live.gpu_only import is_tied
from . import Pass
from .forms import forms, forms_after
from .symbolic import renewed

MOST = 3
"""The highest rank that is tried."""


def propose(case: Live) -> list[list[str]]:
    """Rounds to rank 1, then to higher ranks, where eager takes the case and no number of elements changes."""
    ranks = [rank for rank in range(1, MOST + 1) if any(_lower(value, rank) for value in case.inputs)]
    if case.spec.dynamic or not ranks or is_tied(case.gm) or (known := forms(case)) is None:
        return []
    results = {rank: forms_after(case, f"ranks {rank}", apply) for rank in ranks}
    return [
        [f"ranks {rank}"] for rank, after in results.items() if after is not None and _amounts(after) == _amounts(known)
    ]


def apply(case: Live, edit: str) -> Live:
    """The case with inputs of at most so many dimensions; only leading dimensions of size 1 are dropped."""
    rank = int(edit.split(" ")[1])
    inputs = clone_inputs(case.inputs)
    for place, value in enumerate(inputs):
        if lost := _lower(value, rank):
            inputs[place] = value.detach()[(0,) * lost].requires_grad_(value.requires_grad)
    return renewed(case, case.gm, inputs)


def _lower(value: Any, rank: int) -> int:
    """How many dimensions an input can lose on the way to a rank."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_quantized:
        return 0
    front = next((dim for dim, size in enumerate(value.shape) if size != 1), value.dim())
    return max(0, min(front, value.dim() - rank))


def _amounts(known: dict[str, Any]) -> dict[str, Any]:
    """The forms of all nodes with the number of elements in place of shape and strides."""

    def amount(kind: Any) -> Any:
        return (prod(cast(Any, kind)[0]), *cast(Any, kind)[2:]) if isinstance(kind, tuple) else kind

    return {name: [amount(kind) for kind in kinds] for name, kinds in known.items()}


PASS = Pass(
    order=70,
    words="fewer dimensions",
    edits={"ranks 1": "inputs of at most 1 dimension", "ranks *": "inputs of at most {1} dimensions"},
    runs_eager=True,
)
