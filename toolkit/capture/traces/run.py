"""Imports the graphs of structured traces, one process for each rank, or of a TORCH_COMPILE_DEBUG folder, as a run.

Also: one process as its trace records it: which graphs it compiled, in their order, with what is known of their
inputs, how each compile ended, and why it came to be.

Nothing of a trace is run: its graphs are parsed, and loaded by the names on the allow-list like those of any other run.

For example:

    import_trace(Path("trace"), Path("graphdbg-run-1"))
    # ImportedRun(path='graphdbg-run-1', kind='structured trace', graphs=14, processes=2, left_out=[])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from ....dumps.errors import CannotImportError, DamagedError, UnreadableError
from ....dumps.ids import compile_name
from ....dumps.opening import read_text
from ....dumps.schema import (
    FORMAT,
    FROM_TRACE,
    STAGES,
    Ambient,
    Arg,
    GraphRecord,
    InputRecord,
    RunRecord,
    SymbolRecord,
    SymValue,
    TensorValue,
)
from ....dumps.validate import check_graph
from ....dumps.wording import counted
from ....dumps.writer import RunWriter
from . import lines, text
from .lines import TraceLine

_STAGES = {
    "dynamo_output_graph": "dynamo",
    "after_pre_grad_graph": "pre_grad",
    "aot_joint_graph": "joint",
    "aot_forward_graph": "forward",
    "aot_backward_graph": "backward",
    "aot_inference_graph": "inference",
    "after_joint_graph": "joint_passed",
    "inductor_post_grad_graph": "post_grad",
    "compiled_autograd_graph": "compiled_autograd",
}
_INNER = ("joint_passed", "inference", "forward", "backward")
_WITH_EXAMPLES = ("dynamo", "pre_grad")
_BREAK = re.compile(r"Graph Break Reason: (?:Encountered graph break when [^\n]*\n)?")
_PLAIN_INPUT = re.compile(r"PlainAOTInput\(idx=(\d+)\)")


@dataclass
class TraceGraph:
    """One graph of a trace, with its stage, compile id and settings, and how its compile ended ("captured" where the
    trace does not say)."""

    stage: str
    compile_id: str
    text: text.GraphOfTrace
    config: dict[str, dict[str, Arg]] = field(default_factory=dict[str, dict[str, Arg]])
    status: str = "captured"
    error: tuple[str, str] = ("", "")
    seconds: float | None = None

    @property
    def names(self) -> list[str]:
        """The names of the graph's inputs."""
        return [node.name for node in self.text.inputs]


@dataclass
class _TracedCompile:
    """What the trace records under one compile id, with all attempts together."""

    symbols: dict[str, SymbolRecord] = field(default_factory=dict[str, SymbolRecord])
    tensors: dict[tuple[Any, Any], dict[str, Any]] = field(default_factory=dict[tuple[Any, Any], dict[str, Any]])
    sources: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict[str, tuple[str, dict[str, Any]]])
    graphs: list[TraceGraph] = field(default_factory=list[TraceGraph])

    def dynamo(self, graph: TraceGraph) -> TraceGraph | None:
        """Dynamo's graph of the same attempt."""
        ids = ("dynamo", graph.compile_id)
        return next((other for other in self.graphs if (other.stage, other.compile_id) == ids), None)


