# pyright: basic
"""Values of a graph that eager cannot run here, known by their form alone: shape, strides, dtype, device, aliases of inputs.

A custom operator without a kernel for this machine, a graph of a device that is not there, tensors larger than the memory: what
is built from such values can be compiled and never run. The opposite of `eager_values`; no tensor of the graph is allocated.

>>> atoms = keep_fakes(Case.at("case").fakes(), work)
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ..dumps import live
from ..dumps.errors import EnvironmentLackError
from .atoms import Atoms
from .case import Live
from .eager_values import Recorder
from .fakes import mode_of
from .parts import keep_atoms
from .relaid import follow_saved
from .settings import settings
from .sharing import load_fakes
from .spec import ReplaySpec
from .surroundings import in_force
from .values import Held

if TYPE_CHECKING:
    from ..dumps.store import SavedGraph


def made_fakes(saved: SavedGraph) -> Live:
    """A saved graph whose inputs are fake tensors of the recorded sizes. Raises EnvironmentLackError where one is not known."""
    gm, fakes, mode = live.fake_module(saved.record, saved.tensors, where=str(saved.path))
    mode.allow_non_fake_inputs = True
    names = [node.name for node in saved.record.graph.nodes if node.op == "placeholder"]
    known = dict(zip(names, fakes, strict=True))
    unknown = [name for name, value in known.items() if value is None and _needed(gm, name)]
    if unknown:
        raise EnvironmentLackError(f"nothing is known of the input {unknown[0]} but its name", "", "record with --inputs first")
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
    """A graph of one plain operator on the case's device: what fails on this, too, is no failure of the case."""
    devices = [value.device for value in case.inputs if isinstance(value, torch.Tensor) and value.device.type != "cpu"]
    with mode_of(case.gm, case.inputs):
        value = torch.empty(8, device=devices[0] if devices else "cpu")
    graph = fx.Graph()
    given = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.neg.default, (given,)),))
    return Live(fx.GraphModule({}, graph), [value])


class _Forms(Recorder):
    """Keeps the form of what each node makes. What custom operators write to without saying so is not seen."""

    def __init__(self, gm: fx.GraphModule, inputs: list[Any], mode: Any) -> None:
        super().__init__(gm, inputs, None)
        self.mode = mode

    def fetch_attr(self, target: str) -> Any:
        value = fx.Interpreter.fetch_attr(self, target)
        if target not in self._attributes:
            self._attributes[target] = self.mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
        return self._attributes[target]

    def form(self, value: torch.Tensor, *, alone: bool = False) -> Held:
        """What is kept of a tensor; `alone`: not what it shares its memory with."""
        plain = value.layout is torch.strided
        if not plain:
            raise EnvironmentLackError("the values of this graph cannot be made up", f"one has the layout {value.layout}")
        offset = _number(value.storage_offset())
        place = None
        if not alone:
            [storage] = self._memory(value)
            place = storage, 0, offset * value.element_size()
        return Held(
            tuple(_number(size) for size in value.shape), tuple(_number(step) for step in value.stride()), offset,
            value.dtype, value.device, value.requires_grad, None, None, isinstance(value, torch.nn.Parameter),
            place, self.mode,
        )  # fmt: skip

    def _bytes_before(self, n: fx.Node) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def _hold_tensor(self, value: torch.Tensor, name: str) -> Held:
        return self.form(value, alone=True)


def _numbered(fakes: Sequence[Any], mode: Any) -> list[Any]:
    """The values of a graph's placeholders with numbers for symbols, as a run would be given them; aliases stay."""
    numbering = _Forms(fx.GraphModule({}, fx.Graph()), [], mode)
    forms = [numbering.form(value) if isinstance(value, torch.Tensor) else _plain(value) for value in fakes]
    return load_fakes(forms)


def _plain(value: Any) -> Any:
    return _number(value) if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _number(value: Any) -> Any:
    """A size as the number that it was on record."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    hint = value.node.hint
    if hint is None:
        raise EnvironmentLackError("the values of this graph cannot be made up", f"only a run tells the size {value}")
    return hint


def _needed(gm: fx.GraphModule, name: str) -> bool:
    return any(node.name == name and node.users for node in gm.graph.nodes)
