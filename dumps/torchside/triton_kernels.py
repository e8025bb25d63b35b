"""The user's own Triton kernels that a graph calls: saved beside it as programs, and loaded as kernels again with
`--trust` only.

A wrapper node names its kernel and its constants by indices into a table of torch's that belongs to one process. Saved,
the index is a place in `GraphRecord.kernels`, and the constants are Python expressions in the node's metadata.

For example:

    writer = KernelWriter(); writer.node(node, record); writer.finish()  # -> [TritonKernel(name='add_kernel', ...)]
    KernelReader(record.kernels, "case").kwargs(node_record, kwargs)      # RefusedError without --trust
"""

from __future__ import annotations

import hashlib
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import torch

from .. import trust
from ..errors import (
    DamagedError,
    NotRegisteredError,
    PackageMissingError,
    RefusedError,
    TorchLacksError,
    UntrustedSourceError,
)
from ..schema import NodeRecord, TritonKernel
from . import torch_private as t
from .definitions import run
from .triton_program import KernelProgram, decorators_of

CONSTANTS = "triton_constants"
"""Key in NodeRecord.meta of what a call passes outside of the graph: name -> Python expression over the kernel's
program."""
OLD = "this run has no kernel source (recorded by an older graphdbg)"

_loaded: dict[str, tuple[Any, ModuleType]] = {}
"""Program and name -> the kernel and its module; one each in a process, since its index must not change."""
_records: dict[int, tuple[Any, TritonKernel]] = {}
"""Index in torch's table -> the kernel there, and what it was loaded from. `torch._dynamo.reset` empties the table."""
_texts: dict[int, tuple[dict[str, Any], dict[str, str]]] = {}
"""Index of constants in torch's table -> the constants there, and their expressions."""
_known: dict[tuple[int, tuple[tuple[str, str], ...]], int] = {}


def _from_table(getter: str, index: Any) -> Any:
    """The entry of torch's table for a wrapper node's index; None where there is none."""
    try:
        return getattr(t.kernel_side_table, getter)(index)
    except (AssertionError, KeyError, TypeError):
        return None


_kernel_at, _constants_at = partial(_from_table, "get_kernel"), partial(_from_table, "get_constant_args")


def name_of_kernel(index: Any) -> str:
    """The name of a kernel in torch's table, through its autotuner."""
    kernel = _kernel_at(index)
    while kernel is not None and not hasattr(kernel, "src") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    return getattr(getattr(kernel, "fn", None), "__name__", "") or "kernel"


def _record_of(index: Any) -> TritonKernel | None:
    """The record that a kernel in torch's table was loaded from."""
    kernel, record = _records.get(index, (None, None))
    return record if kernel is not None and _kernel_at(index) is kernel else None


def _texts_of(index: Any) -> dict[str, str] | None:
    """The expressions that constants in torch's table were made from."""
    held, texts = _texts.get(index, (None, None))
    return texts if held is not None and _constants_at(index) is held else None


