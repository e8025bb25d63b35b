# pyright: basic
"""What a child does for a failure that is an amount: too slow, too much memory. The judge does the rest.

Compile and first run of the rung alone are measured, eager before them is not; a graph that fails in any other way is no case of
too much. The time is that of one query at a time, from an empty code cache.

>>> judged(gm, inputs, spec, {"rung": "inductor", "check": "crash", "seed": 0, "slower_than": 20.0}).signature.kind
'slow'
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from torch import fx

from ..toolkit.costs import PeakMemory, empty_code_cache
from ..toolkit.judge import Watch, judge
from ..toolkit.outcome import Outcome
from ..toolkit.signature import Signature
from ..toolkit.spec import ReplaySpec


def judged(
    gm: fx.GraphModule, inputs: Sequence[Any], spec: ReplaySpec, payload: dict[str, Any], watch: Watch = nullcontext
) -> Outcome:
    """The judgement of one graph, with the amounts that were asked for."""
    slow, large = payload.get("slower_than"), payload.get("memory_over")
    peak = PeakMemory()
    watch = watch if large is None else peak.watched
    with nullcontext() if slow is None else empty_code_cache():
        outcome = judge(
            gm, inputs, spec, payload["rung"], payload["check"], seed=payload["seed"], watch=watch, lean=payload.get("lean", "")
        )
    if outcome.signature is not None or not outcome.ok or outcome.verdict.startswith("skipped, because "):
        return outcome
    if slow is not None:
        outcome.verdict = f"compile and first run took {outcome.seconds:.2f} s"
        if outcome.seconds > slow:
            raw = f"{outcome.verdict}, more than {slow:g} s"
            outcome.signature = Signature("slow", "run", message=f"{slow:g}", size=outcome.seconds, raw=raw)
    if large is not None:
        outcome.verdict = f"compile and first run needed {peak.bytes / 2**20:.1f} MiB"
        if peak.bytes > large:
            raw = f"{outcome.verdict}, more than {large / 2**20:.1f} MiB"
            outcome.signature = Signature("memory", "run", message=str(large), detail="peak", size=float(peak.bytes), raw=raw)
    outcome.ok = outcome.signature is None
    return outcome
