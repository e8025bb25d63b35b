# pyright: basic
"""What a child does for a failure that is an amount: too slow, too much memory. The judge does the rest.

Compile and first run of the rung alone are measured, eager before them is not; a graph that fails in any other way is no case of
too much. The time is that of one query at a time, from an empty code cache.

>>> judged(case, {"rung": "inductor", "check": "crash", "seed": 0, "slower_than": 20.0}).signature.kind
'slow'
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from ..dumps.amounts import size_text
from ..toolkit.case import Live
from ..toolkit.costs import PeakMemory, empty_code_cache
from ..toolkit.judge import Watch, judge
from ..toolkit.outcome import Outcome
from ..toolkit.signature import Signature
from ..toolkit.verdict import WHOLE, Verdict
from ..toolkit.verdict import judged as of


def judged(case: Live, payload: dict[str, Any], watch: Watch = nullcontext) -> Outcome:
    """The judgement of one graph, with the amounts that were asked for."""
    slow, large = payload.get("slower_than"), payload.get("memory_over")
    peak = PeakMemory()
    watch = watch if large is None else peak.watched
    with nullcontext() if slow is None else empty_code_cache():
        outcome = judge(
            case, payload["rung"], payload["check"], seed=payload["seed"], watch=watch, lean=payload.get("lean", "")
        )
    if outcome.signature is not None or not outcome.ok or outcome.record.skipped:
        return outcome
    took, most = "", ""
    if slow is not None:
        took, most = f"compile and first run took {outcome.seconds:.2f} s", f"{slow:g} s"
        if outcome.seconds > slow:
            raw = f"{took}, more than {most}"
            outcome.signature = Signature("slow", "run", message=f"{slow:g}", size=outcome.seconds, raw=raw)
    if large is not None:
        took, most = f"compile and first run needed {size_text(peak.bytes, digits=2)}", size_text(large, digits=2)
        if peak.bytes > large:
            raw, size = f"{took}, more than {most}", float(peak.bytes)
            outcome.signature = Signature("memory", "run", message=str(large), detail="peak", size=size, raw=raw)
    if outcome.signature is not None:
        outcome.record = of(outcome.signature, payload["rung"], reason=took, detail=WHOLE)
    elif took:
        outcome.record = Verdict("ok", reason=took)
    return outcome
