"""`lazy_compile`: the graph extracted through torch's lazy TorchScript backend, an IR and an executor apart from
Inductor's.

A graph is extracted for each geometry of its inputs (sizes, strides, numbers) that it is called with. An operator
without a lazy kernel, and there are many (`sin`), is named with the user's line. As a backend, a graph that cannot be
extracted runs as it is, after one warning for that graph. The lazy backend is begun, for the whole process, when the
first graph is compiled, never by an import. Parameters and buffers are inputs: what an optimizer writes is seen. On the
CPU only; the caller's graph stays unchanged.

Inputs are found by the tensor ids of the backend's device data; what is no input (numbers, constants, factories) is
kept. In-place updates are copied back, and outputs come back as eager's: the argument itself, a view of it, one tensor
twice, the strides.

For example:

    compiled = lazy_compile(fx_g, [x, w]); compiled([x, w]); compiled.graph_hash, compiled.ir
    torch.compile(model, backend="graphdbg_lazy", options={"folder": "ir"})      # ir/0_0-forward.ir.txt
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.wording import counted
from .. import torch_private as t
from ..live.execution import leaves, rebuilt
from . import lazy_tracing
from .boxed import by_stage
from .decompositions import default_decompositions
from .label import Label, label
from .lazy_tracing import Fallback, NotExtractedError, Traced, attributes_of, traced
from .scriptable import storage_size

KEPT = 64
"""Geometries of one graph that stay extracted; the oldest goes first."""

_lock = threading.RLock()
"""The counters that tell of fallbacks are the process's."""


