"""How much of a compile is ours: time outside torch's functions, as a share of the compile.

A timer of the processor interrupts the compile each millisecond and looks who runs: the innermost frame that is torch's
or of `toolkit/compile_fx`; what that calls in C or in the standard library is its own. What the counting of operators
for reports causes is ours, torch's functions included. Sampling slows nobody, unlike a profiler, which makes many small
calls dear. The first compile of a cell in this process is not measured. No kernel is built: a share of a real compile
is smaller.

>>> share_of(Cell("gpt_block", "infer"))
Share(ours=21, samples=2650)
"""

from __future__ import annotations

import gc
import signal
import statistics
from dataclasses import dataclass
from types import FrameType
from typing import Any

from graphdbg.toolkit.compile_fx import compile_fx
from tests.matrix.same_code import Cell, codes_of

LIMIT = 0.02
EVERY_S = 0.001
LEAST_SAMPLES, MOST_ROUNDS = 1000, 4
COUNTING = {"operators", "node_count"}
"""Functions of the pipeline that only reports need: what they call is ours too."""


@dataclass
class Share:
    """Samples in our code and in the whole compile (behind Dynamo)."""

    ours: int = 0
    samples: int = 0

    @property
    def part(self) -> float:
        return self.ours / max(self.samples, 1)

    def look(self, _: int, frame: FrameType | None) -> None:
        """One sample."""
        self.samples += 1
        self.ours += is_ours(frame)


def is_ours(frame: FrameType | None) -> bool:
    """Whether what runs in this frame counts as the compile path's own."""
    nearest = None
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if "toolkit/compile_fx/" in file:
            return nearest is None or name in COUNTING
        if "/torch/" in file or "functorch" in file:
            nearest = frame
        frame = frame.f_back
    return False


def share_of(cell: Cell) -> Share:
    """Of one cell, over as many compiles as give enough samples."""
    codes_of(cell, compile_fx)
    share = Share()

    def sampled(gm: Any, inputs: Any) -> None:
        signal.signal(signal.SIGPROF, share.look)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        try:
            compile_fx(gm, inputs)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    gc.collect()
    gc.disable()  # a collection would be counted where it happens to strike
    for _ in range(MOST_ROUNDS):
        codes_of(cell, sampled)
        if share.samples >= LEAST_SAMPLES:
            break
    gc.enable()
    return share


def table(cells: list[Cell]) -> int:
    """Prints a row for each cell, the median and the worst; 1 where the worst is above the limit."""
    parts: dict[Cell, float] = {}
    for cell in cells:
        share = share_of(cell)
        parts[cell] = share.part
        print(
            f"{cell.model:26} {cell.mode:14} {share.ours:5} of {share.samples:6} samples  {share.part:6.2%}", flush=True
        )
    worst = max(parts, key=parts.__getitem__)
    median = statistics.median(parts.values())
    print(f"median {median:.2%}, worst {parts[worst]:.2%} ({worst.model} {worst.mode}), limit {LIMIT:.0%}")
    return 0 if parts[worst] <= LIMIT else 1
