# pyright: basic
"""Parts of a saved graph that run by themselves: values are recorded once into a folder, then any subset of atoms is
built from there in another process, with recorded values where it was cut.

The folder `work` holds the index of values, their tensors and the atoms. Where eager cannot run here (a custom operator
without a kernel for this machine, a device that is not there, tensors larger than the memory) values are known by their
form alone: what is built from those can be compiled and never run. Compiles and judges nothing.

>>> atoms = keep_values(case, Path("work"), seed=0)
>>> part, part_inputs = part_of(Case(saved), Path("work"), keep={3, 4}).gm, 0
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import fx

from ...dumps import live
from ...dumps.errors import EnvironmentLackError
from ...dumps.schema import GraphRecord, NodeRecord
from ...dumps.store import SavedGraph
from ...dumps.torchside.wrappers import is_wrapper, type_name
from ...dumps.walk import contents, given, references
from ..live import process_groups
from ..live.case import Case, Live, as_reshapes, follow_saved, moved
from ..live.entries import mode_of
from ..live.spec import ReplaySpec, in_force, settings
from ..live.values import Held, Values, load_fakes
from .atoms import SYMBOLIC, Atoms
from .eager_values import Recorder, record_values
from .spill import load_values, save_values
from .subgraph import build, candidate_spec, until

ATOMS = "atoms.json"


class Invalid(Exception):
    """A part that cannot be built."""


def keep_values(case: Live, work: Path, *, seed: int, ends_at: str = "", running: Path | None = None) -> Atoms:
    """Runs the case eagerly once, spills every value to `work` and returns the atoms of the graph: those up to the node
    that raises, where one does, or must not be run (`ends_at`, `running`: see `record_values`)."""
    with settings(case.spec.config), in_force(case.spec):
        torch.manual_seed(seed)
        values = record_values(case.gm, case.inputs, work, errors=True, ends_at=ends_at, running=running)
    return keep_atoms(until(case.gm, values.raised) if values.raised else case.gm, values, work)


def keep_atoms(gm: fx.GraphModule, values: Values, work: Path) -> Atoms:
    """Writes recorded values and the atoms of their graph to `work`."""
    atoms = Atoms.of(gm, values)
    save_values(values, work)
    (work / ATOMS).write_bytes(msgspec.json.encode(atoms.to_json()))
    return atoms


def atoms_in(work: Path) -> Atoms:
    """The atoms that `keep_values` wrote."""
    return Atoms.from_json(msgspec.json.decode((work / ATOMS).read_bytes()))


def part_of(
    case: Case,
    work: Path,
    keep: Collection[int],
    *,
    bypass: Collection[int] = (),
    returned: Collection[int] | None = None,
    device: str | None = None,
) -> Live:
    """The graph of the kept atoms, its inputs and how it enters the compiler; see `subgraph.build`. Raises Invalid."""
    atoms, saved = atoms_in(work), case.saved
    names = {name for atom in keep for name in atoms.nodes[atom]}
    names |= {name for atom in keep if (name := atoms.returns[atom]) in atoms.carried.numbers and name is not None}
    names |= atoms.carried.needed(names, atoms.order) | {name for atom in bypass for name in atoms.nodes[atom]}
    given_back = {atoms.order[position] for position in returned or ()}
    given_back |= {name for atom in keep if (name := atoms.returns[atom]) is not None}
    record = prune(saved.record, names, given_back)
    gm, _, mode = live.fake_module(record, saved.tensors, where=str(saved.path))
    values = load_values(work, mode)
    mode.allow_non_fake_inputs |= any(isinstance(value, Held) and value.fake is not None for value in values.inputs)
    if all(facts["world_size"] == 1 for facts in process_groups.groups_of(record).values()):  # else nothing is run here
        process_groups.join(record)
    as_reshapes(gm, set(atoms.reshaped))
    there = {item.name for item in record.graph.nodes if item.op == "placeholder"}
    values.inputs = [value for name, value in zip(inputs_of(saved), values.inputs, strict=True) if name in there]
    spec = ReplaySpec.of(saved.record, device=device)
    if device is not None:
        moved(gm, [], torch.device(device))
        spec.dynamic = False
    try:
        module, inputs = build(gm, atoms, values, keep, bypass=bypass, returned=returned, joint=spec.training_joint)
    except (RuntimeError, ValueError) as error:
        raise Invalid(str(error)) from error
    return Live(module, inputs, candidate_spec(spec, inputs_of(saved), module))


def inputs_of(saved: SavedGraph) -> list[str]:
    """The names of a graph's placeholders."""
    return [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]


