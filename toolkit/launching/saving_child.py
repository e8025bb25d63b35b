# pyright: basic
"""The child's part of `graphdbg kernel`: interprets a saved graph's kernels on the CPU and saves their launches.

A GPU of this machine is hidden first: Inductor then generates code for the pretended GPU only, and a failing run cannot
touch the real one.

For example:

    ask("graphdbg.toolkit.launching.saving_child:task", {"path": "case", "folder": "out", ...}, server=server)
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import fx

from ...dumps.errors import EnvironmentLackError, NoSuchNodeError
from ...dumps.store import SavedGraph
from ...dumps.torchside.values import storage_key
from ...dumps.wording import counted
from ..compile_fx.inputs import shared
from ..isolation.child import mark
from ..judging.baseline import NoReference, reference
from ..kernels.heard import kernels_heard
from ..kernels.records import KernelRow
from ..live.case import Case, Live
from ..live.eager import GraphRunError, clone_inputs, copy_graph, is_random, is_uninitialised, run_graph
from ..live.entries import shared_fakes
from ..live.execution import execute
from ..live.spec import FULL_STAGES, in_force, no_caches, settings
from ..rungs.triton_interpret import TritonInterpret
from ..triton import pretended
from ..triton.interpreting.memory import Access, AccessWatch, Zone
from ..triton.interpreting.on_cpu import running
from ..triton.interpreting.session import Interpretation, InterpretedKernel, InterpretedLaunch, LaunchObserver
from .launches import DTYPES, VERSION, Index, Launch, LaunchWriter, Number, Storage, TensorLayout, Written

Wanted = Callable[[str, int], bool]
"""(kernel, number of its launch, from 1) -> whether to save that launch."""


class Touched(AccessWatch):
    """Counts the bytes that a launch reads and writes, each once."""

    def __init__(self) -> None:
        self.zones: dict[int, Zone] = {}

    def access(self, access: Access) -> bool:
        if access.zone is not None:
            self.zones[access.zone.number] = access.zone
            index, width = access.index[access.inside], access.dtype.itemsize
            nbytes = access.zone.data.nbytes
            for way in {"load": ("read",), "store": ("written",)}.get(access.kind, ("read", "written")):
                touched = access.zone.facts.setdefault(way, np.zeros(nbytes, bool))
                touched[: nbytes // width * width].reshape(-1, width)[index] = True
        return False

    def count(self, way: str) -> int:
        """Bytes that were "read" or "written"."""
        return sum(int(zone.facts[way].sum()) for zone in self.zones.values() if way in zone.facts)

    def wrote(self, storage: Any) -> bool:
        """Whether something was written into a storage."""
        written = [zone.storage.data_ptr() for zone in self.zones.values() if "written" in zone.facts]
        return storage.data_ptr() in written


@dataclass
class CompiledGraph:
    """One compiled graph. `gm`: its module; `nodes`: buffer -> the node whose value it holds; `mutated`: buffers that
    are written again later; `rows`: kernel -> rows of the kernels table."""

    gm: fx.GraphModule
    nodes: Mapping[str, str]
    mutated: set[str]
    rows: dict[str, list[KernelRow]]
    launches: list[tuple[Launch, dict[str, torch.Tensor]]] = field(default_factory=list)


class Saver(LaunchObserver):
    """Saves launches as they happen, and adds eager's values when the wrapper has returned. `rows`: filled during code
    generation."""

    def __init__(self, writer: LaunchWriter, wanted: Wanted) -> None:
        self.writer, self.wanted = writer, wanted
        self.rows: list[KernelRow] = []
        self.notes: list[str] = []
        self.calls: Counter[str] = Counter()
        self._parts: dict[int, tuple[Any, CompiledGraph]] = {}
        self._made: dict[int, tuple[InterpretedKernel, CompiledGraph | None]] = {}
        self._inputs: list[Any] = []
        self._here: Counter[tuple[int, str]] = Counter()
        self._held: set[tuple[str, int]] = set()
        self._last: dict[str, tuple[Launch, int, torch.Tensor]] = {}
        """Mutated buffer -> the launch that wrote it last, which of its arguments, and the tensor."""
        self._open: tuple[Touched, float, dict[int, tuple[Any, str]]] | None = None

    def kernel(self, kernel: InterpretedKernel) -> None:
        """Called with each kernel while a wrapper module is loaded."""
        graph = pretended.graph_in_hand()
        if graph is not None and id(graph) not in self._parts:
            rows: dict[str, list[KernelRow]] = {}
            for row in self.rows:
                rows.setdefault(row.name, []).append(row)
            self.rows.clear()
            nodes, mutated = pretended.nodes_of_buffers(graph), pretended.mutated_buffers(graph)
            self._parts[id(graph)] = graph, CompiledGraph(copy_graph(graph.module), nodes, mutated, rows)
        part = None if graph is None else self._parts[id(graph)][1]
        self._made[id(kernel.autotuner)] = kernel, part

    def began(self, call: Callable[..., Any], inputs: list[Any]) -> None:
        self._inputs = clone_inputs(inputs)
        self._here.clear()
        self._held.clear()
        self._last.clear()

    def before(self, launch: InterpretedLaunch) -> AccessWatch | None:
        self.calls[launch.kernel] += 1
        self._open = None
        if not self.wanted(launch.kernel, self.calls[launch.kernel]):
            return None
        storages = {}
        for tensor in launch.tensors.values():
            storage = tensor.untyped_storage()
            if storage._cdata not in storages:
                storages[storage._cdata] = storage, self.writer.tensors.put(_bytes(storage))
        watch = Touched()
        self._open = watch, time.perf_counter(), storages
        return watch

    def after(self, launch: InterpretedLaunch) -> None:
        kernel, part = self._made[id(launch.autotuner)]
        place = self._here[id(part), launch.kernel]
        self._here[id(part), launch.kernel] += 1
        if self._open is None:
            self._overwritten(launch, (name for name in launch.tensors if not name.startswith("in_ptr")))
            return
        watch, began, storages = self._open
        saved = _saved(launch, self.calls[launch.kernel], watch, storages, self.writer)
        saved.seconds = time.perf_counter() - began
        rows = part.rows.get(launch.kernel, []) if part is not None else []
        if place < len(rows):
            saved.nodes, saved.flops = list(rows[place].nodes), rows[place].flops
        self.writer.add(saved, kernel.source)
        changed = _written_names(saved)
        self._overwritten(launch, changed)
        saved.written = [self._written(launch, name, part) for name in changed]
        for place, row in enumerate(saved.written):
            if part is not None and row.node and row.buffer in part.mutated:
                self._last[row.buffer] = saved, place, launch.tensors[row.argument]
        if part is not None:
            part.launches.append((saved, launch.tensors))

    def called(self, operator: Any, read: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        if operator.__name__.startswith("set_"):  # changes which memory it has, not the contents
            return
        for target in written:
            for name in [name for name, (*_, tensor) in self._last.items() if shared([tensor, target])]:
                self._no_node(name)

    def _overwritten(self, launch: InterpretedLaunch, names: Iterable[str]) -> None:
        """Drops the node of an earlier write to a mutated buffer, whose value was not yet final. Memory reused under
        another name belongs to another buffer."""
        for buffer in {launch.buffers.get(name, "") for name in names} & self._last.keys():
            self._no_node(buffer)

    def _no_node(self, buffer: str) -> None:
        saved, place, _ = self._last.pop(buffer)
        saved.written[place] = Written(saved.written[place].argument, buffer)

    def _written(self, launch: InterpretedLaunch, name: str, part: CompiledGraph | None) -> Written:
        """The argument with the node whose value it holds; for a buffer that is written again, only the last launch has
        the node."""
        buffer = launch.buffers.get(name, "")
        place = buffer, storage_key(launch.arguments[name])
        again = place in self._held and (part is None or buffer not in part.mutated)
        self._held.add(place)
        node = "" if part is None or again else part.nodes.get(buffer, "")
        return Written(name, buffer, node)

    def ended(self, outputs: Any) -> None:
        """Adds eager's values to the launches since the wrapper was called."""
        for _, part in self._parts.values():
            launches, part.launches = part.launches, []
            names = {row.node for saved, _ in launches for row in saved.written if row.node}
            if not names:
                continue
            drawn = _behind_random(part.gm)
            known = [node for node in part.gm.graph.nodes if node not in drawn and not is_uninitialised(node)]
            names &= {node.name for node in known}  # uninitialised memory cannot be compared
            if drawn:
                many = counted(len(drawn), "node behind random numbers is", "nodes behind random numbers are")
                self.notes.append(f"{many} not compared with eager: kernels draw their own")
            eager, truth = self._values(part.gm, names)
            for saved, tensors in launches:
                saved.written = [
                    self._valued(row, tensors[row.argument], eager.get(row.node), truth.get(row.node))
                    for row in saved.written
                ]
        self._inputs = []

    def _values(self, gm: fx.GraphModule, names: set[str]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        eager: dict[str, torch.Tensor] = {}
        truth: dict[str, torch.Tensor] = {}

        def run(gm: fx.GraphModule, inputs: list[Any], kept: dict[str, torch.Tensor]) -> list[Any]:
            def keep(name: str, value: Any) -> None:
                if name in names and isinstance(value, torch.Tensor) and value.layout is torch.strided:
                    kept[name] = value.detach().clone(memory_format=torch.contiguous_format)

            def hook(node: fx.Node, value: Any) -> Any:
                if node.op != "placeholder":
                    keep(node.name, value)
                return value

            outputs = run_graph(gm, inputs, hook=hook)
            for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=False):
                keep(node.name, value)  # an input mutated by a kernel: its final value
            return outputs

        with running(Interpretation()), torch.no_grad():
            try:
                run(gm, clone_inputs(self._inputs), eager)
            except GraphRunError as error:
                why = f"eager's values behind node {error.node} are not known: {error.__cause__}"
                self.notes.append(why.splitlines()[0])
            exact = reference(gm, self._inputs, lambda wide, inputs: run(wide, inputs, truth))
            if isinstance(exact, NoReference):
                self.notes.append(f"no float64 values: {exact.reason}")
        return eager, truth

    def _valued(self, written: Written, tensor: torch.Tensor, value: Any, exact: Any) -> Written:
        if value is None or value.shape != tensor.shape or value.dtype != tensor.dtype:
            return written
        put, replace = self.writer.tensors.put, msgspec.structs.replace
        kept = replace(written, dtype=_name(value.dtype), shape=tuple(value.shape), eager=put(_data(value)))
        if exact is None or exact.shape != value.shape or _name(exact.dtype) not in DTYPES:
            return kept
        return replace(kept, truth=put(_data(exact)), truth_dtype=_name(exact.dtype))