class TraceProcess:
    """Collects the trace entries of one process. `entries` are its graphs and the journal events of kind "why", in
    order."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.torch = ""
        self.entries: list[TraceGraph | dict[str, Any]] = []
        self.notes: list[str] = []
        self._compiles: dict[str, _TracedCompile] = {}
        self._files: dict[int, str] = {}
        self._broken = 0
        self._why: dict[str, list[str]] = {}

    @property
    def graphs(self) -> list[TraceGraph]:
        """The graphs of the process, in order."""
        return [entry for entry in self.entries if isinstance(entry, TraceGraph)]

    def take(self, entries: list[TraceLine]) -> None:
        """Reads all entries of its trace."""
        for entry in entries:
            compiled = self._compiles.setdefault(entry.compile_id.partition("_")[0], _TracedCompile())
            name = entry.name if entry.kind == "artifact" else entry.kind
            if name in _STAGES:
                self._graph(compiled, _STAGES[name], entry, name)
            elif name == "fx_graph_runnable":
                self._runnable(compiled, entry)
            elif name == "str" and isinstance(entry.fields, list) and len(cast("list[Any]", entry.fields)) == 2:
                self._files[int(entry.fields[1])] = str(entry.fields[0])
            elif name == "torch_version":
                self.torch = _version(entry.payload)
            elif name in _HANDLERS:
                _HANDLERS[name](self, compiled, entry)

    def add(self, graph: TraceGraph) -> None:
        """Adds a graph in its place among the entries."""
        self._compiles.setdefault(graph.compile_id.partition("_")[0], _TracedCompile()).graphs.append(graph)
        self.entries.append(graph)

    def _graph(self, compiled: _TracedCompile, stage: str, entry: TraceLine, name: str) -> None:
        try:
            if not entry.whole:
                why = "it is cut off or was changed: it does not match the checksum that torch wrote"
                raise DamagedError("its text", why)
            graph = TraceGraph(stage, entry.compile_id, text.parse(entry.payload))
        except UnreadableError as error:
            self._left(entry, name, error)
            return
        if stage == "post_grad":
            alike = [each for each in compiled.graphs if each.stage in _INNER and each.names == graph.names]
            like = alike[-1] if alike else None
            inner = like.stage if like else stage_of(graph.names)
            graph.stage = f"post_grad_{'inference' if inner == 'joint_passed' else inner}"
            graph.config = like.config if like else {}
            for node, other in zip(graph.text.inputs, like.text.inputs if like else (), strict=False):
                node.value = other.value or node.value
        self.add(graph)

    def _left(self, entry: TraceLine, name: str, error: UnreadableError) -> None:
        self.notes.append(f"{entry.compile_id or 'no compile'}, {name}: left out, {error.what}: {error.why}")

    def _runnable(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        try:
            script = text.read(entry.payload)
        except UnreadableError as error:
            self._left(entry, "fx_graph_runnable", error)
            return
        names = [node.name for node in script.graph.inputs]
        known = [graph for graph in compiled.graphs if graph.stage in _INNER and graph.names == names]
        for name, hint in script.hints.items():
            compiled.symbols.setdefault(name, SymbolRecord(name, hint, assume="integer positive"))
        if not known:
            known = [of_runnable(script, entry.compile_id)]
            self.add(known[0])
        for graph in known[-2:]:  # an inference graph, and the same after the joint passes
            graph.config = script.config
            _refine(graph, script)

    def _started(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        frame = _last(entry.fields.get("stack"))
        number = frame.get("filename")
        base = entry.compile_id.partition("_")[0]
        name = compile_name(base)
        file = self._files.get(number, "") if isinstance(number, int) else ""
        where = {"function": frame.get("name"), "line": frame.get("line"), "file": file}
        self.entries.append({"what": "frame", "compile": name, **where, "cached": int(base.rpartition("/")[2] or 0)})
        if reasons := self._why.pop(base, None):
            self.entries.append({"what": "recompile", "compile": name, "reasons": reasons, "of": len(reasons)})

    def _recompiled(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        try:
            reasons = msgspec.json.decode(entry.payload, type=list[str])
        except msgspec.MsgspecError:
            reasons = [line for line in entry.payload.splitlines() if line.strip()]
        self._why[entry.compile_id.partition("_")[0]] = reasons

    def _symbol(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        fields = entry.fields
        name, hint = str(fields.get("symbol") or ""), _number(fields.get("val"))
        span = re.fullmatch(r"\[(\S+), (\S+)\]", str(fields.get("vr") or ""))
        lower, upper = (_number(span[1]), _number(span[2])) if span else (None, None)
        backed = entry.kind == "create_symbol"
        positive = backed and lower is not None and lower > 0
        assume = "" if name.startswith("z") else "integer positive" if positive else "integer"
        known = (name, hint if backed else None, lower, upper, backed, str(fields.get("source") or ""), assume)
        compiled.symbols[name] = SymbolRecord(*known, order=-1 if backed else len(compiled.symbols))

    def _tensor(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        fields = entry.fields
        compiled.tensors[fields.get("describer_id"), fields.get("id")] = fields

    def _source(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        fields = entry.fields
        source = str(fields.get("source") or "")
        described = compiled.tensors.get((fields.get("describer_id"), fields.get("id")), {})
        compiled.sources[re.sub(r"[^a-zA-Z0-9]+", "_", source)] = source, described

    def _broke(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        first, _, rest = entry.payload.partition("\n")
        place = re.fullmatch(r"Graph break in user code at (.+):(\d+)", first)
        stack = [[place[1], int(place[2]), "", ""]] if place else []
        reason = {"text": _BREAK.sub("", rest.partition("\nUser code traceback")[0]), "text_id": self._broken + 1}
        self._broken += 1
        name = compile_name(entry.compile_id)
        self.entries.append({"what": "break", "compile": name, "then": "resumed", "stack": stack, **reason})

    def _ended(self, compiled: _TracedCompile, entry: TraceLine) -> None:
        fields, backward = entry.fields, entry.kind.startswith("bwd")
        kind, seconds = fields.get("fail_type"), fields.get("entire_frame_compile_time_s")
        for graph in compiled.graphs:
            if graph.stage.endswith("backward") != backward or graph.compile_id != entry.compile_id:
                continue
            graph.status = "failed" if kind else "compiled"
            if kind:
                graph.error = str(kind), str(fields.get("fail_reason") or "")
            if graph.stage == "dynamo" and isinstance(seconds, (int, float)):
                graph.seconds = float(seconds)

    def record(self, graph: TraceGraph, local: str) -> GraphRecord:
        """The record of one of its graphs, under a local id."""
        compiled = self._compiles[graph.compile_id.partition("_")[0]]
        body, stage = graph.text.body, graph.stage
        names = text.symbols_in(body)
        for node in body.nodes:
            if isinstance(node.value, SymValue) and node.value.expr in compiled.symbols:
                node.value.hint = compiled.symbols[node.value.expr].hint
        if stage in _WITH_EXAMPLES:
            body.meta["value_key"] = "example_value"
        stages = {other.stage for other in compiled.graphs}
        trains = not stages & {"inference", "joint_passed"} or bool(stages & {"joint", "forward"})
        return GraphRecord(
            format=FORMAT,
            id=local,
            stage=stage,
            compile_id=graph.compile_id or None,
            graph=body,
            versions={"torch": self.torch} if self.torch else {},
            inputs=list(_inputs(graph, compiled)),
            symbols=[compiled.symbols.get(name) or SymbolRecord(name, backed=False) for name in names],
            strings=graph.text.strings,
            compile_kwargs=_kwargs(graph, compiled),
            config=graph.config,
            ambient=Ambient(grad=stage in _WITH_EXAMPLES and trains),
        )


_HANDLERS = {
    "dynamo_start": TraceProcess._started,
    "recompile_reasons": TraceProcess._recompiled,
    "create_symbol": TraceProcess._symbol,
    "create_unbacked_symbol": TraceProcess._symbol,
    "describe_tensor": TraceProcess._tensor,
    "describe_source": TraceProcess._source,
    "dynamo_graph_break_reason": TraceProcess._broke,
    "compilation_metrics": TraceProcess._ended,
    "bwd_compilation_metrics": TraceProcess._ended,
}


def of_runnable(script: text.Runnable, compile_id: str, stage: str = "") -> TraceGraph:
    """The graph of an fx_graph_runnable alone, in which only the inputs have a known layout."""
    graph = TraceGraph(stage, compile_id, script.graph, script.config)
    graph.stage = stage or stage_of(graph.names)
    for node in graph.text.inputs:
        node.value = script.inputs.get(node.name)
    return graph


def stage_of(names: Sequence[str]) -> str:
    """The stage of a graph that Inductor was given, by the names of its inputs."""
    if any(name.startswith("tangents") for name in names):
        return "backward"
    return "forward" if any(name.startswith("primals") for name in names) else "joint_passed"


def _refine(graph: TraceGraph, script: text.Runnable) -> None:
    """Adds what the annotations of a graph lack: storage offsets, and which inputs share memory."""
    values = [value for value in script.inputs.values() if isinstance(value, TensorValue)]
    shared = {value.storage for value in values if sum(other.storage == value.storage for other in values) > 1}
    for node in graph.text.inputs:
        value, seen = node.value, script.inputs.get(node.name)
        if isinstance(value, TensorValue) and isinstance(seen, TensorValue):
            if seen.storage in shared:
                value.storage = seen.storage
            if all(isinstance(size, int) for size in (*value.shape, *value.stride)):  # else the offset is symbolic too
                value.offset = seen.offset
                value.storage_bytes = seen.storage_bytes if seen.storage in shared or seen.offset else None


def _inputs(graph: TraceGraph, compiled: _TracedCompile) -> Iterator[InputRecord]:
    """The record of each input, with the user's name for it and its role."""
    dynamo = compiled.dynamo(graph)
    first = [compiled.sources.get(node.target) for node in dynamo.text.inputs] if dynamo else []
    for node in graph.text.inputs:
        plain = _PLAIN_INPUT.fullmatch(str(node.meta.get("desc") or ""))
        at = int(plain[1]) if plain else len(first)
        described = compiled.sources.get(node.target) if graph.stage in _WITH_EXAMPLES else [*first, None][at]
        if described is not None:
            source, tensor = described
            role = "parameter" if tensor.get("is_parameter") else "buffer" if "._buffers[" in source else "user"
            if graph.stage in _WITH_EXAMPLES and isinstance(node.value, TensorValue):
                node.value.requires_grad = bool(tensor.get("requires_grad"))
                node.value.leaf = bool(tensor.get("is_leaf", True))
            yield InputRecord(node.name, role, source)
        elif node.name.startswith("tangents"):
            yield InputRecord(node.name, "tangent")
        else:
            yield InputRecord(node.name, "saved" if graph.stage.endswith("backward") else "unknown")


