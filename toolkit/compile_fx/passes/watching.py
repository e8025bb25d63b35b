"""Observes and skips single passes while a stage runs on this thread.

Torch's functions are replaced by ones that ask for this thread's watch (`torch_private.replacing`). A watch compares
the graph before and after a pass by its nodes' identities: it reads the graph and changes nothing. Nothing public tells
of a single pass: torch has `config.disabled_passes`, which compares parts of names and is one for all stages, and its
bisector, which works through files and environment variables. What a torch lacks is left out.

For example:

    with watched("joint", reports, skip={("joint", "remove_noop_ops")}):
        joint_graph_passes(gm)
    [(report.name, report.nodes_after, report.skipped_because) for report in reports]
    # [('canonicalize_aten_ir_passes', 12, ''), ('remove_noop_ops', 12, 'asked for'), ...]
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

from torch import fx

from ....dumps.errors import CannotSkipError
from ....dumps.walk import user_frame
from ... import torch_private as t
from ...live.spec import setting
from ...torch_private.replacing import Function, Hooks, Replacement
from . import GROUPS, REWRITING, Matched, PassReport, known, pattern_name, same_pattern
from .table import PASSES, NamedPass, calls

_ALIASES = {(row.stage, alias): row.name for row in PASSES.values() for alias in row.aliases}
_LINES = 3
"""Lines of the user's code that are kept per pattern."""

Snapshot = list[tuple[Any, Any, Any, Any]]


def snapshot(gm: Any) -> Snapshot:
    """(node, target, args, kwargs) of each node, in order. Arguments compare by identity: fx makes new ones on each
    change."""
    graph = getattr(gm, "graph", gm)
    return [(node, node.target, node.args, node.kwargs) for node in graph.nodes]


class StageWatch:
    """The watch of one stage on one thread. `skip`: names of passes, and `group/pattern` for single patterns."""

    def __init__(self, stage: str, reports: list[PassReport], skip: Collection[str] = ()) -> None:
        self.stage = stage
        self.reports = reports
        self.skip = {name for name in skip if "/" not in name}
        self.skip_patterns = [name.partition("/")[::2] for name in skip if "/" in name]
        self.gm: Any = None
        self.path = ""
        self.stack: list[tuple[PassReport, Any]] = []
        """The passes that run now, each inside the one before, with its graph."""

    @property
    def inside(self) -> str:
        """The pass that is running, "" between passes."""
        return self.stack[-1][0].name if self.stack else ""

    def around(self, name: str, gm: Any, call: Callable[[], Any], skipped: Any = None) -> Any:
        """Runs one pass and reports it, or returns `skipped` for it."""
        own = name if (self.stage, name) in PASSES else _ALIASES.get((self.stage, name), name)
        report = PassReport(self.stage, own, self.path, name if own != name else "", self.inside)
        self.reports.append(report)
        row = known(self.stage, own)
        before = snapshot(gm)
        report.nodes_before = report.nodes_after = len(before)
        if own in self.skip or (row is not None and row.name in self.skip):
            self._refuse(row, (node for node, *_ in before))
            report.skipped_because = "asked for"
            return skipped
        self.stack.append((report, getattr(gm, "graph", gm)))
        start = time.perf_counter()
        try:
            returned = call()
        except BaseException as error:
            report.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            report.seconds = time.perf_counter() - start
            self.stack.pop()
        compare(report, before, snapshot(returned if hasattr(returned, "graph") else gm))
        return returned

    def match(self, entry: Any, match: Any, graph: Any, node: Any, call: Callable[[], Any]) -> Any:
        """Applies a pattern's replacement to one match, or leaves the graph as it is."""
        if not self.stack or graph is not self.stack[-1][1]:  # the graph of a replacement, which is traced meanwhile
            return call()
        report, name = self.stack[-1][0], pattern_name(entry)
        matched = next((earlier for earlier in report.matched if earlier.name == name), None)
        if matched is None:
            report.matched.append(matched := Matched(name))
        line = " ".join(user_frame(getattr(node, "stack_trace", None) or "")).strip()
        if line and line not in matched.lines and len(matched.lines) < _LINES:
            matched.lines.append(line)
        if any(group == report.name and same_pattern(name, pattern) for group, pattern in self.skip_patterns):
            self._refuse(known(self.stage, report.name), match.nodes)
            matched.skipped += 1
            return None
        matched.count += 1
        return call()

    @contextlib.contextmanager
    def at_graph(self, gm: Any, path: str) -> Iterator[None]:
        """Sets the graph for passes that do not get it as an argument, while entered."""
        outer = self.gm, self.path
        self.gm, self.path = gm, path
        graph = gm.graph
        seen = self.stage == "post_grad" and bool(setting("inductor", "dce")[1])
        if seen:  # a method of the graph, and no function of Inductor's
            graph.eliminate_dead_code = partial(self._dce, gm, graph.eliminate_dead_code)
        try:
            yield
        finally:
            self.gm, self.path = outer
            if seen:
                del graph.eliminate_dead_code

    def _dce(self, gm: Any, original: Function, *args: Any, **kwargs: Any) -> Any:
        if self.stack:
            return original(*args, **kwargs)
        return self.around("dce", gm, lambda: original(*args, **kwargs), skipped=False)

    def _refuse(self, row: NamedPass | None, nodes: Iterable[Any]) -> None:
        if row is None or not row.needed_for:
            return
        in_way = [node.name for node in nodes if str(node.target) in row.needed_for]
        if in_way:
            what = f"the pass {row.full_name} cannot be skipped for this graph"
            raise CannotSkipError(what, f"{row.needed} (node {in_way[0]})", "leave it in")