def _saved(
    launch: InterpretedLaunch, call: int, watch: Touched, storages: dict[int, tuple[Any, str]], writer: LaunchWriter
) -> Launch:
    places = {key: place for place, key in enumerate(storages)}
    rows = [
        Storage(storage.nbytes(), before, writer.tensors.put(_bytes(storage)) if watch.wrote(storage) else "")
        for storage, before in storages.values()
    ]

    def laid_out(tensor: torch.Tensor) -> TensorLayout:
        layout = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
        return TensorLayout(_name(tensor.dtype), *layout, places[storage_key(tensor)])

    tensors = {name: laid_out(tensor) for name, tensor in launch.tensors.items()}
    names = {id(value): name for name, value in launch.tensors.items()}
    config = launch.config
    fixed = {name: _plain(value) for name, value in launch.arguments.items() if name in launch.constants}
    return Launch(
        launch.kernel,
        launch.number,
        call,
        "",
        (int(launch.grid[0]), int(launch.grid[1]), int(launch.grid[2])),
        {name: _plain(value) for name, value in config.kwargs.items()},
        int(config.num_warps),
        int(config.num_stages),
        dict(launch.signature),
        fixed,
        [names[id(argument)] if id(argument) in names else _plain(argument) for argument in launch.passed],
        list(launch.arguments),
        tensors,
        rows,
        [],
        options=_options(config),
        bytes_read=watch.count("read"),
        bytes_written=watch.count("written"),
    )


