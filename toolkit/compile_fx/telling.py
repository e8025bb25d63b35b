# pyright: basic
"""Reports a compile as it goes, by events sent before each risky step, so that they survive a crash of this process.

An observer of the pipeline. Texts and graphs that are too large for events go to files, and only those that were asked
for.

For example:

    teller = Teller(folder, Request(graphs=True))
    compile_fx(gm, inputs, pipeline=Pipeline([teller, teller.kernels]))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from ...dumps import kernels as generated
from ...dumps import live
from ...dumps.wording import counted
from .. import torch_private as t
from ..isolation.child import mark, report
from ..kernels.heard import both_ways, kernels_heard, line_of, names_of, numbered
from ..kernels.records import Amount, BufferRow, KernelRow, PassRow, StageRow
from . import logs
from .passes import PassReport, known
from .pipeline import Observer, StageReport, node_count
from .showing.asking import Request
from .showing.kernel_table import DEAD, FOLDED, REWRITTEN, SIZE, VIEW
from .stage import Stage
from .work import Work


class KernelWatch(Observer):
    """Collects kernels by part. `rows` in the order in which they are called; `maps` node -> kernels; `without` node ->
    why none.

    `tell` is called with a part's name when its code is written; `name_of` gives the part of a Work another name.
    """

    def __init__(
        self, tell: Callable[[str], None] | None = None, name_of: Callable[[Work], str] = lambda work: work.part
    ) -> None:
        self.tell, self.name_of = tell, name_of
        self.rows: dict[str, list[KernelRow]] = {}
        self.maps: dict[str, dict[str, list[str]]] = {}
        self.without: dict[str, dict[str, str]] = {}
        self.lines: dict[str, dict[str, str]] = {}
        """Part -> node -> the user's line, of every node that has one."""
        self._before: dict[str, list[str]] = {}
        self._open = ExitStack()
        self._found: list[KernelRow] = []
        self._origins: list[list[Any]] = []

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == "post_grad":
            names = names_of(work.gm)
            self._before[self.name_of(work)] = [name for node, name in names.items() if node.op == "call_function"]
        if stage.name != "codegen":
            return
        self._found, self._origins = [], []
        self._open.enter_context(kernels_heard(self._hear))

    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        if stage.name != "codegen":
            return
        self._open.close()
        part = self.name_of(work)
        names = names_of(work.gm)
        order = {name: index for index, name in enumerate(names.values())}
        lines = {name: line for node, name in names.items() if (line := line_of(node))}
        for row, origins in zip(self._found, self._origins, strict=True):
            known = {str(names.get(node, node.name)) for node in origins}
            row.nodes = sorted(known, key=lambda name: order.get(name, len(order)))
            row.lines = list(dict.fromkeys(lines[name] for name in row.nodes if name in lines))
        self.rows[part] = numbered(self._found)
        self.maps[part] = both_ways(self._found)
        self.without[part] = _without(names, self.maps[part], self._before.get(part, ()))
        self.lines[part] = lines
        if self.tell is not None and not report.error:
            self.tell(part)

    def _hear(self, row: KernelRow, origins: list[Any], _: Any) -> None:
        self._found.append(row)
        self._origins.append(origins)


def _without(names: dict[Any, str], known: dict[str, list[str]], before: Sequence[str]) -> dict[str, str]:
    """Nodes that no kernel names, with the reason."""
    reasons: dict[str, str] = {}
    present = set(names.values())
    for node, name in names.items():
        if node.op == "call_function" and name not in known:
            reasons[name] = _why_none(node, known, names)
    for name in before:
        if name not in present:
            reasons[name] = REWRITTEN
    return reasons


def _why_none(node: Any, known: dict[str, list[str]], names: dict[Any, str]) -> str:
    value = node.meta.get("val")
    if getattr(node.target, "__name__", "") == "getitem" and node.args and hasattr(node.args[0], "name"):
        source = names[node.args[0]]
        kernels = known.get(source)
        return f"a result of {source}" + (f", in {', '.join(kernels)}" if kernels else "")
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return SIZE
    if not node.users:
        return DEAD
    schema = getattr(node.target, "_schema", None)
    aliases = [output.alias_info for output in schema.returns] if schema is not None else []
    if aliases and all(output is not None and not output.is_write for output in aliases):
        return VIEW
    return FOLDED


_GRAPHLESS = ("align", "cudagraphs", "load")
_AFTER_LOWERING = ("schedule", "codegen")


def tell(event: str, **about: Any) -> None:
    """Reports an event with its facts."""
    report({"event": event, **about})


