"""The generated kernels that compute a node, found by reading the generated module. Runs nothing of it.

Inductor writes the names of the nodes above each Triton kernel, and the source nodes above each call of a library
kernel. A C++ kernel has only the names of its ops: it is guessed from the node's op and its place between the library
calls, and marked as a guess (a ~ in the column of the node table). In a large graph not all nodes can be searched: only
sure kernels are shown.

>>> from graphdbg.dumps.browse.recorded import Recorded
>>> code = Generated.of(saved)
>>> [(use.kernel, use.sure) for use in code.uses(view, Recorded(saved), view.position("mul_2"))]
[('cpp_fused_gelu_0', False)]
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from .. import kernels
from ..short import base_name
from ..store import SavedGraph
from .near import distances
from .recorded import Recorded
from .table import GraphView

_DEFINED = re.compile(r"^(?P<name>[A-Za-z_]\w*) = async_compile\.(?P<language>\w+)\(", re.ASCII)
_MAPPED = re.compile(r"^#   (?P<source>\S+) => (?P<nodes>.+)$")
_FRAGMENT = re.compile(r"^#   %(?P<node>\w+) : .*= call_")
_SOURCES = re.compile(
    r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[(?P<sources>[^\]]*)\], Original ATen: "
    r"\[(?P<atens>[^\]]*)\]"
)
_CALLED = re.compile(r"^\s+(?:\w+(?:, \w+)* = )?(?P<callee>[A-Za-z_][\w.]*)\(")
_NUMBER = re.compile(r"_\d+$")
_ENDINGS = ("''')", "''', ", '"""), ', '""")', '""", ')
_NO_KERNELS = ("assert_", "del", "empty_strided", "reinterpret_tensor", "get_raw_stream", "assert ")


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel: its line, and the source nodes and ops in the comment above it."""

    line: int
    sources: frozenset[str]
    atens: frozenset[str]

    def names(self, source: str, aten: str) -> bool:
        """Whether the call was generated for that source node and that op."""
        return source in self.sources and f"aten.{aten}" in self.atens


@dataclass
class KernelText:
    """One kernel: the lines of its definition (none: a library's), its calls, and the names of nodes in the comment
    above it."""

    name: str
    language: str = ""
    start: int = -1
    end: int = -1
    calls: list[KernelCall] = field(default_factory=list[KernelCall])
    nodes: set[str] = field(default_factory=set[str])


@dataclass(frozen=True)
class Use:
    """A kernel that a node went into: lines of its definition and of its call (-1: none). `sure`: the node's name is
    written there."""

    kernel: str
    start: int
    end: int
    call: int
    sure: bool


class Generated:
    """The generated module of one graph: its lines and kernels."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self._calls: dict[int, int] | None = None

    @classmethod
    def of(cls, saved: SavedGraph) -> Generated | None:
        """The generated module of a saved graph; None where none was generated. Raises UnreadableError."""
        whole_file = next((file for file in saved.code_files() if file.name == kernels.WHOLE), None)
        return cls(whole_file.read_text()) if whole_file is not None else None

    @cached_property
    def kernels(self) -> list[KernelText]:
        """Kernels with a definition, then one for each call of a library kernel, in the order of the calls."""
        defined = {kernel.name: kernel for kernel in self._defined()}
        library: list[KernelText] = []
        sources = atens = frozenset[str]()
        last = max((kernel.end for kernel in defined.values()), default=0)
        for number in range(last, len(self.lines)):
            text = self.lines[number]
            if comment := _SOURCES.match(text):
                sources, atens = _names(comment["sources"]), _names(comment["atens"])
                continue
            called = _CALLED.match(text)
            name = called["callee"].removesuffix(".run") if called else ""
            if name in defined:
                defined[name].calls.append(KernelCall(number, sources, atens))
                sources = atens = frozenset[str]()
            elif called and sources | atens and not name.startswith(_NO_KERNELS):
                library.append(KernelText(name, calls=[KernelCall(number, sources, atens)]))
                sources = atens = frozenset[str]()
        return [*defined.values(), *library]

    def _defined(self) -> list[KernelText]:
        kernels_defined: list[KernelText] = []
        nodes: set[str] = set()
        end = -1
        for number, text in enumerate(self.lines):
            if number < end:
                continue
            if mapped := _MAPPED.match(text):
                nodes |= _names(mapped["nodes"])
            elif fragment := _FRAGMENT.match(text):
                nodes.add(fragment["node"])
            elif head := _DEFINED.match(text):
                end = self._end(number)
                kernels_defined.append(KernelText(head["name"], head["language"], number, end, nodes=nodes))
                nodes = set()
        return kernels_defined

    def _end(self, start: int) -> int:
        """The line after a definition."""
        for number in range(start + 1, len(self.lines)):
            if self.lines[number].startswith(_ENDINGS):
                return number + 1
        return start + 1

    def uses(self, view: GraphView, recorded: Recorded, index: int) -> list[Use]:
        """The kernels of a node, surest first; empty for inputs, outputs and nodes that generated no code."""
        if not view.op(index).startswith("call_"):
            return []
        name = view.table.name[index]
        sure = [kernel for kernel in self.kernels if name in kernel.nodes]
        if sure:
            return [_use(kernel, kernel.calls[0].line if kernel.calls else -1, sure=True) for kernel in sure]
        node = recorded.node(name, view.table.name[index + 1] if index + 1 < len(view) else "")
        op = base_name(view.target(index))
        source = node.from_node[0] if node and node.from_node else name
        aten = base_name(node.original_aten) if node and node.original_aten else op
        named = [(kernel, call.line) for kernel in self.kernels for call in kernel.calls if call.names(source, aten)]
        if own := [_use(kernel, line, sure=True) for kernel, line in named if kernel.start >= 0]:
            return own  # the kernel is also called for other nodes than those above its definition
        if direct := [(kernel, line) for kernel, line in named if _op_of_call(kernel.name) == op]:
            known = self._library_calls(view).get(index)
            return [_use(kernel, line, sure=True) for kernel, line in direct if known in (None, line)]
        fused = [
            kernel for kernel in self.kernels if kernel.start >= 0 and not kernel.nodes and _has_op(kernel.name, aten)
        ]
        after, before = self._bounds(view, index)
        placed = [(kernel, call.line) for kernel in fused for call in kernel.calls if after < call.line < before]
        nearest = [(kernel, line) for kernel, line in named if line == before]
        return [_use(kernel, line, sure=False) for kernel, line in placed or nearest or named]

    def _bounds(self, view: GraphView, index: int) -> tuple[int, int]:
        """The lines of the last library call before the node's code and of the first one after it, by the graph's data
        flow."""
        calls = self._library_calls(view)

        def lines(step: Callable[[int], list[int]]) -> list[int]:
            reached = distances(index, len(view), step, lambda at: False)
            return [calls[at] for at in reached if at in calls and at != index]

        return max(lines(view.inputs), default=-1), min(lines(view.users), default=len(self.lines))

    def _library_calls(self, view: GraphView) -> dict[int, int]:
        """Position of each node that became a library call -> the line of that call: matched in order, op by op."""
        if self._calls is None:
            lines: dict[str, list[int]] = {}
            for kernel in self.kernels:
                if kernel.start < 0:
                    lines.setdefault(_op_of_call(kernel.name), []).append(kernel.calls[0].line)
            nodes: dict[str, list[int]] = {}
            for index in range(len(view)):
                op = base_name(view.target(index))
                if op in lines and view.op(index).startswith("call_"):
                    nodes.setdefault(op, []).append(index)
            self._calls = {
                index: place
                for op, indices in nodes.items()
                if len(indices) == len(lines[op])
                for index, place in zip(indices, lines[op], strict=True)
            }
        return self._calls


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",")) - {""}