def _kwargs(graph: TraceGraph, compiled: _TracedCompile) -> dict[str, Arg]:
    """The arguments of the graph's compiler that can be derived from the graphs themselves."""
    stage = graph.stage.removeprefix("post_grad_")
    if stage in ("forward", "backward", "inference") and (stage != graph.stage or stage != "inference"):
        return {"is_backward": stage == "backward", "is_inference": stage == "inference"}
    dynamo = compiled.dynamo(graph)
    kwargs: dict[str, Arg] = {}
    if dynamo is not None and stage != "dynamo":
        kwargs = {"num_example_inputs": len(dynamo.names), "num_orig_model_outputs": len(dynamo.text.results)}
    if stage == "joint":
        primals = sum(name.startswith("primals") for name in graph.names)
        kwargs["num_fwd_outputs"] = len(graph.text.results) - primals  # a gradient for each primal, behind the outputs
    return kwargs


def _last(stack: Any) -> dict[str, Any]:
    frames = [frame for frame in stack if isinstance(frame, dict)] if isinstance(stack, list) else []
    return frames[-1] if frames else {}


def _number(value: Any) -> int | float | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _version(payload: str) -> str:
    try:
        decoded = msgspec.json.decode(payload)
    except msgspec.MsgspecError:
        decoded = payload.strip()
    return str(decoded.get("pytorch_version") or "" if isinstance(decoded, dict) else decoded)[:40]


