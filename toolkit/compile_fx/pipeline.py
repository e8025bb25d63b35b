"""Runs stages: times them, tells observers, skips and replaces, stops, and keeps a report of each.

A stage does not know whether it is watched. With anything skipped, replaced or stopped after, no compile cache is read
or written: other compiles would get the changed code. Imports no torch.

>>> pipeline = Pipeline(skip=("joint",), until="lower")
>>> compiled = compile_fx(torch.fx.symbolic_trace(model), [x], pipeline=pipeline)
>>> [report.skipped_because for report in pipeline.reports if report.stage == "joint"]
['asked for']
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...dumps.errors import CannotSkipError
from .. import torch_private as t
from .errors import Explained, explained
from .passes import PassReport, asked, outcomes
from .stage import STAGES, Stage, Work, order

Action = Callable[[Work, "Pipeline"], None]


@dataclass
class StageReport:
    """What one stage did to one part. `seconds` leaves out stages that ran inside it; `removed` and `added` count
    operators.

    From lowering on there is no graph any more: `took` and `produced` say how much of what (64 "buffers", 19 "groups",
    812 "lines").
    """

    part: str
    stage: str
    nodes_before: int | None = None
    nodes_after: int | None = None
    seconds: float = 0.0
    removed: dict[str, int] = field(default_factory=dict[str, int])
    added: dict[str, int] = field(default_factory=dict[str, int])
    took: tuple[int, str] | None = None
    produced: tuple[int, str] | None = None
    skipped_because: str = ""
    replaced: bool = False
    notes: list[str] = field(default_factory=list[str])
    passes: list[PassReport] = field(default_factory=list[PassReport])
    """Each pass that ran or was skipped, in order, where passes are watched or one of this stage is to be skipped."""
    error: str = ""
    explained: Explained | None = None
    """The account of the error: nodes, kernel, source around the line."""


class Observer:
    """Is called when stages begin and end. `work.gm` is the graph itself: copy what you keep, change nothing.

    `wants_passes`: reports of stages are to have each pass (`report.passes`), which costs two looks over the graph per
    pass.
    """

    wants_passes = False

    def before(self, stage: Stage, work: Work) -> None:
        """A stage begins."""

    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        """A stage has ended, also by an error (`report.error`)."""


class Stopped(BaseException):
    """Raised before the first stage after `until`. A BaseException, so that no handler of compile errors catches it."""


@dataclass
class Unfinished:
    """Stands in for a compiled graph when a compile was stopped; raises when it is called."""

    until: str
    _boxed_call: bool = True

    def __call__(self, *_: Any) -> Any:
        why = f"its compile was stopped after {self.until}"
        raise CannotSkipError("this graph cannot be called", why, "compile it without until")


class Pipeline:
    """One compile: its options and its reports.

    `observers` see each stage; `skip` names stages and passes (`post_grad.remove_noop_ops`; those that are needed raise
    UsageError); `replace` maps a stage to a function `(work, pipeline) -> None` that does its work instead and sets the
    field of `work` that the stage gives (`STAGES[name].gives`); after `until` nothing more runs. `reports` grows while
    it runs, also when a backward is compiled at its first call; `watch_passes`: with each pass.
    """

    def __init__(
        self,
        observers: Iterable[Observer] = (),
        skip: Iterable[str] = (),
        replace: Mapping[str, Action] | None = None,
        until: str | None = None,
        *,
        watch_passes: bool = False,
    ) -> None:
        self.observers = list(observers)
        self.skip, self.skip_passes = asked(skip)
        self.watch_passes = watch_passes or any(getattr(observer, "wants_passes", False) for observer in self.observers)
        self.replace = dict(replace or {})
        self.until = until
        self.reports: list[StageReport] = []
        self.caches: list[tuple[str, str, str]] = []
        """(part, off | bypass | miss | hit, reason or key) of each inner compile."""
        self._last = order(until) if until else len(STAGES)
        self._nested = threading.local()
        for name in self.replace:
            order(name)
        for name in sorted(self.skip):
            if needed := STAGES[name].needed:
                fix = "leave it in, or replace it with one of yours"
                raise CannotSkipError(f"the stage {name} cannot be skipped", needed, fix)

    @property
    def changes_code(self) -> bool:
        """Whether the code may differ from stock's, so that no cache may be read or written."""
        return bool(self.skip or self.skip_passes or self.replace or self.until)

    def run(self, name: str, work: Work) -> None:
        """Runs one stage on one part. Raises what the stage raises, and Stopped when `until` lies before it."""
        stage = STAGES[name]
        if order(name) > self._last:
            if name == "capture" and self.until == "pre_grad" and t.takes("aot_module_simplified", "pre_grad_passes"):
                usual(name)(work, self)  # pre_grad runs inside it
            raise Stopped
        report = StageReport(work.part, name)
        self.reports.append(report)
        work.notes = report.notes
        if name in self.skip:
            report.skipped_because = "asked for"
            report.nodes_before = report.nodes_after = node_count(work.gm)
            return
        from .passes.watching import watched  # late: it imports torch

        before = operators(work.gm) if stage.rewrites else None
        report.nodes_before = sum(before.values()) if before is not None else node_count(work.gm)
        report.took = work.produced
        self._tell("before", stage, work)
        action: Action = self.replace.get(name) or usual(name)
        report.replaced = name in self.replace
        outer = getattr(self._nested, "seconds", 0.0)
        self._nested.seconds = 0.0
        start = time.perf_counter()
        try:
            with watched(name, report.passes, self.skip_passes, seen=self.watch_passes):
                action(work, self)
        except Stopped:
            raise
        except BaseException as error:
            report.error = f"{type(error).__name__}: {error}"
            report.explained = explained(error, work, name)
            raise
        finally:
            whole = time.perf_counter() - start
            report.seconds = whole - self._nested.seconds
            self._nested.seconds = outer + whole
            if before is not None and not report.error:
                after = operators(work.gm)
                report.nodes_after = sum(after.values())
                report.removed, report.added = dict(before - after), dict(after - before)
            elif name == "partition" and work.halves is not None:
                report.nodes_after = sum(node_count(half) or 0 for half in work.halves)
            else:
                report.nodes_after = node_count(work.gm)
            report.produced = work.produced
            self._tell("after", stage, work, report)

    def _tell(self, when: str, *given: Any) -> None:
        """Calls all observers. An observer that raises causes a warning; the compile goes on and its own errors are
        kept."""
        for observer in self.observers:
            try:
                getattr(observer, when)(*given)
            except Exception as error:  # noqa: BLE001 - somebody else's code, looked at in the middle of a compile
                text = f"an observer of the compile path failed in {when!r} ({type(error).__name__}: {error})"
                warnings.warn(f"{text}: {type(observer).__name__} of {type(observer).__module__}", stacklevel=2)

    def skipped_passes(self) -> list[str]:
        """A sentence for each pass that was to be skipped: how often it was, or that it did not run for this graph."""
        return outcomes(self.skip_passes, [pass_report for report in self.reports for pass_report in report.passes])


def usual(name: str) -> Action:
    """The default action of a stage: calls its function with the fields that its row takes, and sets the field that it
    gives."""
    stage = STAGES[name]
    function = getattr(import_module(f".{stage.home}", __package__), name)

    def run(work: Work, _: Pipeline) -> None:
        result = function(work, *(getattr(work, field) for field in stage.takes))
        if stage.gives:
            setattr(work, stage.gives, result)

    return run


def operators(gm: Any) -> Counter[str]:
    """How often each operator stands in a graph and the graphs inside it."""
    nodes = [node for graph in _graphs(gm) for node in graph.nodes]
    return Counter(str(node.target) if node.op == "call_function" else node.op for node in nodes)


def node_count(gm: Any) -> int | None:
    """Nodes of a graph and of those inside it; None where there is no graph to count."""
    graphs = _graphs(gm)
    return sum(len(graph.nodes) for graph in graphs) if graphs else None


def _graphs(gm: Any) -> Sequence[Any]:
    if not hasattr(gm, "graph"):
        return []
    return [gm.graph, *(module.graph for name, module in gm.named_modules() if name and hasattr(module, "graph"))]