class KernelWriter:
    """Collects the kernels of one graph, its subgraphs included."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[TritonKernel | None, KernelProgram]] = {}
        self._names: dict[int, str] = {}
        self._places: list[int] = []

    def node(self, node: torch.fx.Node, record: NodeRecord) -> None:
        """Makes the record of a wrapper node name its kernel by its place in the record, and hold its constants."""
        if "kernel_idx" not in node.kwargs:
            return
        index: Any = node.kwargs["kernel_idx"]
        if index not in self._found:
            program = KernelProgram()
            known_kernel = _record_of(index)
            self._found[index] = (known_kernel, program)
            self._places.append(index)
            if known_kernel is None:
                self._names[index] = program.kernel(_kernel_at(index))
        record.kwargs["kernel_idx"] = self._places.index(index)
        given: Any = node.kwargs.get("constant_args_idx")
        known = _texts_of(given)
        program = self._found[index][1]
        if known is None:
            constants = cast(dict[str, Any], _constants_at(given) or {})
            known = {name: program.expression(value) for name, value in constants.items()}
        record.kwargs["constant_args_idx"] = 0
        record.meta[CONSTANTS] = {"dict": [[name, text] for name, text in known.items()]}

    def finish(self) -> list[TritonKernel]:
        """The kernels in the order in which the graph calls them first."""
        return [known or self._made(index, program) for index, (known, program) in self._found.items()]

    def _made(self, index: int, program: KernelProgram) -> TritonKernel:
        decorators, file = decorators_of(_kernel_at(index))
        name = self._names[index]
        text = program.text() if f"def {name}(" in program.text() else ""
        missing, dropped = (list(dict.fromkeys(names)) for names in (program.missing, program.dropped))
        return TritonKernel(name, text, decorators, file, missing, dropped)


class KernelReader:
    """Gives wrapper nodes of one graph their kernels back. `where` names the graph's folder or file."""

    def __init__(self, kernels: list[TritonKernel], where: str) -> None:
        self.kernels = kernels
        self.where = where.removesuffix("/graph.json")

    def target(self, name: str) -> Any:
        """The operator of a call."""
        operator = t.higher_order_ops.get(name.removeprefix("higher_order."))
        if operator is None:
            fix = "load the dump with the torch that wrote it"
            raise TorchLacksError(self.where, f"this torch has no operator {name!r}", fix)
        return operator

    def kwargs(self, record: NodeRecord, given: dict[str, Any], where: str) -> dict[str, Any]:
        """A call's keyword arguments with indices of this process. Raises RefusedError without trust or source."""
        place = given.get("kernel_idx")
        if not self.kernels:
            raise RefusedError(where, OLD, "record it again")
        if not isinstance(place, int) or not 0 <= place < len(self.kernels):
            raise DamagedError(where, f"it calls kernel {place!r}, and there are {len(self.kernels)}")
        kernel = self.kernels[place]
        if not trust.given():
            why = f"it runs the user's own Triton kernel {kernel.name}, whose source is in the dump"
            raise UntrustedSourceError(
                where, why, f"read it: graphdbg show {self.where} --kernel {kernel.name}; then add --trust"
            )
        if not kernel.program:
            why = "this run has no kernel source (it was packed without, or could not be read)"
            raise RefusedError(where, why, "record it again")
        if kernel.missing:
            why = f"the kernel {kernel.name} could not be saved whole; it lacks {'; '.join(kernel.missing)}"
            raise RefusedError(
                where, why, "define that beside the kernel as a constant, a dtype or a function under triton.jit"
            )
        function, module = _kernel(kernel, where)
        index = t.kernel_side_table.add_kernel(function)
        _records[index] = function, kernel
        return {**given, "kernel_idx": index, "constant_args_idx": self._constants(record, index, module, where)}

    def _constants(self, record: NodeRecord, index: int, module: ModuleType, where: str) -> int:
        held: Any = record.meta.get(CONSTANTS) or {"dict": []}
        try:
            texts = {str(name): str(text) for name, text in held["dict"]}
        except (TypeError, KeyError, ValueError) as error:
            raise DamagedError(where, f"its constants are malformed ({error})") from error
        key = (index, tuple(sorted(texts.items())))
        if key not in _known or _texts_of(_known[key]) is None:
            try:
                values = {name: eval(text, vars(module)) for name, text in texts.items()}  # trusted, as its program is
            except Exception as error:
                why = f"a constant of its kernel cannot be made ({type(error).__name__}: {error})"
                raise DamagedError(where, why) from error
            _known[key] = t.kernel_side_table.add_constant_args(values)
            _texts[_known[key]] = values, texts
        return _known[key]


def _kernel(record: TritonKernel, where: str) -> tuple[Any, ModuleType]:
    """Runs a kernel's program, once in a process. Triton finds the source again through linecache, so no file is
    written."""
    key = hashlib.sha256(f"{record.name}\n{record.program}".encode()).hexdigest()[:16]
    if key in _loaded:
        return _loaded[key]
    try:
        import_module("triton")
    except ImportError as error:
        why = f"it runs the user's own Triton kernel {record.name}, and Triton is not installed ({error})"
        raise PackageMissingError(where, why, "pip install 'graphdbg[triton]'") from error
    trust.prepare()
    module = run(record.name, record.program, where, f"the program of its kernel {record.name}")
    if (function := vars(module).get(record.name)) is None:
        raise NotRegisteredError(
            where, f"the program of its kernel {record.name} does not define it", "record it again"
        )
    _loaded[key] = function, module
    return _loaded[key]
