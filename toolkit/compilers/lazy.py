"""`lazy_compile`: the graph extracted through torch's lazy TorchScript backend, an IR and an executor apart from Inductor's.

A graph is extracted for each geometry of its inputs (sizes, strides, numbers) that it is called with. An operator without a lazy
kernel, and there are many (`sin`), is named with the user's line. As a backend, a graph that cannot be extracted runs as it is,
after one warning for that graph. The lazy backend is begun, for the whole process, when the first graph is compiled, never by an
import. Parameters and buffers are inputs: what an optimizer writes is seen. On the CPU only; must not change the caller's graph.

>>> compiled = lazy_compile(fx_g, [x, w]); compiled([x, w]); compiled.graph_hash, compiled.ir
>>> torch.compile(model, backend="graphdbg_lazy", options={"folder": "ir"})      # ir/0_0-forward.ir.txt
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import fx

from .decompositions import default_decompositions
from .label import Label, label
from .lazy_extraction import Extraction, extract
from .lazy_tracing import Fallback, NotExtractedError, attributes_of
from .operators import storage_size

KEPT = 64
"""Geometries of one graph that stay extracted; the oldest goes first."""

_lock = threading.RLock()
"""The counters that tell of fallbacks are the process's."""


class LazyGraph:
    """A compiled graph, boxed. `extractions` has one entry for each geometry of the inputs; `refused` says why there are none."""

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
        return next((one.graph_hash for one in reversed(self.extractions.values())), "")

    @property
    def ir(self) -> str:
        """The lazy backend's IR of the graph extracted last, as text; "" before there is one."""
        return next((one.ir for one in reversed(self.extractions.values())), "")

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The operators for which the graph runs as it is."""
        return self.refused.fallbacks if self.refused is not None else ()

    def __call__(self, *args: Any) -> Any:
        """Runs the graph on one list of inputs. Raises NotExtractedError on inputs for which it cannot be extracted, unless the
        backend runs it as it is."""
        inputs = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args)
        for _ in range(2):
            if self.refused is not None:
                break
            attributes = attributes_of(self.__wrapped__)
            found = self.prepare(inputs, attributes)
            if found is None:
                break
            there, result = found([*inputs, *attributes.values()])
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
                found = extract(self.__wrapped__, inputs, attributes)
            except NotExtractedError as error:
                self.refused = error
                self.extractions = {}
                if self.as_it_is:
                    text = f"{self.name} runs as it is, not through the lazy backend: {error.why}"
                    warnings.warn(f"graphdbg: {text}", stacklevel=2)
                return None
            while len(self.extractions) >= KEPT:
                del self.extractions[next(iter(self.extractions))]
            self.extractions[key] = found
            if self.folder is not None and found.graph_hash:
                self.saved.append(_save(self.folder, self.name, found))
            return found


def lazy_compile(fx_g: fx.GraphModule, inps: Sequence[Any], folder: str | os.PathLike[str] | None = None) -> LazyGraph:
    """Extracts the graph now; where sizes or numbers are symbolic, when it is called, for each of them.

    Into `folder` go the hash and the IR text of each extraction, in a file of its own. Raises NotExtractedError, which is a
    GraphdbgError, now or in the call.
    """
    made = LazyGraph(fx_g, label(fx_g), Path(folder) if folder is not None else None, as_it_is=False)
    _extract_now(made, inps)
    if made.refused is not None:
        raise made.refused
    return made


def _extract_now(made: LazyGraph, inps: Sequence[Any]) -> None:
    attributes = attributes_of(made.__wrapped__)
    if not any(_is_symbolic(value) for value in (*inps, *attributes.values())):
        made.prepare(inps, attributes)


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
    """What AOTAutograd is given for `graphdbg_lazy`; operators are left as they are called unless they are to be decomposed.

    A graph that cannot be extracted runs as it is. It is told in one warning for the graph (forward and backward are two), with
    the operators and the user's lines.
    """

    def compiler(stage: str) -> Callable[[fx.GraphModule, Sequence[Any]], LazyGraph]:
        def compiling(fx_g: fx.GraphModule, inps: Sequence[Any]) -> LazyGraph:
            made = LazyGraph(fx_g, label(fx_g, stage), Path(folder) if folder else None, as_it_is=True)
            _extract_now(made, inps)
            return made

        return compiling

    stages = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "inference"}
    made: dict[str, Any] = {key: compiler(stage) for key, stage in stages.items()}
    return {**made, "decompositions": default_decompositions if decompose else None}