class Teller(Observer):
    """Observes all stages of all parts. A part that comes a second time (another half, a region) is called `forward.2`.

    `wanted` says what is to be kept beyond rows: readable graphs around each stage, generated code, records around one
    stage; of Triton kernels the forms for a target. `recorded`: kernel -> recorded source.
    """

    wants_passes = True

    def __init__(self, folder: Path, wanted: Request) -> None:
        self.folder, self.wanted = folder, wanted
        self.recorded: dict[str, str] = {}
        self.kernels = KernelWatch(self._tell_kernels, self.name_of)
        self.work: Work | None = None
        """Of the innermost stage that runs, or of the one that failed."""
        self.failed = ""
        self.reports: list[StageReport] = []
        """The pipeline's: it tells observers nothing of stages that it skips."""
        self._told_skipped = 0
        self._names: dict[int, str] = {}
        self._kept: list[Work] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._before: list[Fingerprint] = []
        self._took: list[Amount | None] = []
        self._last: dict[str, Amount | None] = {}

    def name_of(self, work: Work) -> str:
        """What the part of this work is called in the rows."""
        return self._names.get(id(work), work.part)

    def before(self, stage: Stage, work: Work) -> None:
        self.tell_skipped()
        self._name(stage, work)
        self.work = work
        part = self.name_of(work)
        mark(f"{stage.name} ({part})")
        tell("begin", part=part, stage=stage.name)
        self._before.append(fingerprint(work.gm) if stage.rewrites else {})
        if stage.rewrites:
            self._keep(work, part, stage.name, "before")

    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        part = self.name_of(work)
        before = self._before.pop()
        row = row_of(report)
        row.part = part
        if stage.rewrites and not report.error:
            row.reordered, row.rewired, row.relaid = changed(before, fingerprint(work.gm))
            self._keep(work, part, stage.name, "after")
        self._measure(stage, work, row)
        if report.error and not self.failed:
            self.failed, self.work = stage.name, work
        if stage.name == "codegen" and not report.error and self.wanted.source:
            self._keep_source(work, part)
        tell("end", row=row)
        if stage.name == "codegen" and not report.error and self.wanted.target:
            self._compile_kernels(work, part)
        if stage.name == "lower" and not report.error:
            tell("buffers", part=part, buffers=buffers_of(work.lowering))

    def tell_skipped(self) -> None:
        """Rows for stages that were skipped since the last time."""
        new, self._told_skipped = self.reports[self._told_skipped :], len(self.reports)
        for skipped in new:
            if skipped.skipped_because:
                tell("end", row=row_of(skipped))

    def _name(self, stage: Stage, work: Work) -> None:
        if id(work) in self._names:
            return
        self._kept.append(work)  # so that no other has its id
        known = [name for name in self._names.values() if name.partition(".")[0] == work.part]
        again = next((name for name in known if not self._seen[name, stage.name]), None)
        self._names[id(work)] = again or (work.part if not known else f"{work.part}.{len(known) + 1}")

    def _measure(self, stage: Stage, work: Work, row: StageRow) -> None:
        """Amounts in their own units: nodes up to lowering, then buffers, groups, lines; none behind that."""
        part = row.part
        self._seen[part, stage.name] += 1
        if stage.name in _GRAPHLESS:
            row.took = row.made = None
        elif stage.name in ("lower", *_AFTER_LOWERING):
            amount = None if row.status == "failed" or work.made is None else Amount(*work.made)
            if stage.name != "lower":
                row.took = self._last.get(part)
            row.made = self._last[part] = amount
            row.removed, row.added = {}, {}
        if stage.name == "lower" and row.made is not None:
            extern = sum(isinstance(operation, t.ExternKernel) for operation in work.lowering.operations)
            row.notes.append(f"{extern} of them library calls") if extern else None
        if stage.name == "partition" and work.halves is not None:
            row.made = Amount(sum(node_count(half) or 0 for half in work.halves), "nodes")
        if stage.name == "capture":
            row.made = None

    def _keep(self, work: Work, part: str, stage: str, when: str) -> None:
        if not hasattr(work.gm, "graph"):
            return
        if self.wanted.graphs:
            self._write(part, f"{when}_{stage}.py", logs.text_of(work.gm))
        if self.wanted.diff == stage:
            recorded = {"pre_grad": "dynamo", "joint": "joint"}.get(stage, "forward")
            record = live.encode(work.gm, id=f"{part}/{stage}", stage=recorded)
            self._write(part, f"{when}_{stage}.json", msgspec.json.encode(record))

    def _keep_source(self, work: Work, part: str) -> None:
        text = getattr(work.wrapper_code, "value", None)
        if text is None:
            return
        extra = getattr(work.kernel_code, "value", None)
        for name, source in generated.split(text).items():
            whole = name == generated.WHOLE
            self._write(
                part, name if whole else f"kernels/{name}", source if whole else self._headed(part, name, source)
            )
        if extra:
            self._write(part, "kernels/all.cpp", extra)

    def _compile_kernels(self, work: Work, part: str) -> None:
        """Every form of each Triton kernel, for the pretended GPU."""
        from ..triton.emission import emitted_kernels
        from ..triton.targets import target_of

        text = getattr(work.wrapper_code, "value", None) or ""
        mark(f"Triton ({part})")
        target, folder = target_of(self.wanted.target), self.folder / part / "triton"
        rows = emitted_kernels(text, target, self.wanted.forms, folder, self.recorded)
        tell("compiled", part=part, compiled=rows)

    def _headed(self, part: str, file: str, source: str) -> str:
        """A kernel's source below its nodes and the user's lines."""
        name, _, suffix = file.rpartition(".")
        sign = "//" if suffix == "cpp" else "#"
        rows = [row for row in self.kernels.rows.get(part, ()) if row.name == name]
        lines = self.kernels.lines.get(part, {})
        nodes = dict.fromkeys(node for row in rows for node in row.nodes)
        head = [f"{sign} {node}  {lines.get(node, '')}".rstrip() for node in nodes]
        return "\n".join(
            [f"{sign} {name}: called {counted(len(rows), 'time')}, {counted(len(nodes), 'node')}", *head, source]
        )

    def _write(self, part: str, name: str, data: str | bytes) -> None:
        path = self.folder / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def _tell_kernels(self, part: str) -> None:
        watch = self.kernels
        tell(
            "kernels",
            part=part,
            kernels=watch.rows[part],
            node_to_kernel=watch.maps[part],
            without_kernel=watch.without[part],
        )


