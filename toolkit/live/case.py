"""A case in two forms: a saved graph with its inputs and how it enters the compiler, as records and as live objects.

`case.saved` is records and needs no torch; `case.live()` is a module that runs, its inputs and the spec: what the
judge, passes and cutting take. Each call decodes the graph again.

>>> case = Case.at("myrun/0_0/forward").live()
>>> case.spec.stage
'forward'
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from ...dumps import live
from ...dumps.errors import DeviceMissingError
from ...dumps.names import of_module
from ...dumps.relocate import names_device, relocated
from ...dumps.schema import GraphRecord, InputsRecord, TensorValue
from ...dumps.store import SavedGraph, load_graph
from ...dumps.torchside import targets
from ...dumps.torchside.history import bases_of, computed
from ...dumps.torchside.values import BUFFER
from ...dumps.torchside.wrappers import is_wrapper
from ...dumps.wording import typed_path
from .. import torch_private as t
from . import gpu_only, process_groups
from .eager import clone_inputs, graphs_in
from .entries import compiling
from .execution import leaves
from .spec import FULL_STAGES, ReplaySpec


@dataclass
class Live:
    """The live form of a case. Users leave graph and inputs as they are, and return new ones.

    `spec`: how the graph enters the compiler, with which settings. `notes`: sentences on what differs from the
    recording. `lowered`: for a Dynamo graph, place of an output -> fake value that AOTAutograd traced for it, where
    recorded.
    """

    gm: fx.GraphModule
    inputs: list[Any]
    spec: ReplaySpec = field(default_factory=ReplaySpec)
    notes: list[str] = field(default_factory=list[str])
    lowered: Callable[[], Mapping[int, Any]] = dict


@dataclass
class Case:
    """A saved graph, from which the live form is made."""

    saved: SavedGraph

    @classmethod
    def at(cls, path: str | Path) -> Case:
        """The case of a graph's folder. Raises what `load_graph` does."""
        return cls(load_graph(path))

    def live(self, *, rung: str = "", seed: int = 0, device: str | None = None, meeting: str = "") -> Live:
        """Returns the live form: recorded inputs, and synthesised ones (by `seed`) where they were not recorded; on
        `device`, or where `rung` needs it. Creates the graph's process groups (see `process_groups.join` for
        `meeting`)."""
        saved, device = self.saved, self.device_for(rung, device)
        record, inputs_record, tensors = saved.record, saved.inputs_record, saved.tensors
        if record.graph.meta.get("process_groups"):
            process_groups.join(record, meeting)
        from_gpu = device == "cpu" and names_device(record.graph, "cuda")
        if from_gpu:  # GPU tensors cannot even be created on a machine without a GPU
            record = relocated(record, "cuda", "cpu")
            inputs_record = inputs_record and relocated(inputs_record, "cuda", "cpu")
        spec = ReplaySpec.of(record, device=device)
        where = str(typed_path(saved.path))
        gm, _, mode = live.fake_module(record, tensors, where=where)
        inputs = live.inputs(record, inputs_record, tensors, seed, where=where)
        notes = follow_saved(gm, mode, record)
        _numbers_known(gm, record)
        _known_to_autograd(gm, inputs, spec)
        missing = gm.meta.get("graphdbg", {}).get("made_up", ())
        notes += [f"{name} was not recorded and is synthesised" for name in missing]
        notes += _plain_here(gm, inputs_record)
        if device is not None and not from_gpu:
            gm, inputs = moved(gm, inputs, _here(device))
            spec.dynamic = False
        if from_gpu and (fused := gpu_only.used(gm)):
            gpu_only.register()
            notes.append(f"torch has no CPU kernel for {', '.join(fused)}: computed from the definition")
        if saved.record.kernels and device in (None, "cpu"):
            notes += gpu_only.notes(gm)
        return Live(gm, inputs, spec, notes, partial(_lowered, saved))

    def device_for(self, rung: str, device: str | None) -> str | None:
        """The device to move the case to for a rung: the given one; the CPU where GPU kernels are interpreted; None:
        stay."""
        if device is None and rung == "triton_interpret" and names_device(self.saved.record.graph, "cuda"):
            return "cpu"
        return device


def _lowered(saved: SavedGraph) -> dict[int, Any]:
    """Place of a Dynamo graph's output -> its fake value in the joint or inference graph traced from it."""
    for stage in ("joint", "inference") if saved.record.stage in FULL_STAGES else ():
        if (saved.path.parent / stage).exists():
            inner = load_graph(saved.path.parent / stage)
            graph = live.fake_module(inner.record, inner.tensors, where=str(typed_path(inner.path)))[0].graph
            output = graph.output_node()
            lowered: dict[int, Any] = {}
            for description, node in zip(output.meta.get("desc") or (), leaves(output.args[0]), strict=False):
                place = re.fullmatch(r"PlainAOTOutput\(idx=(\d+)\)", str(description))
                if place and isinstance(node, fx.Node):
                    lowered[int(place[1])] = node.meta.get("val")
            return lowered
    return {}


