"""What bisect tries and finds, as records that cross processes and are printed as JSON. No torch is imported.

>>> Trial("all of post_grad_passes off", off=[Off("post_grad_passes", keep=[])]).what
'all of post_grad_passes off'
"""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

from ..verdicts.verdict import OK, Verdict
from .partners import ByNode

Effect = Literal["same", "gone", "other"]
"""Of a probe: the same failure, no failure, another failure (which decides nothing)."""


class Application(msgspec.Struct, omit_defaults=True):
    """One thing that a compile applied: a pass, a lowering of a node, a decomposition, a pattern match.

    `key` names it in later compiles of the same graph; `index` counts within its subsystem; `name` is the pass or the
    operator; `label` the node, or where a pass of the user's comes from; `half` "forward" or "backward"; `required`:
    never switched off.
    """

    subsystem: str
    key: str = ""
    index: int = -1
    name: str = ""
    label: str = ""
    line: str = ""
    half: str = ""
    required: bool = False


class Off(msgspec.Struct, omit_defaults=True):
    """What a trial switches off in one subsystem: the keys in `off`, all applications named in `names`, or with `keep`
    everything but these keys."""

    subsystem: str
    off: list[str] = []
    names: list[str] = []
    keep: list[str] | None = None


class Trial(msgspec.Struct, omit_defaults=True):
    """One way to compile the graph. `settings` is {"inductor": {name: value}}; `fall_back` and `undecomposed` name
    operators.

    `defaults` names settings ("inductor.cpp.simdlen") that are put back to torch's own value; `uncompiled` nodes that
    are left to eager; `rung`: "" is the one asked for.
    """

    what: str
    off: list[Off] = []
    settings: dict[str, dict[str, Any]] = {}
    fall_back: list[str] = []
    undecomposed: list[str] = []
    defaults: list[str] = []
    uncompiled: list[str] = []
    rung: str = ""


class TrialResult(msgspec.Struct):
    """A trial that was made. `text` is its failure in words, "" when there was none."""

    what: str
    verdict: Effect
    text: str
    seconds: float
    disabled: list[Off]
    settings: dict[str, dict[str, Any]]


class Subsystem(msgspec.Struct):
    """One subsystem as a whole. `verdict` is None where it was not tried, and `reason` says why."""

    subsystem: str
    applications: int
    verdict: Effect | None
    reason: str = ""


class Workaround(msgspec.Struct):
    """Python to copy. `verified`: a probe with this change alone was right. `also`: other applications that it switches
    off."""

    code: str
    verified: bool
    also: list[str] = []


class Culprit(msgspec.Struct):
    """What is to blame.

    `kind`: pass | pattern | lowering | decomposition | decomposed | aot | cudagraphs | setting | own_setting | fusion.
    `applications` are those that must be off together, most often one; `alone`: a probe with only them off was right;
    `detail`: where inside it, if that is known.
    """

    kind: str
    subsystem: str
    name: str
    sentence: str
    alone: bool
    applications: list[Application] = []
    detail: str = ""
    workaround: Workaround | None = None


class Bisection(msgspec.Struct):
    """The whole result. `reproduced` is False when the graph does not fail, and then nothing else was tried.

    `by`: the search that found the culprit, "" where none did. `backend` is the first stock backend that fails;
    `sentence` and `meaning` are for the user; `stopped` says why the search ended early. `node`: what the search by
    node found. `verdict`: on the graph, with what was found and how to go on; `cannot_tell` where it fails and nothing
    was found.
    """

    id: str
    stage: str
    rung: str = "inductor"
    by: Literal["", "setting", "node", "pass"] = ""
    reproduced: bool = False
    failure: str = ""
    backend: str = ""
    sentence: str = ""
    meaning: str = ""
    findings: list[Culprit] = []
    rows: list[Subsystem] = []
    probes: list[TrialResult] = []
    by_node: ByNode | None = None
    seconds: float = 0.0
    stopped: str = ""
    notes: list[str] = []
    verdict: Verdict = OK

    def to_json(self) -> dict[str, Any]:
        """Plain data, the verdict's fields flat."""
        plain = msgspec.to_builtins(self) | {"probe_count": len(self.probes)}
        if self.by_node is not None:
            plain["by_node"] |= {"sentence": self.by_node.sentence, **self.by_node.verdict.flat()}
        return plain | self.verdict.flat()


class OutOfTime(Exception):
    """The time given with --max-time is over."""


class Clock:
    """When the search began, and how long it may take."""

    def __init__(self, max_time_s: float | None = None) -> None:
        self.max_time_s = max_time_s
        self.began = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def check(self) -> None:
        """Raises OutOfTime once the time is over."""
        if self.max_time_s is not None and self.elapsed() >= self.max_time_s:
            raise OutOfTime(f"{self.elapsed():.0f} s have passed (--max-time {round(self.max_time_s, 1):g})")