class LazyGraph:
    """A compiled graph, boxed. `extractions` has one entry for each geometry of the inputs; `refused` says why there
    are none."""

    def __init__(self, fx_g: fx.GraphModule, name: Label, folder: Path | None, *, as_it_is: bool) -> None:
        self.__wrapped__ = fx_g
        self._boxed_call = True  # of the instance: Dynamo's wrappers copy what is its own
        self.name = name
        self.folder = folder
        self.as_it_is = as_it_is
        self.extractions: dict[Any, Extraction] = {}
        self.saved: list[Path] = []
        self.refused: NotExtractedError | None = None

    @property
    def graph_hash(self) -> str:
        """The lazy backend's hash of the graph extracted last, as hexadecimal digits; "" before there is one."""
        return next((extraction.graph_hash for extraction in reversed(self.extractions.values())), "")

    @property
    def ir(self) -> str:
        """The lazy backend's IR of the graph extracted last, as text; "" before there is one."""
        return next((extraction.ir for extraction in reversed(self.extractions.values())), "")

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The operators for which the graph runs as it is."""
        return self.refused.fallbacks if self.refused is not None else ()

    def __call__(self, *args: Any) -> Any:
        """Runs the graph on one list of inputs. Raises NotExtractedError on inputs for which it cannot be extracted,
        unless the backend runs it as it is."""
        inputs = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args)
        for _ in range(2):
            if self.refused is not None:
                break
            attributes = attributes_of(self.__wrapped__)
            extraction = self.prepare(inputs, attributes)
            if extraction is None:
                break
            there, result = extraction([*inputs, *attributes.values()])
            if there:
                return result
            self.extractions = {}  # torch keeps a number of compiled graphs, and this one is not among them any more
        if self.refused is None:
            raise RuntimeError("torch forgot a lazy graph between its compile and its run")
        if not self.as_it_is:
            raise self.refused
        return self.__wrapped__(*inputs)

    def prepare(self, inputs: Sequence[Any], attributes: dict[str, torch.Tensor]) -> Extraction | None:
        """The extraction for inputs of this geometry; None where there is none, with the reason in `refused`."""
        with _lock:
            key = _geometry([*inputs, *attributes.values()])
            if key in self.extractions:
                return self.extractions[key]
            try:
                extraction = extract(self.__wrapped__, inputs, attributes)
            except NotExtractedError as error:
                self.refused = error
                self.extractions = {}
                if self.as_it_is:
                    text = f"{self.name} runs as it is, not through the lazy backend: {error.why}"
                    warnings.warn(f"graphdbg: {text}", stacklevel=2)
                return None
            while len(self.extractions) >= KEPT:
                del self.extractions[next(iter(self.extractions))]
            self.extractions[key] = extraction
            if self.folder is not None and extraction.graph_hash:
                self.saved.append(_save(self.folder, self.name, extraction))
            return extraction


def lazy_compile(fx_g: fx.GraphModule, inps: Sequence[Any], folder: str | os.PathLike[str] | None = None) -> LazyGraph:
    """Extracts the graph now; where sizes or numbers are symbolic, when it is called, for each of them.

    Into `folder` go the hash and the IR text of each extraction, in a file of its own. Raises NotExtractedError, which
    is a GraphdbgError, now or in the call.
    """
    graph = _compiled_now(fx_g, inps, None, folder, as_it_is=False)
    if graph.refused is not None:
        raise graph.refused
    return graph


def _compiled_now(
    fx_g: fx.GraphModule,
    inps: Sequence[Any],
    stage: str | None,
    folder: str | os.PathLike[str] | None,
    *,
    as_it_is: bool,
) -> LazyGraph:
    graph = LazyGraph(fx_g, label(fx_g, stage), Path(folder) if folder else None, as_it_is=as_it_is)
    attributes = attributes_of(fx_g)
    if not any(_is_symbolic(value) for value in (*inps, *attributes.values())):
        graph.prepare(inps, attributes)
    return graph


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_nested:
        return any(_is_symbolic(size) for size in (*value.shape, *value.stride(), value.storage_offset()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _geometry(given: Sequence[Any]) -> tuple[Any, ...]:
    """What an extraction depends on: sizes, strides, which inputs share memory, and the numbers themselves."""
    first: dict[int, int] = {}
    key: list[Any] = []
    for place, value in enumerate(given):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_nested:
            shared = first.setdefault(storage_size(value)[0], place)
            key.append((value.dtype, value.device, value.shape, value.stride(), value.storage_offset(), shared))
        elif isinstance(value, torch.Tensor):
            key.append((value.dtype, value.device, value.layout, place))
        else:
            key.append((type(value), repr(value)))  # of a float the repr is exact, and NaN equals itself
    return tuple(key)


def _save(folder: Path, name: Label, extraction: Extraction) -> Path:
    """Writes hash and IR into the first name that is free: an existing file is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# {name}\n# graph hash {extraction.graph_hash}\n{extraction.ir.rstrip()}\n"
    for number in count():
        path = folder / f"{name.name}-{name.stage}{f'.{number}' if number else ''}.ir.txt"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable: there is always another number")