def _numbers_known(gm: fx.GraphModule, record: GraphRecord) -> None:
    """Restores what Dynamo knew about numbers that are passed as 0-d tensors: the symbol of each `item()`, and which
    floats it had specialised; torch would otherwise restart the compile.
    """
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "item" and node.args[0].op == "placeholder":
            fake, number = (source.meta.get("example_value") for source in (node.args[0], node))
            if isinstance(fake, t.FakeTensor) and isinstance(number, torch.SymFloat | torch.SymInt):
                fake.item_memo = number
    for symbol in record.symbols:
        if symbol.name.startswith("z") and symbol.replacement:
            t.TensorifyState.specialize(symbol.name)


def _plain_here(gm: fx.GraphModule, seen: InputsRecord | None) -> list[str]:
    """Notes on inputs that were tensor subclasses in the run: what their class did is part of the graph."""
    called, kinds = of_module(gm).inputs, dict[str, str]()
    for row in seen.inputs if seen is not None else ():
        if isinstance(row.value, TensorValue) and row.value.subclass not in ("", BUFFER) and not row.value.inner:
            kinds[called.get(row.name, row.name)] = row.value.subclass
    return [f"{name} was a {kind} in the run and is a plain tensor here" for name, kind in kinds.items()]


def _known_to_autograd(gm: fx.GraphModule, inputs: list[Any], spec: ReplaySpec) -> None:
    """Gives the fake inputs of a graph that AOTAutograd has not seen yet the autograd state of the real ones:
    requires_grad, leaf or view. Tracing left them in the state after the graph's own writes."""
    nodes = gm.graph.find_nodes(op="placeholder") if spec.stage in FULL_STAGES else []
    given = [(node, node.meta.get("example_value"), real) for node, real in zip(nodes, inputs, strict=False)]
    given = [row for row in given if isinstance(row[2], torch.Tensor)]
    pairs = [row for row in given if isinstance(row[1], t.FakeTensor) or is_wrapper(row[1])]
    fakes, reals = [fake for _, fake, _ in pairs], [real for *_, real in pairs]
    views, bases = bases_of(fakes), bases_of(reals)
    same = [(traced.requires_grad, traced.is_leaf) == (real.requires_grad, real.is_leaf) for _, traced, real in pairs]
    if not bases and all(same):
        return
    both = [(place, views[place], bases[place]) for place in views if place in bases]
    known = {place: view._replace(requires_grad=base.requires_grad, leaf=base.leaf) for place, view, base in both}
    came = [place for place, real in enumerate(reals) if not real.is_leaf]
    plain = [fake.detach().requires_grad_(real.requires_grad) for _, fake, real in pairs]
    mode = next((value.fake_mode for value in fakes if isinstance(value, t.FakeTensor)), None)
    with contextlib.nullcontext() if mode is None else t.suppress_guards(mode.shape_env):
        for (node, *_), fake in zip(pairs, computed(plain, came, known), strict=True):
            node.meta["example_value"] = fake


def warm() -> None:
    """Fills the tables by which targets are looked up, so that a forked child inherits them; no tensor work."""
    targets.name_of(operator.getitem)
    for name in ("operator.getitem", "aten.relu.default", "prims.convert_element_type.default"):
        targets.resolve(name, "warm-up")


