"""How much of a compile is ours: time outside torch's functions, as a share of the compile.

A compile runs under cProfile. Ours is the time inside the frames of `toolkit/compile_fx`, of what they call that is not
torch (builtins, the standard library), and of all that the counting of operators for reports causes, torch's functions included;
the whole is that of the same profile, so that the profiler's own cost, most of the time here, lies on both sides of the fraction.
Beside it stands the time without a profiler: ours against that is a bound that is too high: only ours is slowed. Time is
this thread's processor's, so that a busy machine matters less. No kernel is built: a share of a real compile is smaller.

>>> share_of(Cell("gpt_block", "infer"))
Share(ours=0.004, whole=1.3, unprofiled=0.3)
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
    """Seconds of ours and of the whole compile (behind Dynamo) in one profile, and of the whole without a profiler."""

    ours: float
    whole: float
    unprofiled: float

    @property
    def part(self) -> float:
        return self.ours / self.whole


def share_of(cell: Cell) -> Share:
    """Of one cell; its first compile in this process is not measured."""
    codes_of(cell, compile_fx)
    unprofiled = 0.0

    def timed(gm: Any, inputs: Any) -> None:
        nonlocal unprofiled
        start = time.thread_time()
        compile_fx(gm, inputs)
        unprofiled += time.thread_time() - start

    gc.collect()
    gc.disable()  # a collection would be counted where it happens to strike
    codes_of(cell, timed)
    profile = cProfile.Profile(time.thread_time)
    codes_of(cell, lambda gm, inputs: profile.runcall(compile_fx, gm, inputs))
    gc.enable()
    stats = pstats.Stats(profile)
    return Share(_ours(stats), stats.total_tt, unprofiled)  # type: ignore[attr-defined]


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
        text = f"{share.ours * 1000:6.1f} ms of {share.whole:6.2f} s  {share.part:6.2%}"
        print(f"{cell.model:26} {cell.mode:14} {text}  ({share.unprofiled:.2f} s without a profiler)", flush=True)
    worst = max(parts, key=parts.__getitem__)
    median = statistics.median(parts.values())
    print(f"median {median:.2%}, worst {parts[worst]:.2%} ({worst.model} {worst.mode}), limit {LIMIT:.0%}")
    return 0 if parts[worst] <= LIMIT else 1
