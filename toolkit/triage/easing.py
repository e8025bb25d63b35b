"""What makes a failure go away, as a part of its verdict: looked for at once where that takes seconds, else when asked.

For example:

    eased(saved, server, How(), verdict, 0.3, 60.0).workaround
    # 'torch._inductor.config.emulate_precision_casts = True'
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..blame.workaround import work_around
from ..isolation import ForkServer
from ..node_values.reading import node_values
from ..replaying.replay import How
from ..verdicts.ladder_words import address
from ..verdicts.verdict import ROUNDING, Verdict
from .steady import steady

if TYPE_CHECKING:
    from ...dumps.store import SavedGraph

QUICK_S, THOROUGH_S = 30.0, 600.0
"""What the search may take, by itself and when it was asked for."""
CLOSE = 1e-6
"""Errors to float64 that are so near to each other are those of the same numbers."""
COMPILES = 2
"""So many compiles of the graph must fit into QUICK_S, else nothing is tried unasked."""


def blames_compiler(verdict: Verdict) -> bool:
    """Whether a change of the compiler's could make it go away."""
    return verdict.verdict == ROUNDING or (verdict.failed and verdict.fault == "compiler")


def parted(saved: SavedGraph, server: ForkServer, how: How, limit_s: float) -> str:
    """The first node whose compiled value is not eager's, with its line; empty where returned values change what
    differs."""
    if limit_s < 1.0:
        return ""
    events = list(
        node_values(saved, seed=how.seed, device=how.device, limit_s=limit_s, imports=how.imports, server=server)
    )
    if events[-1].get("relation") not in ("same", "other"):
        return ""
    rows = (row for row in events if row.get("error") is not None and row.get("eager_error") is not None)
    first = next((row for row in rows if not math.isclose(row["error"], row["eager_error"], rel_tol=CLOSE)), None)
    return "" if first is None else f"{first['name']}{', ' + first['line'] if first['line'] else ''}"


def eased(
    saved: SavedGraph,
    server: ForkServer,
    how: How,
    verdict: Verdict,
    compile_s: float,
    left_s: float,
    *,
    thorough: bool = False,
    told: Callable[[str], object] = lambda text: None,
) -> Verdict:
    """The verdict with its work-around, or with the command that looks for one longer, where a compile of the graph
    (`compile_s`) takes too long to try several unasked; as it is where nobody can blame the compiler, and where none
    was found in `left_s`.
    """
    if not blames_compiler(verdict) or verdict.workaround:
        return verdict
    if verdict.kind in ("hang", "memory") and not thorough:
        compile_s = QUICK_S
    command = verdict.then(f"graphdbg triage {address(saved)} --workaround").next
    unasked = msgspec.structs.replace(verdict, next=[*verdict.next, *command])
    if not thorough and COMPILES * compile_s > QUICK_S:
        return unasked
    told("looking for what makes it go away")
    began = time.monotonic()
    limit = min(left_s, THOROUGH_S if thorough else QUICK_S)
    try:
        lines = work_around(saved, server, how, verdict, max_time_s=limit)
    except KeyboardInterrupt:  # the verdict is known, and is worth more than its work-around
        told("interrupted")
        return unasked
    told(f"{'found' if lines else 'found nothing'} in {time.monotonic() - began:.1f} s")
    if verdict.verdict == ROUNDING and (place := parted(saved, server, how, limit - (time.monotonic() - began))):
        verdict = msgspec.structs.replace(verdict, reason=f"{verdict.reason}; compiled and eager part first at {place}")
    if lines is None and verdict.failed and not thorough:
        return unasked
    if (
        lines and thorough and "torch.compiler." not in lines
    ):  # an execution of the graph alone cannot show what that costs
        lines += _cost(saved, server, how, lines)
    return msgspec.structs.replace(verdict, workaround=lines)


def _cost(saved: SavedGraph, server: ForkServer, how: How, lines: str) -> str:
    """What the change costs in speed, as a comment; nothing where that cannot be measured."""
    times = steady(saved, server, how, lines)
    if times is None:
        return ""
    without = f"{1000 * times.without_s:.3g} ms without, " if times.without_s is not None else ""
    return (
        f"\n# an execution takes {1000 * times.compiled_s:.3g} ms with it, {without}{1000 * times.eager_s:.3g} "
        "ms in eager"
    )