def _here(name: str) -> torch.device:
    """A device of this machine, by name. Raises DeviceMissingError."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        raise DeviceMissingError(
            f"the graph cannot be moved to {name}", why, "name a device of this machine"
        ) from error
    return device


def moved(gm: fx.GraphModule, inputs: list[Any], device: torch.device) -> tuple[fx.GraphModule, list[Any]]:
    """The graph and its inputs moved to another device, with device arguments; recorded fake values are dropped.
    Changes `gm`."""
    for part in graphs_in(gm):
        for node in part.graph.nodes:
            node.args = map_aggregate(node.args, lambda value: device if isinstance(value, torch.device) else value)
            node.kwargs = map_aggregate(node.kwargs, lambda value: device if isinstance(value, torch.device) else value)
            node.meta.pop("val", None)
            node.meta.pop("example_value", None)
            if node.op == "get_attr" and isinstance(value := getattr(part, str(node.target), None), torch.Tensor):
                parameter = isinstance(value, torch.nn.Parameter)
                there = type(value)(value.detach().to(device)) if parameter else value.to(device)
                setattr(part, str(node.target), there)
        part.recompile()
    return gm, clone_inputs(inputs, lambda tensor: tensor.to(device, copy=True))


_VIEW, _RESHAPE = torch.ops.aten.view.default, torch.ops.aten.reshape.default


def follow_saved(gm: fx.GraphModule, mode: Any, record: GraphRecord) -> list[str]:
    """Lets the metadata of a backward graph follow its saved tensors where those came in another layout than it was
    traced with. Changes `gm` in place where that is needed; returns what was done, as notes.

    Inductor may lay out convolutions channels-last. AOTAutograd then gives the backward graph's inputs the strides that
    the compiled forward graph makes, and traces nothing again; Inductor does that itself, once every view is a reshape.
    Eager and the checks need the same, or a `view` fails and strides look wrong in a healthy graph. Only strides are
    taken over, from fake values; a node that is recorded with another size or dtype than it has stays as recorded.
    """
    if record.stage != "backward" or not _any_relaid(gm, record):
        return []
    traced = _FakeRun(gm)
    given = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    try:
        # composite ops keep symbolic sizes, and this mode has the symbols of the tracing
        with compiling(mode), t.enable_python_dispatcher(), mode, torch.no_grad():
            traced.run(*given, enable_io_processing=False)
    except Exception:  # noqa: BLE001  a graph that cannot be traced here is judged as recorded
        return []
    moved = [node for node, value in traced.made.items() if _other_strides(node.meta.get("val"), value)]
    if not moved and not traced.views:
        return []
    for node in traced.views:
        node.target = _RESHAPE
    for node, value in traced.made.items():
        if _same_but_strides(node.meta.get("val"), value):
            node.meta["val"] = value
    gm.recompile()
    views = f", views made reshapes: {len(traced.views)}" if traced.views else ""
    return [f"saved tensors have other strides than traced (nodes: {len(moved)}{views})"]


def reshapes(gm: fx.GraphModule) -> list[str]:
    """The names of reshape nodes, including recorded views that became reshapes."""
    return [node.name for node in gm.graph.nodes if node.target is _RESHAPE]


def as_reshapes(gm: fx.GraphModule, names: Collection[str]) -> None:
    """Turns the named view nodes into reshapes: repeats on a part of a graph what `follow_saved` did to the whole."""
    for node in gm.graph.nodes:
        if node.target is _VIEW and node.name in names:
            node.target = _RESHAPE


class _FakeRun(fx.Interpreter):
    """Runs a graph on fake values and keeps each node's value; a view that is impossible with the strides runs as a
    reshape."""

    def __init__(self, gm: fx.GraphModule) -> None:
        super().__init__(gm, garbage_collect_values=False)
        self.made: dict[fx.Node, Any] = {}
        self.views: list[fx.Node] = []

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "get_attr" and "val" in n.meta:
            return n.meta["val"]
        try:
            value = super().run_node(n)
        except (RuntimeError, ValueError):
            if n.target is not _VIEW:
                raise
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            value = _RESHAPE(*args, **kwargs)
            self.views.append(n)
        if n.op != "output":
            self.made[n] = value
        return value


def _any_relaid(gm: fx.GraphModule, record: GraphRecord) -> bool:
    """Whether a saved tensor is recorded as non-contiguous: the only hint of a changed layout in the record."""
    saved = {row.name for row in record.inputs if row.role == "saved"}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and node.name in saved and isinstance(value, torch.Tensor):
            with contextlib.suppress(Exception):  # unbacked sizes cannot be compared
                if value.ndim > 1 and value.layout is torch.strided and not value.is_contiguous():
                    return True
    return False


def _same_but_strides(recorded: Any, built: Any) -> bool:
    if isinstance(recorded, torch.Tensor) and isinstance(built, torch.Tensor):
        return _shape(recorded) == _shape(built) and recorded.dtype == built.dtype and recorded.device == built.device
    if isinstance(recorded, (tuple, list)) and isinstance(built, (tuple, list)) and len(recorded) == len(built):
        pairs = zip(recorded, built, strict=True)
        return all((before is None and after is None) or _same_but_strides(before, after) for before, after in pairs)
    return False


def _other_strides(recorded: Any, built: Any) -> bool:
    if isinstance(recorded, torch.Tensor) and isinstance(built, torch.Tensor):
        return _shape(recorded) == _shape(built) and [*map(str, recorded.stride())] != [*map(str, built.stride())]
    if isinstance(recorded, (tuple, list)) and isinstance(built, (tuple, list)):
        return any(_other_strides(before, after) for before, after in zip(recorded, built, strict=False))
    return False


def _shape(value: torch.Tensor) -> list[str]:
    """The shape as text, so that comparing symbols adds no guard."""
    return [str(size) for size in value.shape]