_RUNNABLE = "fx_graph_runnable.py"
_FOLDER = re.compile(r"(?:.*__)?(\d+)_(forward|backward|inference)_(\d+)(?:\.\d+)?")


@dataclass
class ImportedRun:
    """The result of an import: the run's folder, the kind of its source, how many graphs of how many processes, and one
    sentence for each thing that was left out."""

    path: str
    kind: str
    graphs: int
    processes: int
    left_out: list[str] = field(default_factory=list[str])


def traces_in(path: Path) -> list[Path]:
    """The structured traces that a path names: itself, or those in the folder."""
    if path.is_file():
        return [path] if lines.is_trace(path) else []
    return [file for file in sorted(path.rglob("*.log")) if file.is_file() and lines.is_trace(file)]


def debug_in(path: Path) -> list[Path]:
    """The folders of graphs in a folder of TORCH_COMPILE_DEBUG, in the order of their compiles."""
    folders = [folder.parent for folder in path.rglob(_RUNNABLE)] if path.is_dir() else []
    named = {folder: _FOLDER.fullmatch(folder.name) for folder in folders}
    return sorted(
        folders, key=lambda folder: (folder.parent, int(known[3]) if (known := named[folder]) else 0, folder.name)
    )


def is_one(path: Path) -> bool:
    """Whether a path is a trace by its looks: a folder, a file that begins as a trace does, or one that is named like
    one."""
    return path.is_dir() or (path.is_file() and (path.suffix == ".log" or lines.is_trace(path)))


