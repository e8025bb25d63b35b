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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ...dumps.wording import counted, error_line
from .. import torch_private as t
from ..live.execution import leaves, rebuilt
from . import lazy_tracing
from .boxed import Label, by_stage, label, numbered
from .lazy_tracing import LazyTrace, NotExtractedError, attributes_of, traced
from .scriptable import storage_size
from .ts_compile import default_decompositions

KEPT = 64
"""Geometries of one graph that stay extracted; the oldest goes first."""

_lock = threading.RLock()
"""Held while a graph is extracted: the counters that report fallbacks are the process's."""


class LazyGraph:
    """A compiled graph, boxed. `extractions` has one entry for each geometry of the inputs; `refused` says why there
    are none. Extracted now unless sizes or numbers are symbolic; as a backend (`stage` known) what cannot be extracted
    runs as it is."""

    def __init__(
        self, fx_g: fx.GraphModule, inps: Sequence[Any], folder: str | os.PathLike[str] | None, stage: str | None = None
    ) -> None:
        self.__wrapped__ = fx_g
        self._boxed_call = True  # on the instance: Dynamo's wrappers copy an instance's attributes
        self.name = label(fx_g, stage)
        self.folder = Path(folder) if folder else None
        self.as_it_is = stage is not None
        self.extractions: dict[Any, Extraction] = {}
        self.refused: NotExtractedError | None = None
        attributes = attributes_of(fx_g)
        if not any(_is_symbolic(value) for value in (*inps, *attributes.values())):
            self._prepare(inps, attributes)

    @property
    def graph_hash(self) -> str:
        """The lazy backend's hash of the graph extracted last, as hexadecimal digits; "" before there is one."""
        return next((extraction.key.hex() for extraction in reversed(self.extractions.values())), "")

    @property
    def ir(self) -> str:
        """The lazy backend's IR of the graph extracted last, as text; "" before there is one."""
        return next((extraction.ir for extraction in reversed(self.extractions.values())), "")

    def __call__(self, *args: Any) -> Any:
        """Runs the graph on one list of inputs. Raises NotExtractedError on inputs for which it cannot be extracted,
        unless the backend runs it as it is."""
        inputs = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args)
        while self.refused is None:
            attributes = attributes_of(self.__wrapped__)
            extraction = self._prepare(inputs, attributes)
            given = [*inputs, *attributes.values()]
            if extraction is not None and (results := extraction.results(given)) is not None:
                return extraction.returned(results, given)
            self.extractions = {}  # torch keeps a number of compiled graphs, and this one is not among them any more
        if not self.as_it_is:
            raise self.refused
        return self.__wrapped__(*inputs)

    def _prepare(self, inputs: Sequence[Any], attributes: dict[str, torch.Tensor]) -> Extraction | None:
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
            if self.folder is not None and extraction.key:
                _save(self.folder, self.name, extraction)
            return extraction


def lazy_compile(fx_g: fx.GraphModule, inps: Sequence[Any], folder: str | os.PathLike[str] | None = None) -> LazyGraph:
    """Extracts the graph now; where sizes or numbers are symbolic, when it is called, for each of them.

    Into `folder` go the hash and the IR text of each extraction, in a file of its own. Raises NotExtractedError, which
    is a GraphdbgError, now or in the call.
    """
    graph = LazyGraph(fx_g, inps, folder)
    if graph.refused is not None:
        raise graph.refused
    return graph


def lazy_arguments(folder: str | os.PathLike[str] = "", decompose: bool = False) -> dict[str, Any]:
    """What AOTAutograd is given for `graphdbg_lazy`; operators are left as they are called unless they are to be
    decomposed.

    A graph that cannot be extracted runs as it is. One warning for the graph (forward and backward are two) names the
    operators and the user's lines.
    """
    compilers = by_stage(lambda stage: lambda fx_g, inps: LazyGraph(fx_g, inps, folder, stage))
    return {**compilers, "decompositions": default_decompositions if decompose else None}


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
        else:
            # the repr of a float is exact, and that of NaN equals itself; other tensors are refused
            key.append((type(value), repr(value)))
    return tuple(key)


def _save(folder: Path, name: Label, extraction: Extraction) -> None:
    """Writes hash and IR into the first name that is free: an existing file is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in numbered(folder / f"{name.name}-{name.stage}", ".ir.txt"):
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(f"# {name}\n# graph hash {extraction.key.hex()}\n{extraction.ir.rstrip()}\n")
            return


@dataclass(frozen=True)
class LazyOutput:
    """An output: the `place`-th of the results, inputs or outputs (`of`), as it is or in a geometry (size, stride,
    offset); or no tensor but the value `place` itself ("itself")."""

    of: str
    place: Any
    geometry: tuple[tuple[int, ...], tuple[int, ...], int] | None = None

    def made(self, sources: dict[str, Sequence[Any]]) -> Any:
        """The output. A result has memory of its own, and only its strides may be other ones."""
        if self.of == "itself":
            return self.place
        base: torch.Tensor = sources[self.of][self.place]
        if self.geometry is None:
            return base
        size, stride, offset = self.geometry
        if self.of != "results":
            return base.as_strided(size, stride, offset)
        return base if base.stride() == stride else torch.empty_strided(size, stride, dtype=base.dtype).copy_(base)


@dataclass
class Extraction:
    """A compiled graph. `sources`: for each of its inputs the place among the graph's inputs, or a constant."""

    key: bytes
    """The lazy backend's hash of the graph; empty where the graph computes nothing."""
    ir: str
    sources: list[int | torch.Tensor]
    updated: list[tuple[int, int]]
    """(result, the input that it is copied back to)."""
    outputs: list[LazyOutput]
    container: Any
    """The lists, tuples and dictionaries that the outputs come back in."""

    def results(self, given: Sequence[Any]) -> list[torch.Tensor] | None:
        """The results of the compiled graph, each in memory of its own: a clone is no operation for the lazy backend.
        None when torch has forgotten the graph. `given`: inputs, then attributes."""
        if not self.key:
            return []
        values = [torch.atleast_1d(given[at].detach()) if isinstance(at, int) else at for at in self.sources]
        with torch.no_grad():
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

    def returned(self, results: Sequence[torch.Tensor], given: Sequence[Any]) -> Any:
        """What the graph returns, after its updates of the inputs."""
        outputs: list[Any] = [None] * len(self.outputs)
        sources: dict[str, Sequence[Any]] = {"results": results, "inputs": given, "outputs": outputs}
        with torch.no_grad():
            for place, target in self.updated:
                given[target].copy_(results[place].view(given[target].shape))
            for number, output in sorted(enumerate(self.outputs), key=lambda item: item[1].of == "outputs"):
                outputs[number] = output.made(sources)
        rest = iter(outputs)
        return rebuilt(self.container, lambda: next(rest))


