"""What came of launching a kernel alone, as plain data: what `graphdbg kernel --json` prints. Must not import torch.

>>> Judged("triton_poi_fused_relu_0", 0, 1, 1).ok
True
"""

from __future__ import annotations

import msgspec

from .roofline import Place


class Against(msgspec.Struct, frozen=True):
    """A result against what it should be. `error`: the largest one of an element to size and RMS of the tensor together, or the
    relative RMS error to float64; for integers the share of elements that differ; None: not
    finite. `why`: in what it differs, or why it does not
    count."""

    error: float | None
    tolerance: float | None
    ok: bool
    why: str = ""


class Argument(msgspec.Struct):
    """One argument that a kernel wrote. None: there was nothing to compare with."""

    name: str
    buffer: str
    node: str
    type: str
    interpreter: Against | None = None
    eager: Against | None = None

    @property
    def ok(self) -> bool:
        """Whether it is right, as far as it could be compared."""
        return all(one is None or one.ok for one in (self.interpreter, self.eager))


class Judged(msgspec.Struct):
    """One launch. `died`: how the process ended, where it did; `where`: "interpreter", or the GPU's name."""

    kernel: str
    number: int
    call: int
    calls: int
    grid: tuple[int, int, int] = (1, 1, 1)
    config: str = ""
    where: str = ""
    nodes: list[str] = []
    arguments: list[Argument] = []
    place: Place | None = None
    died: str = ""
    notes: list[str] = []

    @property
    def ok(self) -> bool:
        """Whether it ran and agrees."""
        return not self.died and all(one.ok for one in self.arguments)