def _written_names(saved: Launch) -> list[str]:
    """The arguments whose storage was written; for an input that is also an output, the output's name."""
    written = {name: each.storage for name, each in saved.tensors.items() if saved.storages[each.storage].after}
    several = {place for place, count in Counter(written.values()).items() if count > 1}
    return [name for name, place in written.items() if not name.startswith("in_ptr") or place not in several]


def _options(config: Any) -> dict[str, Number]:
    """The options `num_ctas` and `maxnreg` of a configuration, where set."""
    known = {name: getattr(config, name, None) for name in ("num_ctas", "maxnreg")}
    return {name: value for name, value in known.items() if isinstance(value, int)}


def _behind_random(gm: fx.GraphModule) -> set[fx.Node]:
    drawn: set[fx.Node] = set()
    for node in gm.graph.nodes:
        if is_random(node) or any(argument in drawn for argument in node.all_input_nodes):
            drawn.add(node)
    return {node for node in drawn if node.op != "output"}


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return int(value) if hasattr(value, "__index__") else float(value) if hasattr(value, "__float__") else str(value)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _bytes(storage: Any) -> memoryview:
    whole = torch.empty(0, dtype=torch.uint8).set_(storage)
    return memoryview(whole.numpy())  # type: ignore[arg-type]


def _data(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


class Saving(TritonInterpret):
    """The interpreting rung, observed by a Saver. `target`: the name of the pretended GPU."""

    may_draw_like_cpu = False  # saved results are compared with a GPU's

    def __init__(self, saver: Saver, target: str) -> None:
        self.saver, self.target = saver, target

    def session(self) -> Interpretation:
        return Interpretation(self.saver)


def task(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: saves the launches named `names` (None: all) into `folder`; returns how often each kernel
    was launched, and notes."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    mark("load")
    case = Case.at(payload["path"])
    live = case.live(seed=payload["seed"], device="cpu" if on_gpu(case.saved) else None)
    folder, keep = Path(payload["folder"]), partial(wanted, payload["names"])
    index = saved_launches(live, folder, payload["target"], keep, graph=payload["graph"], seed=payload["seed"])
    return {"notes": index.notes, "launches": len(index.which)}


def wanted(names: Sequence[str] | None, kernel: str, call: int) -> bool:
    """Whether one of `names` (KERNEL or KERNEL#2; None: all) means a launch."""
    return names is None or kernel in names or f"{kernel}#{call}" in names


def on_gpu(saved: SavedGraph) -> bool:
    """Whether tensors of the recorded graph were on a GPU."""
    table = saved.table
    return any(table.strings[place].startswith("cuda") for place in table.device)


def saved_launches(case: Live, folder: Path, target: str, wanted: Wanted, *, graph: str = "", seed: int = 0) -> Index:
    """Compiles for the pretended GPU, interprets, and writes a folder of launches. Raises what compile and run raise;
    launches made before the error are written nevertheless."""
    writer = LaunchWriter(folder)
    saver = Saver(writer, wanted)
    rung = Saving(saver, target)
    spec = case.spec
    with settings(spec.config) as lost, no_caches(), in_force(spec):
        if reason := rung.unavailable(spec):
            raise EnvironmentLackError("kernels cannot be written here", reason)
        if reason := rung.cannot_take(case.gm, spec):
            raise NoSuchNodeError("this graph has no kernels", reason)
        import triton

        try:
            _run(case, rung, saver, seed)
        finally:
            for launch in writer.launches:
                launch.calls = saver.calls[launch.kernel]
            index = Index(VERSION, graph, target, str(torch.__version__), triton.__version__, [])
            index.notes = [*lost, *case.notes, *dict.fromkeys(saver.notes)]
            writer.finish(index)
    return index


def _run(case: Live, rung: Saving, saver: Saver, seed: int) -> None:
    gm, spec = copy_graph(case.gm), case.spec
    backward = spec.stage in FULL_STAGES and spec.ambient.grad and not spec.ambient.inference_mode
    with rung.around(case.gm, spec), kernels_heard(lambda row, *_: saver.rows.append(row)):
        mark("compile")
        fakes = shared_fakes(gm, case.inputs, spec.dynamic)[0]
        compiled = rung.build(gm, fakes, spec)
        mark("run")
        parameters = [parameter for parameter in case.gm.parameters() if parameter.requires_grad] if backward else []
        execute(compiled, clone_inputs(case.inputs), seed=seed, backward=backward, parameters=parameters)