def compare(report: PassReport, before: Snapshot, after: Snapshot) -> None:
    """Writes into the report what changed between two snapshots of a graph."""
    report.nodes_after = len(after)
    if len(before) == len(after) and all(
        a is e and b is f and c is g and d is h for (a, b, c, d), (e, f, g, h) in zip(before, after, strict=True)
    ):
        return
    old, new = Counter(map(_operator, before)), Counter(map(_operator, after))
    report.removed, report.added = dict(old - new), dict(new - old)
    were = {node: rest for node, *rest in before}
    stayed = [(node, rest) for node, *rest in after if node in were]
    report.rewired = sum(any(a is not b for a, b in zip(rest, were[node], strict=True)) for node, rest in stayed)
    places = {node: place for place, (node, *_) in enumerate(before)}
    order = [places[node] for node, _ in stayed]
    report.reordered = any(a > b for a, b in itertools.pairwise(order))


def _operator(row: tuple[Any, Any, Any, Any]) -> str:
    node, target, *_ = row
    return str(target) if node.op == "call_function" else node.op


def replacements() -> Iterator[Replacement]:
    """The functions of torch that passes are called through, with their wrappers. A setting of a compile can add
    more."""
    for row, owner, attribute in calls():
        yield owner, attribute, partial(_seen, partial(_called, row))
    for method in ("apply_gm_pass", "apply_graph_pass"):
        yield t.GraphTransformObserver, method, partial(_seen, _observed)
    yield t.PatternMatcherPass, "apply", partial(_seen, partial(_applied, applied_bare()))
    yield *t.home("apply_group_batch_fusion"), partial(_seen, _fused)
    yield *t.home("pass_execution_and_save"), partial(_seen, _predispatched)
    for kind in t.PatternEntry.__subclasses__():
        if "apply" in vars(kind):  # what a pattern does when it matched, once per match
            yield kind, "apply", _matched


_hooks = Hooks(replacements)


def current() -> StageWatch | None:
    """The watch of the stage that runs on this thread; None where none was asked for."""
    return _hooks.here