def _op_of_call(callee: str) -> str:
    """The op that a call computes: "addmm" of "extern_kernels.addmm", "sort" of "torch.ops.aten.sort.default"."""
    parts = callee.split(".")
    return parts[-2] if len(parts) > 3 and parts[:2] == ["torch", "ops"] else parts[-1]


def _has_op(kernel: str, op: str) -> bool:
    """Whether a kernel's name, which lists its ops, contains the op."""
    return f"_{op}_" in f"{_NUMBER.sub('', kernel).partition('_fused')[2]}_"


def _use(kernel: KernelText, call: int, *, sure: bool) -> Use:
    return Use(kernel.name, kernel.start, kernel.end, call, sure)


MOST_NODES = 3000
GUESSED = "~"


def kernel_column(saved: SavedGraph, view: GraphView) -> dict[int, str]:
    """Place of a node -> its kernels; empty where no code was generated. Raises UnreadableError."""
    code = Generated.of(saved)
    if code is None:
        return {}
    kernels_at: dict[int, list[str]] = {}
    for kernel in code.kernels:
        for name in kernel.nodes:
            index = view.position(name)
            if index is not None:
                kernels_at.setdefault(index, []).append(kernel.name)
    if len(view) <= MOST_NODES:
        recorded = Recorded(saved)
        for index in range(len(view)):
            if index not in kernels_at and (uses := code.uses(view, recorded, index)):
                kernels_at[index] = [("" if use.sure else GUESSED) + use.kernel for use in uses[:3]]
    return {index: " ".join(dict.fromkeys(names)) for index, names in kernels_at.items()}
