# pyright: basic
"""What every rung of one graph is compared with: eager's results and the float64 reference, kept in a file between queries.

The ladder judges one graph under many rungs, each in a child of its own; the first child leaves this, the others read it. It
belongs to one graph, one seed and one device, which the caller of `judge` has to see to. The file holds tensors and plain
values and is read as nothing else.

>>> found.save(path)
>>> load(path).changed
[0]
"""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .execution import Execution
from .float64 import NoReference

MOST_BYTES = 4 << 30
"""Above this it is quicker to compute again than to write and read."""


@dataclass
class Baseline:
    """`changed`: places of inputs that eager writes to; `left_out`: results that say nothing (uninitialised state).
    `truth`: the results in float64, or why there are none.
    """

    eager: Execution
    changed: list[int]
    left_out: set[int] = field(default_factory=set)
    truth: list[Any] | NoReference = field(default_factory=lambda: NoReference("numbers were not asked for"))

    def bytes(self) -> int:
        """What the file would hold."""
        kept = [*self.eager.outputs, *self.eager.gradients, *([] if isinstance(self.truth, NoReference) else self.truth)]
        return sum(value.numel() * value.element_size() for value in kept if isinstance(value, torch.Tensor))

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all; what cannot be stored is computed again by each query."""
        if self.bytes() > MOST_BYTES:
            return
        part = path.with_suffix(".part")
        inputs = [value if index in self.changed else None for index, value in enumerate(self.eager.inputs)]
        parts = _bare([self.eager.outputs, self.eager.gradients, inputs, self.eager.aliases])
        truth = self.truth.reason if isinstance(self.truth, NoReference) else _bare(self.truth)
        with contextlib.suppress(OSError, RuntimeError, TypeError, AttributeError, pickle.PicklingError):
            torch.save(
                {"parts": parts, "changed": self.changed, "left_out": sorted(self.left_out), "truth": truth}, part
            )
            part.rename(path)


def load(path: Path) -> Baseline | None:
    """What was saved; None where nothing was, or where it holds more than tensors and plain values."""
    try:
        kept = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError):
        return None
    truth = NoReference(kept["truth"]) if isinstance(kept["truth"], str) else kept["truth"]
    return Baseline(Execution(*kept["parts"]), kept["changed"], set(kept["left_out"]), truth)


def _bare(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return [_bare(item) for item in value] if isinstance(value, (list, tuple)) else value
