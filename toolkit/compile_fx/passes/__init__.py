"""The named passes inside pre_grad, joint and post_grad: seen one by one, timed, and skipped by name.

`table` lists them and which cannot be skipped, `names` resolves the names that users write, `watching` observes and
skips them while a stage runs. Torch's passes are called as they are. Importing this package imports no torch.

>>> pipeline = Pipeline(skip=("post_grad.remove_noop_ops",), watch_passes=True)
>>> compiled = compile_fx(torch.fx.symbolic_trace(model), [x], pipeline=pipeline)
>>> [row.name for report in pipeline.reports for row in report.passes if row.changed]
['early_patterns']
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ....dumps.wording import counted
from .names import REWRITING, asked, known, listing, names, resolve, same_pattern
from .table import PASSES, NamedPass


def told(skip: Collection[tuple[str, str]], reports: Collection[PassReport]) -> list[str]:
    """A sentence for each pass to be skipped: how often it was, or that it never ran. `reports`: of the whole
    compile."""
    return [_told(stage, name, reports) for stage, name in sorted(skip)]


def _told(stage: str, name: str, reports: Collection[PassReport]) -> str:
    group, _, pattern = name.partition("/")
    mine = [
        report
        for report in reports
        if report.stage == stage and (report.name == group or _of_family(stage, group, report.name))
    ]
    if pattern:
        count = sum(match.skipped for report in mine for match in report.matched if same_pattern(match.name, pattern))
        met = f"kept from {counted(count, 'match')}"
        return f"{stage}.{name}: {met}" if count else f"{stage}.{name} matched nothing in this graph: nothing skipped"
    count = sum(bool(report.skipped_because) for report in mine)
    if not count:
        return f"{stage}.{name} did not run for this graph: nothing skipped"
    return f"{stage}.{name}: skipped {counted(count, 'time')}"


def _of_family(stage: str, group: str, name: str) -> bool:
    row = known(stage, name)
    return row is not None and row.name == group


__all__ = [
    "PASSES",
    "REWRITING",
    "Matched",
    "NamedPass",
    "PassReport",
    "asked",
    "known",
    "listing",
    "names",
    "resolve",
    "told",
]


@dataclass
class Matched:
    """One pattern in one pass: how often it was applied (or kept from it), and where in the user's code."""

    name: str
    count: int = 0
    skipped: int = 0
    lines: list[str] = field(default_factory=list[str])


@dataclass
class PassReport:
    """One run of one pass.

    `graph`: path of the graph inside the stage's, "" for that itself (`true_graph_0` is a body of cond). `inside`: the
    pass that ran it. `seconds` includes passes inside. `removed` and `added` count operators; `rewired` nodes that got
    other arguments; `reordered`: nodes that stayed stand in another order. Values in `meta` are not compared.
    """

    stage: str
    name: str
    graph: str = ""
    alias: str = ""
    inside: str = ""
    seconds: float = 0.0
    nodes_before: int | None = None
    nodes_after: int | None = None
    removed: dict[str, int] = field(default_factory=dict[str, int])
    added: dict[str, int] = field(default_factory=dict[str, int])
    rewired: int = 0
    reordered: bool = False
    matched: list[Matched] = field(default_factory=list[Matched])
    skipped_because: str = ""
    error: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.stage}.{self.name}"

    @property
    def changed(self) -> bool:
        """Whether the graph's nodes, their arguments or their order are others now."""
        return bool(self.removed or self.added or self.rewired or self.reordered)

    @property
    def matches(self) -> int:
        """How many matches of patterns were applied."""
        return sum(match.count for match in self.matched)
