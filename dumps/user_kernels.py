"""The user's own Triton kernels that a graph calls, as text: where they were written, how they are called, their
source.

Reads records only; nothing of the source is run.

>>> [kernel.name for kernel in of(saved)]          # it calls no Triton kernel of a user's
[]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from .allowlist import is_custom
from .schema import Arg, DefinitionRecord, GraphBody, GraphRecord, NodeRecord, TritonKernel
from .store import SavedGraph
from .walk import dict_items, nodes, references, tag_of
from .wording import counted

CALL = "triton_kernel_wrapper"
_LARGE = 2_000
OLD = "triton_source"
"""Key in node.meta of a kernel's source, in runs of an older graphdbg."""


class UserKernel:
    """One kernel, with the interface of a file of generated code. `name` ends in .py; a kernel is also found by its
    plain name."""

    def __init__(self, kernel: TritonKernel, calls: list[NodeRecord]) -> None:
        self.kernel, self.calls = kernel, calls
        self.stem = kernel.name
        self.name = f"{kernel.name}.py"

    def line(self) -> str:
        """The kernel as a line of a list of kernels."""
        return f"{self.name}  (the program's own, {counted(len(self.calls), 'call')})"

    def read_text(self) -> str:
        """The kernel's program, after comments on its origin and its calls."""
        kernel = self.kernel
        head = [f"the program's own Triton kernel {kernel.name}" + (f", {_near(kernel.file)}" if kernel.file else "")]
        head += [line for call in self.calls for line in _call(call)]
        if kernel.decorators and kernel.decorators not in kernel.program:
            head += ["as it was written:", *(f"  {line}" for line in kernel.decorators.splitlines())]
        return _commented(head, kernel.program, kernel.missing, kernel.dropped)


class UserSource:
    """Source cut out of a user's module, which `--trust` runs; has the interface of a file of generated code."""

    def __init__(self, definition: DefinitionRecord) -> None:
        self.definition = definition
        self.name = Path(definition.file).name
        self.stem = Path(definition.file).stem

    def line(self) -> str:
        """The source as a line of a list of kernels."""
        held = [*(f"ops of {space}" for space in self.definition.spaces), *self.definition.values]
        return f"{self.name}  (the program's own: {', '.join(held)})"

    def read_text(self) -> str:
        """The program, after comments on its origin and use."""
        definition = self.definition
        head = [f"cut out of the program's {self.name}; --trust runs it"]
        head += [f"{setting} = {value}" for setting, value in definition.values.items()]
        return _commented(head, definition.program, definition.missing)


def _commented(head: list[str], program: str, missing: list[str], dropped: Sequence[str] = ()) -> str:
    """The program under comments on its origin and on the parts that were not saved."""
    head = [*head, *(f"not saved, and it cannot run without: {text}" for text in missing)]
    head += [f"not saved: {text}" for text in dropped]
    return "\n".join(f"# {line}".rstrip() for line in head) + "\n\n" + (program or "# its source was not kept\n")


def of(saved: SavedGraph) -> list[UserKernel | UserSource]:
    """The user's kernels in the order of their first calls, then the other sources that `--trust` runs. The record of a
    large graph is read only where it calls a kernel or an operator of the user's."""
    table = saved.table
    calls = any(CALL in table.strings[at] or is_custom(table.strings[at]) for at in set(table.target))
    if not calls and len(table.target) > _LARGE:
        return []
    record = saved.record
    return [*of_record(record), *(UserSource(definition) for definition in record.definitions)]


def of_record(record: GraphRecord) -> list[UserKernel]:
    """The user's kernels of a record; in a record of an older graphdbg, a kernel's program is its function alone."""
    calls = list(_calls(record.graph))
    if record.kernels:
        own = [[call for call in calls if call.kwargs.get("kernel_idx") == at] for at in range(len(record.kernels))]
        return list(map(UserKernel, record.kernels, own))
    by_source: dict[str, UserKernel] = {}
    for call in calls:
        held = cast("dict[str, int]", call.meta.get(OLD) or {})
        source = record.strings[held["string"]] if "string" in held else ""
        name = source.partition("def ")[2].partition("(")[0].strip() or "kernel"
        by_source.setdefault(source, UserKernel(TritonKernel(name, source), [])).calls.append(call)
    return list(by_source.values())


def _calls(body: GraphBody) -> Iterator[NodeRecord]:
    return (node for node in nodes(body) if node.op == "call_function" and CALL in node.target)


def _call(node: NodeRecord) -> Iterator[str]:
    grids: Any = node.kwargs.get("grid") or []
    yield f"called by {node.name}, grid {' or '.join(dict.fromkeys(_plain(argument) for argument in grids))}"
    tensors = [f"{name}={_plain(value)}" for name, value in dict_items(node.kwargs.get("kwargs"))]
    constants = [f"{name}={value}" for name, value in dict_items(node.meta.get("triton_constants"))]
    yield f"  {', '.join([*tensors, *constants])}"
    if written := node.kwargs.get("tensors_to_clone"):
        yield f"  writes {', '.join(str(argument) for argument in cast('list[Any]', written))}"


def _plain(arg: Arg) -> str:
    """A short form of an argument: nodes by name, numbers, symbols."""
    if isinstance(arg, list):
        return ", ".join(_plain(part) for part in cast("list[Arg]", arg))
    tag, content = tag_of(arg)
    if tag == "tuple":
        return f"({', '.join(_plain(part) for part in content)})"
    if tag:
        return str(content[1]) if tag == "sym" else next(references(arg), "...")
    return str(arg)


def _near(file: str) -> str:
    path, _, line = file.rpartition(":")
    return f"{Path(path).name}:{line}"
