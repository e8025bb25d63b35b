"""One probe of bisect: the body of a query, in a child that may not live through it.

Judges the graph under a rung while each pass, pattern match, decomposition and lowering asks whether it may be applied.
Each question is reported as it comes, so that it is known after a segfault. Runs in a child only, because it changes
torch's tables.

For example: `task({"path": "run/0_0/forward", "trial": {"what": "as it is"}, ...})["ok"]` gives `False`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..live.rung import Around, Compiled, Rung
from ..live.spec import default_of
from .bisect_records import Application, Trial

if TYPE_CHECKING:
    from torch import fx

    from ..live.spec import ReplaySpec

TASK = f"{__name__}:task"

_OF_INDUCTOR = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Loads the graph, changes what the trial says and judges it; returns an Outcome as plain values."""
    from ..isolation.child import mark, report
    from ..judging.judge import judge
    from ..live.case import Case
    from ..rungs import rung
    from . import switching
    from .uncompiled import Uncompiled

    mark("load")
    trial = msgspec.convert(payload["trial"], Trial)
    for op in trial.fall_back:
        switching.fall_back(op)
    for op in trial.undecomposed:
        switching.without_decomposition(op)
    case = Case.at(payload["path"]).live(seed=payload["seed"], device=payload["device"])
    config = {room: dict(values) for room, values in case.spec.config.items()}
    for room, values in trial.settings.items():
        config.setdefault(room, {}).update(values)
    for name in trial.defaults:
        room, _, name = name.partition(".")
        config.setdefault(room, {})[name] = default_of(room, name)[1]
    case = dataclasses.replace(case, spec=msgspec.structs.replace(case.spec, config=config))
    inner = Uncompiled(rung(trial.rung), trial.uncompiled) if trial.uncompiled else rung(trial.rung)
    with tempfile.TemporaryDirectory() as folder:
        asked = _Asked(trial, report)
        with switching.asking(asked, folder):
            outcome = judge(
                case,
                _Counted(inner, asked.begin),
                payload["check"],
                seed=payload["seed"],
                shared=Path(payload["shared"]),
            )
    outcome.notes = [*case.notes, *outcome.notes]
    outcome.outputs = None
    return msgspec.to_builtins(outcome)


class _Counted(Around):
    """A rung that starts counting again with each compile: a graph that draws random numbers is compiled twice."""

    def __init__(self, inner: Rung, begin: Callable[[], None]) -> None:
        super().__init__(inner)
        self.begin = begin

    def build(self, gm: fx.GraphModule, fake_inputs: Sequence[Any], spec: ReplaySpec) -> Compiled:
        self.begin()
        return self.inner.build(gm, fake_inputs, spec)


class _Asked:
    """Decides by the trial whether each application is made, and reports it."""

    def __init__(self, trial: Trial, report: Callable[[Application], object]) -> None:
        self.report = report
        self.rules = {rule.subsystem: rule for rule in trial.off}
        self.known: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """Starts the counts of a new compile."""
        self.seen: Counter[str] = Counter()
        self.under_required = False

    def __call__(self, asked: Application) -> bool:
        from . import switching

        named = asked.label or asked.name if asked.subsystem == "lowerings" else asked.name
        stem = f"{asked.half}:{named}"
        count = self.seen[f"{asked.subsystem} {stem}"]
        self.seen[f"{asked.subsystem} {stem}"] += 1
        index = self.seen[asked.subsystem]
        self.seen[asked.subsystem] += 1
        key = f"{stem}#{count}"
        required = asked.subsystem in _OF_INDUCTOR and switching.required(asked.name)
        if asked.subsystem in _OF_INDUCTOR:
            self.under_required = required
        elif asked.subsystem == switching.PATTERNS:
            required = self.under_required or switching.required(
                asked.name
            )  # a required pass works by matches of its own
        elif asked.subsystem == "lowerings":
            required = asked.name.startswith("prims.inductor_")  # eager would draw other random numbers
        if f"{asked.subsystem} {key}" not in self.known:
            self.known.add(f"{asked.subsystem} {key}")
            self.report(msgspec.structs.replace(asked, key=key, index=index, required=required))
        if required or asked.subsystem not in self.rules:
            return False
        rule = self.rules[asked.subsystem]
        if rule.keep is not None:
            return key not in rule.keep
        return key in rule.off or asked.name in rule.names


def subsystems(_payload: dict[str, Any]) -> list[str]:
    """The body of a query: the parts of this torch's compiler that can be applied piece by piece."""
    from . import switching

    return switching.subsystems()