def row_of(report: StageReport) -> StageRow:
    """A report as a row, without what only the graph tells."""
    row = StageRow(report.part, report.stage, seconds=report.seconds, replaced=report.replaced)
    if report.nodes_before is not None:
        row.took = Amount(report.nodes_before, "nodes")
    if report.nodes_after is not None:
        row.made = Amount(report.nodes_after, "nodes")
    row.removed, row.added, row.notes = dict(report.removed), dict(report.added), list(report.notes)
    row.passes = [pass_row(pass_report) for pass_report in report.passes]
    if report.skipped_because:
        row.status, row.why, row.seconds = "skipped", report.skipped_because, None
    elif report.error:
        row.status, row.why, row.made = "failed", report.error, None
    return row


def pass_row(report: PassReport) -> PassRow:
    """One pass. In how many places it changed the graph: matches where it tells them, else nodes."""
    about = known(report.stage, report.name)
    row = PassRow(report.name, report.graph, report.seconds, report.nodes_before, report.nodes_after)
    row.matched = {match.name: match.count for match in report.matched if match.count}
    row.lines = list(dict.fromkeys(line for match in report.matched if match.count for line in match.lines))
    if report.changed or report.matches:
        nodes = max(sum(report.removed.values()), sum(report.added.values()))
        row.changes = report.matches or nodes or report.rewired or 1
    if about is not None and about.needed:
        row.skippable, row.why_not = not about.always_needed, about.needed
    row.status = "skipped" if report.skipped_because else "failed" if report.error else "ok"
    return row


def buffers_of(lowering: Any) -> list[BufferRow]:
    """The buffers that lowering made, with the nodes behind them."""
    rows: list[BufferRow] = []
    for buffer in lowering.buffers:
        layout = getattr(buffer, "layout", None)
        size = [str(dim) for dim in getattr(layout, "size", ())]
        dtype = str(getattr(layout, "dtype", "")).removeprefix("torch.")
        nodes = [node.name for node in buffer.get_origins()]
        rows.append(BufferRow(str(buffer.get_name()), type(buffer).__name__, size, dtype, nodes))
    return rows


Fingerprint = dict[str, tuple[str, str]]
"""Node -> the text of its call, the text of its value; in the order of the graph."""


class Changed(NamedTuple):
    """Of the nodes that stand in both graphs."""

    reordered: bool
    rewired: int
    relaid: int


def fingerprint(gm: Any) -> Fingerprint:
    """What is compared of a graph and of those inside it; empty for what is no graph."""
    if not isinstance(gm, torch.fx.GraphModule):
        return {}
    calls: Fingerprint = {}
    for name, part in gm.named_modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                call = f"{node.op} {node.target} {node.args} {node.kwargs}"
                calls[f"{name}/{node.name}"] = (call, _value(node.meta.get("val", node.meta.get("example_value"))))
    return calls


def changed(before: Fingerprint, after: Fingerprint) -> Changed:
    """How two states of one graph differ, by the names of their nodes."""
    both = [name for name in before if name in after]
    rewired = sum(before[name][0] != after[name][0] for name in both)
    relaid = sum(bool(before[name][1]) and bool(after[name][1]) and before[name][1] != after[name][1] for name in both)
    return Changed(both != [name for name in after if name in before], rewired, relaid)


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        stride = tuple(value.stride()) if value.layout is torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {stride} {value.device}"
    if isinstance(value, (tuple, list)):
        return ", ".join(_value(part) for part in value)
    return ""