def extract(gm: fx.GraphModule, inps: Sequence[Any], attributes: dict[str, torch.Tensor]) -> Extraction:
    """Compiles a graph for inputs of this geometry. Raises NotExtractedError, with every operator that has no lazy
    kernel."""
    given = [*inps, *attributes.values()]
    for value in given:
        _refuse(value)
    with torch.random.fork_rng(devices=[]):  # tracing computes on the stand-ins, and may draw random numbers
        trace = traced(gm, inps, attributes)
        storages = [storage_size(value)[0] if isinstance(value, torch.Tensor) else None for value in given]
        if any(storages.count(storages[place]) > 1 for place in trace.changed):
            # the lazy backend copies each input, so that another input in the same memory would not see the write
            raise NotExtractedError("an input that the graph writes to shares its memory with another input")
        with torch.inference_mode(False), torch.no_grad(), t.modes_off():
            return _compiled(trace)


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


def _compiled(trace: LazyTrace) -> Extraction:
    results: dict[int, torch.Tensor] = {}

    def place(lazy: torch.Tensor) -> int:
        number = t.lazy_tensor_id(lazy)
        results.setdefault(number, lazy)
        return list(results).index(number)

    updated = [(place(trace.lazies[index]), index) for index in trace.changed]
    outputs, container = _outputs(trace, place), rebuilt(trace.eager, lambda: None)
    if not results:
        return Extraction(b"", "", [], [], outputs, container)
    try:
        key, ir, ids, values = lazy_tracing.extract_lazy(list(results.values()))
        compiled = len(lazy_tracing.run_lazy(key, values) or ())
    except RuntimeError as error:
        raise NotExtractedError(f"its IR cannot be compiled: {error_line(error)}") from error
    if compiled != len(results):
        raise NotExtractedError(
            f"it compiled {compiled} of {counted(len(results), 'result')}: the others are no computations"
        )
    sources: list[Any] = [trace.ids.get(number, value) for number, value in zip(ids, values, strict=True)]
    return Extraction(key, ir, sources, updated, outputs, container)


def _tensors(values: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
    """The tensors with their positions, last first, so that a dictionary made of them keeps the first of several."""
    return [(number, value) for number, value in enumerate(values) if isinstance(value, torch.Tensor)][::-1]


def _is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage, so that others can be views of it."""
    return fake.numel() * fake.element_size() == storage_size(fake)[1] and fake.storage_offset() == 0


def _outputs(trace: LazyTrace, place: Callable[[torch.Tensor], int]) -> list[LazyOutput]:
    """How each output is made, by the memory that it shares in eager."""
    eager, outputs = leaves(trace.eager), list[LazyOutput]()
    arguments = {id(fake): number for number, fake in _tensors(trace.fakes)}
    storages = {storage_size(fake)[0]: number for number, fake in _tensors(trace.fakes)}
    first = {id(fake): number for number, fake in _tensors(eager)}
    bases = {storage_size(fake)[0]: number for number, fake in _tensors(eager) if _is_whole(fake)}
    for number, (fake, value) in enumerate(zip(eager, leaves(trace.values), strict=True)):
        if not isinstance(fake, torch.Tensor):
            outputs.append(LazyOutput("itself", value))
            continue
        storage = storage_size(fake)[0]
        geometry = tuple(fake.shape), tuple(fake.stride()), int(fake.storage_offset())
        if id(fake) in arguments:
            outputs.append(LazyOutput("inputs", arguments[id(fake)]))
        elif storage in storages:
            base = trace.fakes[storages[storage]]
            if (fake.dtype, fake.is_conj(), fake.is_neg()) != (base.dtype, base.is_conj(), base.is_neg()):
                raise NotExtractedError(
                    "an output is an argument's memory seen as another dtype, or its lazy conjugate"
                )
            outputs.append(LazyOutput("inputs", storages[storage], geometry))
        elif first[id(fake)] < number:
            outputs.append(LazyOutput("outputs", first[id(fake)]))
        elif bases.get(storage, number) != number and eager[bases[storage]].dtype == fake.dtype:
            outputs.append(LazyOutput("outputs", bases[storage], geometry))
        else:
            lazy_kind, kind = ((tensor.dtype, tuple(tensor.shape)) for tensor in (value, fake))
            if lazy_kind != kind:
                raise NotExtractedError(f"output {number} would be {lazy_kind}, and eager gives {kind}")
            outputs.append(LazyOutput("results", place(value), geometry))
    return outputs