def prune(record: GraphRecord, keep: Collection[str], returned: Collection[str] = ()) -> GraphRecord:
    """The record with the kept compute nodes, what they read, the placeholders in use and what is returned: a query
    about three nodes of a large graph loads three nodes.

    A node that is not kept, but read by a kept node, becomes a placeholder record with the same name and value;
    `subgraph.build` gives it its recorded value.
    """
    body = record.graph
    needed: set[str] = {*keep, *returned}
    for node in body.nodes:
        if node.name in keep:
            needed |= set(references(given(node)))
    nodes: list[NodeRecord] = []
    for node in body.nodes:
        if node.op == "output":
            nodes.append(_output(node, {*keep, *returned}))
        elif node.op == "placeholder":
            # Symbols are bound by placeholders, so all of them stay where there are any.
            if node.name in needed or record.symbols:
                nodes.append(node)
        elif node.name in needed:
            as_is = node.name in keep or node.op == "get_attr"
            nodes.append(node if as_is else _placeholder(node))
    attrs = {node.target for node in nodes if node.op == "get_attr"}
    inner = set(contents([given(node) for node in nodes], "tensor"))
    modules = {node.target for node in nodes if node.op == "call_module"}
    smaller = msgspec.structs.replace(
        body,
        nodes=nodes,
        attrs={name: value for name, value in body.attrs.items() if name in attrs or name in inner},
        modules={name: value for name, value in body.modules.items() if name in modules},
        subgraphs={name: value for name, value in body.subgraphs.items() if name in attrs},
    )
    present = {node.name for node in nodes}
    return msgspec.structs.replace(
        record, graph=smaller, inputs=[item for item in record.inputs if item.name in present]
    )


def _placeholder(node: NodeRecord) -> NodeRecord:
    return NodeRecord(
        name=node.name, op="placeholder", target=node.name, value=node.value, stack=node.stack, module=node.module
    )


def _output(node: NodeRecord, there: Collection[str]) -> NodeRecord:
    left = [{"node": name} for name in dict.fromkeys(references(node.args)) if name in there]
    return msgspec.structs.replace(node, args=[{"tuple": left}], value=None)


def made_fakes(saved: SavedGraph) -> Live:
    """A saved graph whose inputs are fake tensors of the recorded sizes. Raises EnvironmentLackError where one is not
    known."""
    gm, fakes, mode = live.fake_module(saved.record, saved.tensors, where=str(saved.path))
    mode.allow_non_fake_inputs = True
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), fakes, strict=True):
        if value is None and node.users:
            what = f"of the input {node.name} only the name was recorded"
            raise EnvironmentLackError(what, "", "record with --inputs first")
    inputs = _numbered(fakes, mode)
    return Live(gm, inputs, ReplaySpec.of(saved.record), follow_saved(gm, mode, saved.record))


def keep_fakes(case: Live, work: Path) -> Atoms:
    """Traces the case on fake tensors, writes the form of every value to `work`, and returns the atoms of the graph."""
    mode = mode_of(case.gm, case.inputs)
    recorder = _Forms(case.gm, case.inputs, mode)
    with settings(case.spec.config), in_force(case.spec), mode:
        recorder.run(*case.inputs, enable_io_processing=False)
    values = recorder.values
    values.inputs = [recorder.form(value) if isinstance(value, torch.Tensor) else value for value in values.inputs]
    return keep_atoms(case.gm, values, work)


def one_operator(case: Live) -> Live:
    """A graph of one plain operator on the case's device: where this graph fails too, the failure is not the case's."""
    devices = [value.device for value in case.inputs if isinstance(value, torch.Tensor) and value.device.type != "cpu"]
    with mode_of(case.gm, case.inputs):
        value = torch.empty(8, device=devices[0] if devices else "cpu")
    graph = fx.Graph()
    given = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.neg.default, (given,)),))
    return Live(fx.GraphModule({}, graph), [value])


class _Forms(Recorder):
    """Records the form of each node's value, on fake tensors. Writes that a custom operator does not declare are not
    seen."""

    def __init__(self, gm: fx.GraphModule, inputs: list[Any], mode: Any) -> None:
        super().__init__(gm, inputs, None)
        self.mode = mode

    def fetch_attr(self, target: str) -> Any:
        value = fx.Interpreter.fetch_attr(self, target)
        if target not in self._attributes:
            self._attributes[target] = self.mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        return self._attributes[target]

    def form(self, value: torch.Tensor, *, alone: bool = False) -> Held:
        """The kept form of a tensor; with `alone`, without the values whose memory it shares."""
        if value.layout is not torch.strided or is_wrapper(value):
            why = f"a value is a {type_name(value)}" if is_wrapper(value) else f"a value has the layout {value.layout}"
            raise EnvironmentLackError("cannot make up values for this graph", why, "record with --inputs first")
        offset, place = _number(value.storage_offset()), None
        if not alone:
            [storage] = self._memory(value)
            place = storage, 0, offset * value.element_size()
        shape, stride = (tuple(map(_number, numbers)) for numbers in (value.shape, value.stride()))
        held = Held(shape, stride, offset, value.dtype, value.device, value.requires_grad, place=place, fake=self.mode)
        held.parameter = isinstance(value, torch.nn.Parameter)
        return held

    def _bytes_before(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def _hold_tensor(self, value: torch.Tensor, name: str) -> Held:
        return self.form(value, alone=True)


def _numbered(fakes: Sequence[Any], mode: Any) -> list[Any]:
    """The values of a graph's placeholders with numbers in place of symbols, as in a run; aliases stay."""
    numbering = _Forms(fx.GraphModule({}, fx.Graph()), [], mode)
    forms = [numbering.form(value) if isinstance(value, torch.Tensor) else _number(value) for value in fakes]
    return load_fakes(forms)


def _number(value: Any) -> Any:
    """A size, or an input that is one, as the recorded number; anything else as it is."""
    if not isinstance(value, SYMBOLIC):
        return value
    hint = value.node.hint
    if hint is None:
        why = f"the size {value} has no recorded value"
        raise EnvironmentLackError("cannot make up values for this graph", why, "record with --inputs first")
    return hint