def import_trace(path: Path, out: Path) -> ImportedRun:
    """Writes the graphs that a path names as a run. Raises UsageError where no graph can be read, or `out` is taken."""
    traces = [lines.read(file) for file in traces_in(path)]
    folders = [] if traces else debug_in(path)
    processes: list[TraceProcess] = []
    left = [sentence for trace in traces for sentence in trace.damage]
    for trace in traces:
        ranks = list(dict.fromkeys(entry.rank for entry in trace.entries))
        late = len(ranks) == 2 and None in ranks  # lines without a rank come from before the process group was made
        rank = next((rank for rank in ranks if rank is not None), None)
        for of_rank in [rank] if late else ranks:
            process = TraceProcess(of_rank)
            process.take([entry for entry in trace.entries if late or entry.rank == of_rank])
            processes.append(process)
    if folders:
        processes = [_of_folders(folders)]
    left += [note for process in processes for note in process.notes]
    processes = [process for process in processes if process.graphs]
    kind = "structured trace" if traces else "folder of TORCH_COMPILE_DEBUG"
    if not processes:
        why = _why_nothing(path, bool(traces or folders), left)
        raise CannotImportError(f"{path} cannot be imported", why, _HOW_TO_TRACE)
    versions = [process.torch for process in processes if process.torch]
    stages = {graph.stage for process in processes for graph in process.graphs}
    record = RunRecord(
        format=FORMAT,
        command=["graphdbg", "import", path.name],
        inputs_policy=FROM_TRACE,
        world_size=len(processes),
        versions={"torch": versions[0]} if versions else {},
        stages=[stage for stage in STAGES if stage in stages],
    )
    run = RunWriter.create(out, record)
    count = sum(_write(run, process, path.name, left) for process in processes)
    run.unite()
    return ImportedRun(str(out), kind, count, len(processes), left)


def _why_nothing(path: Path, known: bool, left: list[str]) -> str:
    if known and left:
        return "; ".join(["no graph in it can be read", *left[:3]])
    if known:
        return "there is no graph in it: nothing was compiled"
    if path.is_file():
        return "it is empty" if not path.stat().st_size else "it does not begin as a structured trace does"
    return f"it holds no structured trace (*.log) and no {_RUNNABLE}"


_HOW_TO_TRACE = (
    "TORCH_TRACE=FOLDER before a program's command makes a trace; where it can run again, record it: "
    "graphdbg dump SCRIPT"
)


def _write(run: RunWriter, process: TraceProcess, source: str, left: list[str]) -> int:
    """Writes what is known of one process; returns how many graphs."""
    writer = run.process("trace" if process.rank is None else f"rank{process.rank}_trace", rank=process.rank)
    ids: list[tuple[TraceGraph, str]] = []
    said = f"read from {source}, which has only the layout of inputs: values are synthesised"
    writer.journal.event("note", message=said)
    for entry in process.entries:
        if isinstance(entry, dict):
            writer.journal.event("why", **entry)
            continue
        local = writer.unique_id(entry.compile_id, entry.stage)
        record = process.record(entry, local)
        try:
            check_graph(record, local)
        except UnreadableError as error:
            left.append(f"{local}: left out, {error.what}: {error.why}")
            continue
        writer.save_graph(record)
        ids.append((entry, local))
    for graph, local in ids:
        if graph.status == "failed":
            kind, message = graph.error
            writer.journal.event("failed", local, type=kind, message=message, seconds=graph.seconds)
        elif graph.status == "compiled":
            writer.journal.event("compiled", local, seconds=graph.seconds)
    writer.close()
    return len(ids)


def _of_folders(folders: list[Path]) -> TraceProcess:
    """The process whose graphs Inductor left in folders named after them: model__0_forward_1.0."""
    process = TraceProcess(None)
    for folder in folders:
        named = _FOLDER.fullmatch(folder.name)
        number, kind = (named[1], named[2]) if named else ("0", "")
        try:
            script = text.read(read_text(folder / _RUNNABLE))
            process.add(of_runnable(script, f"x{number}_0", "joint_passed" if kind == "inference" else kind))
        except (UnreadableError, OSError) as error:
            why = f"{error.what}: {error.why}" if isinstance(error, UnreadableError) else str(error)
            process.notes.append(f"{folder.name}: left out, {why}")
    return process


def imported_line(imported: ImportedRun) -> str:
    """One line on the imported run."""
    where = f" of {counted(imported.processes, 'process', 'processes')}" if imported.processes > 1 else ""
    graphs = f"{counted(imported.graphs, 'graph')}{where}"
    return f"{imported.kind}: {graphs}; of inputs only the layout is known, values are synthesised"
