# pyright: basic
"""What a child does for `graphdbg compile`: compiles a saved graph for fake inputs and reports each stage as it goes.

Events are sent before each risky step, so that they survive a crash of this process.

No tensor of the graph's inputs is made, and nothing is run; with `device` everything is moved, for which inputs are
synthesised. Runs in a child process, since a compile may crash it. No compile cache is read or written. Texts and
graphs that are too large for events go to files, and only those that were asked for.

For example: `ask("graphdbg.toolkit.compile_fx.showing.child:task", {"path": "run/0_0/forward", ...}, server=server)`.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import torch

from ....dumps import kernels as generated
from ....dumps import live
from ....dumps.errors import GraphdbgError
from ....dumps.store import SavedGraph, load_graph
from ....dumps.torchside.values import fake_of
from ....dumps.wording import counted
from ... import torch_private as t
from ...isolation.child import failure_of, is_memory_error, mark, report
from ...kernels.heard import both_ways, kernels_heard, line_of, names_of, numbered
from ...kernels.records import MISSING_DEVICE, Amount, BufferRow, CompileFailure, KernelRow, PassRow, StageRow
from ...live import gpu_only
from ...live.case import Case, Live, follow_saved
from ...live.eager import copy_graph
from ...live.entries import mode_of, patterns_without_device, shared_fakes
from ...live.spec import FULL_STAGES, ReplaySpec, in_force, settings
from ...triton.emission import architecture, emitted_kernels, triton_sources
from ...triton.needs import require_triton
from ...triton.pretended import pretending
from ...triton.retarget import put, retargeted
from ...triton.targets import target_of
from .. import graphs
from ..entering import compile_ahead_of_time, enter
from ..errors import carried, explain
from ..passes import PassReport, known
from ..pipeline import Observer, Pipeline, StageReport, node_count
from ..stage import STAGES, Coded, Stage, Work
from .asking import Request
from .tables import DEAD, FOLDED, REWRITTEN, SIZE, VIEW


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
        self._found: list[tuple[KernelRow, list[Any]]] = []

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == "post_grad":
            names = names_of(work.gm)
            self._before[self.name_of(work)] = [name for node, name in names.items() if node.op == "call_function"]
        if stage.name != "codegen":
            return
        self._found.clear()
        self._open.enter_context(kernels_heard(lambda row, origins, _: self._found.append((row, origins))))

    def after(self, stage: Stage, work: Work, report: StageReport) -> None:
        if stage.name != "codegen":
            return
        self._open.close()
        part = self.name_of(work)
        names = names_of(work.gm)
        order = {name: index for index, name in enumerate(names.values())}
        lines = {name: line for node, name in names.items() if (line := line_of(node))}
        for row, origins in self._found:
            known = {str(names.get(node, node.name)) for node in origins}
            row.nodes = sorted(known, key=lambda name: order.get(name, len(order)))
            row.lines = list(dict.fromkeys(lines[name] for name in row.nodes if name in lines))
        rows = [row for row, _ in self._found]
        self.rows[part], self.maps[part] = numbered(rows), both_ways(rows)
        self.without[part] = _without(names, self.maps[part], self._before.get(part, ()))
        self.lines[part] = lines
        if self.tell is not None and not report.error:
            self.tell(part)


def _without(names: dict[Any, str], known: dict[str, list[str]], before: Sequence[str]) -> dict[str, str]:
    """Nodes that no kernel names, with the reason."""
    here = [(node, name) for node, name in names.items() if node.op == "call_function" and name not in known]
    gone = [name for name in before if name not in set(names.values())]
    return {name: _why_none(node, known, names) for node, name in here} | dict.fromkeys(gone, REWRITTEN)


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
        """The work of the innermost stage that runs, or of the stage that failed."""
        self.failed = ""
        self.reports: list[StageReport] = []
        """The pipeline's reports: observers are not called for stages that it skips."""
        self._reported = 0
        self._names: dict[Work, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._before: list[Fingerprint] = []

    def name_of(self, work: Work) -> str:
        """What the part of this work is called in the rows."""
        return self._names.get(work, work.part)

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
        self._seen.add((part, stage.name))
        lowered = work.lowered.graph if stage.name == "lower" and work.lowered is not None else None
        if lowered is not None:
            extern = sum(isinstance(operation, t.ExternKernel) for operation in lowered.operations)
            row.notes.append(f"{extern} of them library calls") if extern else None
        if report.error and not self.failed:
            self.failed, self.work = stage.name, work
        if stage.name == "codegen" and not report.error and self.wanted.source:
            self._keep_source(work, part)
        tell("end", row=row)
        if stage.name == "codegen" and not report.error and self.wanted.target:
            self._compile_kernels(work, part)
        if lowered is not None:
            tell("buffers", part=part, buffers=buffers_of(lowered))

    def tell_skipped(self) -> None:
        """Rows for stages that were skipped since the last time."""
        new, self._reported = self.reports[self._reported :], len(self.reports)
        for skipped in new:
            if skipped.skipped_because:
                tell("end", row=row_of(skipped))

    def _name(self, stage: Stage, work: Work) -> None:
        if work in self._names:
            return
        known = [name for name in self._names.values() if name.partition(".")[0] == work.part]
        again = next((name for name in known if (name, stage.name) not in self._seen), None)
        self._names[work] = again or (work.part if not known else f"{work.part}.{len(known) + 1}")

    def _keep(self, work: Work, part: str, stage: str, when: str) -> None:
        if not hasattr(work.gm, "graph"):
            return
        if self.wanted.graphs:
            self._write(part, f"{when}_{stage}.py", graphs.text_of(work.gm))
        if self.wanted.diff == stage:
            record = live.encode(work.gm, id=f"{part}/{stage}", stage=STAGES[stage].graphs[0])
            self._write(part, f"{when}_{stage}.json", msgspec.json.encode(record))

    def _keep_source(self, work: Work, part: str) -> None:
        text, extra = _texts(work)
        if text is None:
            return
        for name, source in generated.split(text).items():
            if name == generated.WHOLE:
                self._write(part, name, source)
            else:
                self._write(part, f"kernels/{name}", self._headed(part, name, source))
        if extra:
            self._write(part, "kernels/all.cpp", extra)

    def _compile_kernels(self, work: Work, part: str) -> None:
        """Every form of each Triton kernel, for the pretended GPU."""
        text = _texts(work)[0] or ""
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
        head = f"{sign} {name}: called {counted(len(rows), 'time')}, {counted(len(nodes), 'node')}"
        return "\n".join([head, *(f"{sign} {node}  {lines.get(node, '')}".rstrip() for node in nodes), source])

    def _write(self, part: str, name: str, data: str | bytes) -> None:
        path = self.folder / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def _tell_kernels(self, part: str) -> None:
        rows, maps, without = self.kernels.rows, self.kernels.maps, self.kernels.without
        tell("kernels", part=part, kernels=rows[part], node_to_kernel=maps[part], without_kernel=without[part])


def _texts(work: Work) -> tuple[str | None, str | None]:
    """The text of the wrapper and that of the kernels; None for one that is no text."""
    coded = work.coded or Coded(None, None)
    return getattr(coded.wrapper, "value", None), getattr(coded.kernels, "value", None)


def row_of(report: StageReport) -> StageRow:
    """A report as a row, without the fields that need the graph (`reordered`, `rewired`, `relaid`)."""
    row = StageRow(report.part, report.stage, seconds=report.seconds, replaced=report.replaced)
    unit = "nodes" if report.skipped_because else STAGES[report.stage].unit
    nodes = [None if count is None else (count, "nodes") for count in (report.nodes_before, report.nodes_after)]
    took = nodes[0] if unit in ("nodes", "buffers") else report.took if unit else None
    produced = nodes[1] if unit == "nodes" else report.produced if unit else None
    row.took, row.produced = (Amount(*amount) if amount is not None else None for amount in (took, produced))
    if report.stage == "capture":
        row.produced = None  # its results are the parts that follow
    row.removed, row.added, row.notes = dict(report.removed), dict(report.added), list(report.notes)
    row.passes = [pass_row(pass_report) for pass_report in report.passes]
    if report.skipped_because:
        row.status, row.why, row.seconds = "skipped", report.skipped_because, None
    elif report.error:
        row.status, row.why, row.produced = "failed", report.error, None
    return row


def pass_row(report: PassReport) -> PassRow:
    """A pass report as a row. `changes`: the places changed, counted in matches where there are any, else in nodes."""
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


def fingerprint(gm: Any) -> Fingerprint:
    """The texts by which a graph, with the graphs inside it, is compared before and after a stage; empty for no
    graph."""
    if not isinstance(gm, torch.fx.GraphModule):
        return {}
    calls: Fingerprint = {}
    for name, part in gm.named_modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                call = f"{node.op} {node.target} {node.args} {node.kwargs}"
                calls[f"{name}/{node.name}"] = (call, _value(fake_of(node)))
    return calls


def changed(before: Fingerprint, after: Fingerprint) -> tuple[bool, int, int]:
    """Compares the nodes that two states of a graph have in common, by name: whether they are reordered, how many have
    other arguments, and how many another value."""
    both = [name for name in before if name in after]
    rewired = sum(before[name][0] != after[name][0] for name in both)
    relaid = sum(bool(before[name][1]) and bool(after[name][1]) and before[name][1] != after[name][1] for name in both)
    return both != [name for name in after if name in before], rewired, relaid


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        stride = tuple(value.stride()) if value.layout is torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {stride} {value.device}"
    if isinstance(value, (tuple, list)):
        return ", ".join(_value(part) for part in value)
    return ""


_NO_DEVICE = re.compile(
    "not compiled with CUDA|NVIDIA driver|No CUDA GPUs|CUDA driver|active drivers|no GPU|re-initialize CUDA|triton"
)
"""What torch and Triton say where there is no device; a build with CUDA in a forked child: re-initialize."""


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """Compiles in the child. Returns {}, also where a stage failed, which the events report. Raises errors that a user
    can fix."""
    mark("load the graph")
    saved = load_graph(payload["path"])
    request = msgspec.convert(payload, Request)
    case = _case(saved, request.device)
    teller = Teller(Path(payload["folder"]), request)
    about = _for_target(saved, case, teller) if request.target else {"target": "", "assembler": ""}
    devices = sorted({value.device.type for value in case.inputs if isinstance(value, torch.Tensor)})
    lacking = [device for device in devices if device != "cpu" and not _has(device) and not request.target]
    until = request.until
    if lacking:
        until = until or "codegen"
    if until is None and not request.target and (why := gpu_only.refusal(case.gm)) is not None:
        until = "codegen"
        case.notes.append(f"{why}; so it stops after codegen, and --target cuda:90 shows its kernels for a GPU")
    version, nodes = str(torch.__version__), node_count(case.gm)
    tell("start", devices=devices, lacking=lacking, torch=version, nodes=nodes, notes=case.notes, **about)
    began = time.perf_counter()
    try:
        with patterns_without_device() if lacking or request.target else contextlib.nullcontext():
            lost = _compile(case, teller, request, until)
        tell("notes", notes=lost)
    except BaseException as error:  # whatever a stage raises is what is to be reported
        if not teller.failed and not isinstance(error, Exception):
            raise
        if (mistake := _mistake(error)) is not None:
            raise mistake from None
        tell("error", error=_trouble(error, teller, lacking), seconds=time.perf_counter() - began)
        return {}
    tell("done", seconds=time.perf_counter() - began)
    return {}


def _case(saved: SavedGraph, device: str | None) -> Live:
    """The graph with fake inputs: the recorded ones with their symbols; fakes of synthesised inputs where too little
    was recorded of an input, or `device` moves the graph."""
    if device is None:
        gm, fakes, mode = live.fake_module(saved.record, saved.tensors, where=str(saved.path))
        notes = follow_saved(gm, mode, saved.record)
        users = [len(node.users) for node in gm.graph.nodes if node.op == "placeholder"]
        if all(value is not None or not used for value, used in zip(fakes, users, strict=True)):
            return Live(gm, list(fakes), ReplaySpec.of(saved.record), notes)
    case = Case(saved).live(device=device)
    gm = copy_graph(case.gm)
    fakes = shared_fakes(gm, case.inputs, case.spec.dynamic)[0]
    return Live(gm, fakes, case.spec, case.notes)


def _for_target(saved: SavedGraph, case: Live, teller: Teller) -> dict[str, str]:
    """Moves the case to the pretended GPU, reports what the recording has for it, and names target and assembler."""
    require_triton()
    import triton

    on_gpu = any(isinstance(value, torch.Tensor) and value.is_cuda for value in case.inputs)
    if case.spec.stage not in FULL_STAGES:
        case.inputs[:] = retargeted(case.gm, case.inputs, mode_of(case.gm, case.inputs)).fakes
    if not on_gpu:
        case.notes.append("recorded on the CPU; these are the kernels that Inductor writes for a GPU")
    for file in saved.code_files():
        if file.name == "output_code.py":
            teller.recorded.update(triton_sources(file.read_text()))
    target = target_of(teller.wanted.target)
    assembler = f"Triton {triton.__version__}, {architecture(target.capability)}"
    return {"target": target.text(), "assembler": assembler}


def _compile(case: Live, teller: Teller, request: Request, until: str | None) -> list[str]:
    onto = [_Onto()] if request.target and case.spec.stage in FULL_STAGES else []
    pipeline = Pipeline([*onto, teller.kernels, teller], skip=request.skip, until=until)
    teller.reports = pipeline.reports
    pretended = pretending(target_of(request.target)) if request.target else contextlib.nullcontext()
    with settings(case.spec.config) as lost, in_force(case.spec), pretended:
        if request.package:
            compile_ahead_of_time(case.gm, case.inputs, path=request.package, pipeline=pipeline)
        else:
            enter(case.gm, case.inputs, case.spec, pipeline)
    teller.tell_skipped()
    return [*lost, *pipeline.skipped_passes()]


class _Onto(Observer):
    """Moves graphs to the pretended GPU after AOTAutograd, whose engine takes no tensors of a GPU that torch does not
    have."""

    def before(self, stage: Stage, work: Work) -> None:
        if stage.name == "joint":
            put(work.gm, None)
        elif stage.name == "post_grad":
            work.inputs = put(work.gm, list(work.inputs))[0]


def _has(device: str) -> bool:
    return device == "meta" or (device == "cuda" and torch.cuda.is_available())


def _mistake(error: BaseException | None) -> GraphdbgError | None:
    """An error that the user can fix, also where torch has wrapped it."""
    for _ in range(20):
        if error is None or isinstance(error, GraphdbgError):
            return error
        error = getattr(error, "inner_exception", None) or error.__cause__
    return None


def _trouble(error: BaseException, teller: Teller, lacking: Sequence[str]) -> CompileFailure:
    """The account of an error: in which stage, of what type (the one that torch wrapped), behind which nodes, at which
    lines."""
    account = carried(error) or explain(error, teller.work, teller.failed or "entering")
    inner = getattr(error, "inner_exception", None) or error
    part = teller.name_of(teller.work) if teller.work is not None else ""
    nodes = account.nodes
    failure = failure_of(inner)
    trouble = CompileFailure(teller.failed, failure.type, str(error), part, account.kind, [node.node for node in nodes])
    trouble.lines = list(dict.fromkeys(node.line for node in nodes if node.line))
    trouble.kernel, trouble.excerpt, trouble.advice = account.kernel, account.text(), account.fix
    trouble.traceback = failure.traceback
    if lacking and _NO_DEVICE.search(str(inner)):
        trouble.kind, device = MISSING_DEVICE, ", ".join(lacking)
        trouble.message = f"{teller.failed} asks the device itself, and there is no {device} device here"
        trouble.advice = "--target cuda:90 writes the code for a GPU that is not here; --device cpu moves the graph"
    if is_memory_error(inner) and not trouble.advice:
        trouble.advice = "memory ran out: close what else runs, or compile a smaller graph (graphdbg minify)"
    return trouble
