"""How much of a compile is ours: time outside torch's functions, as a share of the compile.

A compile is run twice: once untouched, for its whole time, and once under cProfile; time is that of this thread's processor, so
that a busy machine does not matter. Ours is the sum of the time inside the frames of `toolkit/compile_fx`, of what they call that
is not torch (builtins, the standard library), and of all that the counting of operators for reports causes, torch's functions
included. The profiler slows the numerator and not the denominator, and no kernel is built: a share of a real compile is smaller.

>>> share_of(Cell("gpt_block", "infer"))
Share(ours=0.004, whole=1.3)
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import statistics
import time
from dataclasses import dataclass
from typing import Any

from same_code import Cell, codes_of

from graphdbg.toolkit.compile_fx import compile_fx

LIMIT = 0.02
COUNTING = {"operators", "node_count"}
"""Functions of the pipeline that only reports need: what they call is ours too."""


@dataclass(frozen=True)
class Share:
    """Seconds of ours, and of the whole compile (behind Dynamo)."""

    ours: float
    whole: float

    @property
    def part(self) -> float:
        return self.ours / self.whole


def share_of(cell: Cell) -> Share:
    """Of one cell; its first compile in this process is not measured."""
    codes_of(cell, compile_fx)
    whole = 0.0

    def timed(gm: Any, inputs: Any) -> None:
        nonlocal whole
        start = time.thread_time()
        compile_fx(gm, inputs)
        whole += time.thread_time() - start

    gc.collect()
    gc.disable()  # a collection would be counted where it happens to strike
    codes_of(cell, timed)
    profile = cProfile.Profile(time.thread_time)
    codes_of(cell, lambda gm, inputs: profile.runcall(compile_fx, gm, inputs))
    gc.enable()
    return Share(_ours(pstats.Stats(profile)), whole)


def _ours(stats: pstats.Stats) -> float:
    seconds = 0.0
    for function, (_, _, own, inclusive, callers) in stats.stats.items():  # type: ignore[attr-defined]
        if is_ours(function):
            seconds += inclusive if function[2] in COUNTING else own
        elif not _is_torch(function):
            seconds += sum(each[2] for caller, each in callers.items() if is_ours(caller) and caller[2] not in COUNTING)
    return seconds


def is_ours(function: tuple[str, int, str]) -> bool:
    """Whether a function of a profile lies in the compile path."""
    return "toolkit/compile_fx/" in function[0]


def _is_torch(function: tuple[str, int, str]) -> bool:
    return "/torch/" in function[0] or "torch." in function[2]


def table(cells: list[Cell]) -> int:
    """Prints a row for each cell, the median and the worst; 1 where the worst is above the limit."""
    parts: dict[Cell, float] = {}
    for cell in cells:
        share = share_of(cell)
        parts[cell] = share.part
        print(
            f"{cell.model:26} {cell.mode:14} {share.ours * 1000:7.1f} ms of {share.whole:6.2f} s  {share.part:6.2%}",
            flush=True,
        )
    worst = max(parts, key=parts.__getitem__)
    median = statistics.median(parts.values())
    print(f"median {median:.2%}, worst {parts[worst]:.2%} ({worst.model} {worst.mode}), limit {LIMIT:.0%}")
    return 0 if parts[worst] <= LIMIT else 1