@contextlib.contextmanager
def watched(
    stage: str, reports: list[PassReport], skip: Collection[tuple[str, str]] = (), *, seen: bool = True
) -> Iterator[None]:
    """While entered, passes of `stage` on this thread are added to `reports` and those of `skip` left out.

    Costs nothing where passes are not observed (`seen`) and none of this stage is skipped. Raises UsageError, from
    inside, for a pass that the graph at hand cannot do without.
    """
    mine = {name for where, name in skip if where == stage}
    if stage not in REWRITING or not (seen or mine):
        yield
        return
    with _hooks.inside(StageWatch(stage, reports, mine)):
        yield


def at_graph(gm: Any, path: str) -> contextlib.AbstractContextManager[None]:
    """While entered, the passes that run are those of the graph at `path`, "" for the stage's own."""
    watch = current()
    return watch.at_graph(gm, path) if watch is not None else contextlib.nullcontext()


def _seen(asks: Callable[..., tuple[str, Any, Any] | None], original: Function) -> Function:
    """Wraps a pass so that this thread's watch sees it: `asks(watch, *args)` gives its name, its graph and what it
    returns when skipped."""

    def run(*args: Any, **kwargs: Any) -> Any:
        watch = current()
        about = asks(watch, *args, **kwargs) if watch is not None else None
        if watch is None or about is None:
            return original(*args, **kwargs)
        name, gm, skipped = about
        return watch.around(name, gm, lambda: original(*args, **kwargs), skipped)

    return run


def _called(row: NamedPass, watch: StageWatch, *args: Any, **_: Any) -> tuple[str, Any, Any] | None:
    if watch.stage != row.stage or watch.inside != row.inside:
        return None
    gm = args[0] if hasattr(args[0], "nodes") or isinstance(args[0], fx.GraphModule) else watch.gm
    return row.name, gm, {"graph": args[0], "count": 0}.get(row.called or "")


def _observed(watch: StageWatch, observer: Any, pass_fn: Function) -> tuple[str, Any, Any] | None:
    if GROUPS.get(observer.subsystem or "") not in (None, watch.stage):
        return None
    fused = getattr(pass_fn, "func", None) is t.group_batch_fusion_passes  # its observer has another pass's name
    return "group_batch_fusion_passes" if fused else observer.passname, observer.gm, None


def _applied(bare: dict[int, tuple[str, str]], watch: StageWatch, group: Any, gm: Any) -> tuple[str, Any, Any] | None:
    stage, name = bare.get(id(group), ("", ""))
    return None if watch.stage != stage or watch.stack else (name, gm, 0)


def _fused(_: StageWatch, graph: Any, rule: Any) -> tuple[str, Any, Any]:
    return fusion_name(rule), graph, None


def _predispatched(watch: StageWatch, function: Function, gm: Any, *_: Any) -> tuple[str, Any, Any] | None:
    return None if watch.stage != "pre_grad" or watch.stack else (function_name(function), gm, None)


def _matched(original: Function) -> Function:
    def run(entry: Any, match: Any, graph: Any, node: Any) -> Any:
        watch = current()
        if watch is None:
            return original(entry, match, graph, node)
        return watch.match(entry, match, graph, node, lambda: original(entry, match, graph, node))

    return run


def applied_bare() -> dict[int, tuple[str, str]]:
    """Groups of patterns that are applied without an observer: id -> (stage, name)."""
    groups = {id(t.early_patterns): ("joint", "early_patterns"), id(t.B2B_GEMM_PASS): ("post_grad", "b2b_gemm_pass")}
    groups |= {id(group): ("pre_grad", name) for name, group in t.PRE_GRAD_PATTERNS.items()}
    return groups


def fusion_name(rule: Any) -> str:
    """The name by which a setting asks for a group fusion."""
    known = {**t.PRE_GRAD_FUSIONS, **t.POST_GRAD_FUSIONS}
    return next((name for name, kind in known.items() if kind is type(rule)), type(rule).__name__)


def function_name(function: Callable[..., Any]) -> str:
    """What torch calls a pass before dispatch: its function's name, or that of the group whose `apply` it is."""
    group = getattr(function, "__self__", None)
    return str(getattr(group, "pass_name", None) or getattr(function, "__name__", "")).lstrip("_")