def backend_arguments(folder: str | os.PathLike[str] = "", decompose: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_lazy`; operators are left as they are called unless they are to be
    decomposed.

    A graph that cannot be extracted runs as it is. One warning for the graph (forward and backward are two) names the
    operators and the user's lines.
    """

    compilers = by_stage(lambda stage: lambda fx_g, inps: _compiled_now(fx_g, inps, stage, folder, as_it_is=True))
    return {**compilers, "decompositions": default_decompositions if decompose else None}


@dataclass(frozen=True)
class Made:
    """An output made of `results[place]`, in eager's strides."""

    place: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class InputView:
    """An output that shares an input's memory (or the `base`-th output's): that one itself where `whole`."""

    base: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    of_output: bool = False
    whole: bool = False


@dataclass(frozen=True)
class PlainOutput:
    """An output that is not a tensor."""

    value: Any


@dataclass
class Extraction:
    """A compiled graph. `sources`: for each of its inputs the place among the graph's inputs, or a constant."""

    graph_hash: str
    ir: str
    key: bytes
    sources: list[int | torch.Tensor]
    updated: list[tuple[int, int]]
    """(result, the input that it is copied back to)."""
    outputs: list[Made | InputView | PlainOutput]
    container: Any
    """The lists, tuples and dictionaries that the outputs come back in."""

    def __call__(self, given: Sequence[Any]) -> tuple[bool, Any]:
        """(True, what the graph returns); (False, None) when torch has forgotten the graph. `given`: inputs, then
        attributes."""
        with torch.no_grad():
            results = self._results(given)
            if results is None:
                return False, None
            for place, target in self.updated:
                given[target].copy_(results[place].view(given[target].shape))
            outputs: list[Any] = [self._output(wanted, results, given) for wanted in self.outputs]
            for place, wanted in enumerate(self.outputs):
                if isinstance(wanted, InputView) and wanted.of_output:
                    outputs[place] = _view(outputs[wanted.base], wanted)
        rest = iter(outputs)
        return True, rebuilt(self.container, lambda: next(rest))

    def _results(self, given: Sequence[Any]) -> list[torch.Tensor] | None:
        """The results of the compiled graph, each in memory of its own: a clone is no operation for the lazy
        backend."""
        if not self.updated and not any(isinstance(output, Made) for output in self.outputs):
            return []
        values = [
            _traced_shape(given[source].detach()) if isinstance(source, int) else source for source in self.sources
        ]
        computed = lazy_tracing.run_lazy(self.key, values)
        if computed is None:
            return None
        seen = {value.untyped_storage().data_ptr() for value in values}
        results = []
        for result in computed:
            pointer = result.untyped_storage().data_ptr()
            results.append(result.clone() if pointer in seen else result)
            seen.add(pointer)
        return results

    def _output(self, wanted: Made | InputView | PlainOutput, results: list[torch.Tensor], given: Sequence[Any]) -> Any:
        if isinstance(wanted, PlainOutput):
            return wanted.value
        if isinstance(wanted, InputView):
            return None if wanted.of_output else _view(given[wanted.base], wanted)
        computed = results[wanted.place]
        if computed.stride() == wanted.stride:
            return computed
        laid = torch.empty_strided(wanted.size, wanted.stride, dtype=computed.dtype)
        return laid.copy_(computed)


def _traced_shape(value: torch.Tensor) -> torch.Tensor:
    return value if value.dim() else value.view(1)


def _view(base: torch.Tensor, wanted: InputView) -> torch.Tensor:
    return base if wanted.whole else base.as_strided(wanted.size, wanted.stride, wanted.offset)


def extract(gm: fx.GraphModule, inps: Sequence[Any], attributes: dict[str, torch.Tensor]) -> Extraction:
    """Compiles a graph for inputs of this geometry. Raises NotExtractedError, with every operator that has no lazy
    kernel."""
    given = [*inps, *attributes.values()]
    for value in given:
        _refuse(value)
    with torch.random.fork_rng(devices=[]):  # the stand-ins are computed with, too
        trace = traced(gm, inps, attributes)
        _refuse_shared(given, trace.changed)
        with torch.inference_mode(False), torch.no_grad(), t.modes_off():
            return _compiled(trace)


def _compiled(trace: Traced) -> Extraction:
    results: list[torch.Tensor] = []
    places: dict[int, int] = {}

    def place(lazy: torch.Tensor) -> int:
        number = t.lazy_tensor_id(lazy)
        if number not in places:
            places[number] = len(results)
            results.append(lazy)
        return places[number]

    updated = [(place(trace.lazies[index]), index) for index in trace.changed]
    outputs, container = _outputs(trace, place), rebuilt(trace.eager, lambda: None)
    if not results:
        return Extraction("", "", b"", [], [], outputs, container)
    try:
        key, ir, ids, values = lazy_tracing.extract_lazy(results)
        compiled = len(lazy_tracing.run_lazy(key, values) or ())
    except RuntimeError as error:
        raise NotExtractedError(f"its IR cannot be compiled: {str(error).strip().partition(chr(10))[0]}") from error
    if compiled != len(results):
        raise NotExtractedError(
            f"it compiled {compiled} of {counted(len(results), 'result')}: the others are no computations"
        )
    sources: list[int | torch.Tensor] = [
        given if (given := trace.ids.get(number)) is not None else value
        for number, value in zip(ids, values, strict=True)
    ]
    return Extraction(key.hex(), ir, key, sources, updated, outputs, container)


def _outputs(trace: Traced, place: Any) -> list[Made | InputView | PlainOutput]:
    """How each output comes about: by what it shares in eager."""
    storages = {
        storage_size(fake)[0]: number
        for number, fake in reversed(list(enumerate(trace.fakes)))
        if isinstance(fake, torch.Tensor)
    }
    eager, lazy = leaves(trace.eager), leaves(trace.values)
    bases: dict[int, int] = {}
    for number, fake in enumerate(eager):
        if isinstance(fake, torch.Tensor) and _covers(fake):
            bases.setdefault(storage_size(fake)[0], number)
    outputs: list[Made | InputView | PlainOutput] = []
    for number, (fake, value) in enumerate(zip(eager, lazy, strict=True)):
        if not isinstance(fake, torch.Tensor):
            outputs.append(PlainOutput(value))
            continue
        storage = storage_size(fake)[0]
        geometry = tuple(fake.shape), tuple(fake.stride()), int(fake.storage_offset())
        first = next(earlier for earlier, tensor in enumerate(eager) if tensor is fake)
        if storage in storages:
            same = [at for at, argument in enumerate(trace.fakes) if argument is fake]
            base = same[0] if same else storages[storage]
            _refuse_reinterpreted(fake, trace.fakes[base])
            outputs.append(InputView(base, *geometry, whole=bool(same)))
        elif first < number:
            outputs.append(InputView(first, *geometry, of_output=True, whole=True))
        elif bases.get(storage, number) != number and eager[bases[storage]].dtype == fake.dtype:
            outputs.append(InputView(bases[storage], *geometry, of_output=True))
        else:
            lazy_kind, kind = ((tensor.dtype, tuple(tensor.shape)) for tensor in (value, fake))
            if lazy_kind != kind:
                raise NotExtractedError(f"output {number} would be {lazy_kind}, and eager gives {kind}")
            outputs.append(Made(place(value), *geometry[:2]))
    return outputs


def _covers(fake: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage, so that others can be views of it."""
    return fake.numel() * fake.element_size() == storage_size(fake)[1] and fake.storage_offset() == 0


def _refuse(value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        return
    if value.layout != torch.strided or value.is_nested or value.is_quantized or value.is_conj() or value.is_neg():
        raise NotExtractedError(
            "an input is sparse, nested, quantised or a conjugate view: there are no such lazy tensors"
        )
    if not isinstance(value, t.FakeTensor) and type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise NotExtractedError(f"an input is a {type(value).__name__}: there are no such lazy tensors")
    if value.device.type != "cpu":
        raise NotExtractedError(f"an input is on {value.device}, and the lazy TorchScript backend runs on the CPU")


def _refuse_shared(given: Sequence[Any], changed: Sequence[int]) -> None:
    """An input that is written to is a copy for the lazy backend, so that another one in its memory would not see
    it."""
    storages = [storage_size(value)[0] if isinstance(value, torch.Tensor) else None for value in given]
    for place in changed:
        if storages.count(storages[place]) > 1:
            raise NotExtractedError("an input that the graph writes to shares its memory with another input")


def _refuse_reinterpreted(fake: torch.Tensor, base: torch.Tensor) -> None:
    if fake.dtype != base.dtype or fake.is_conj() != base.is_conj() or fake.is_neg() != base.is_neg():
        raise NotExtractedError("an output is an argument's memory seen as another dtype, or its lazy conjugate")
