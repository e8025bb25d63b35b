# pyright: basic
"""Reports each kernel whose call Inductor writes: which nodes it is made of, what it moves and computes.

Inductor passes every kernel to its provenance function as the kernel's call is written, whether or not provenance is
enabled (which would add comments and handles to the code). The function is wrapped at each place that calls it; the
code stays unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch.fx.node import map_arg

from ...dumps.browse.table import FORMULAS, formula_of
from ...dumps.walk import user_frame
from .. import torch_private as t
from ..torch_private.replacing import Function, Hooks
from .records import KernelRow

_NO_ARITHMETIC = frozenset((
    "load", "store", "store_reduction", "constant", "index_expr", "get_index", "to_dtype", "to_dtype_bitcast", "output",
    "masked", "where", "load_seed", "check_bounds", "indirect_indexing", "set_indirect", "device_assert_async",
    "identity",
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and",
    "bitwise_or",
    "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "signbit", "isnan", "isinf", "bucketize",
    "sort",
    "any", "halide_clamp", "inline_asm_elementwise", "placeholder", "frexp", "getitem", "partial_accumulate",
))  # fmt: skip
_LIBRARY = {
    **dict.fromkeys(("_linear_pointwise", "_mkl_linear"), "linear"),
    **dict.fromkeys(("_convolution_pointwise", "_convolution_pointwise_"), "convolution"),
    "_convolution_transpose_pointwise": "convolution",
}
_WELFORD = 6


class Cost(NamedTuple):
    """The costs of one kernel; None where unknown."""

    read: int | None
    written: int | None
    flops: int | None
    estimated: bool


class _SizeNumbers:
    """Converts sizes to numbers; remembers whether a symbol's hint was used."""

    def __init__(self) -> None:
        self.estimated = False

    def number(self, size: Any) -> int | None:
        """A size as a number; None for one that is known only at run time."""
        expression = size.node.expr if isinstance(size, torch.SymInt) else size
        if isinstance(expression, int):
            return expression
        if not getattr(expression, "free_symbols", None):
            return int(expression)
        if t.free_unbacked_symbols(expression):
            return None
        self.estimated = True
        sizes = t.V.graph.sizevars
        hint = getattr(sizes, "optimization_hint", None) or sizes.size_hint
        return int(hint(expression, fallback=0))

    def product(self, sizes: Iterable[Any]) -> int | None:
        """The product of sizes: a number of elements."""
        numbers = [self.number(size) for size in sizes]
        known = [number for number in numbers if number is not None]
        return prod(known) if len(known) == len(numbers) else None

    def known(self, sizes: Iterable[Any]) -> bool:
        """Whether all sizes are known before a run."""
        return all(self.number(size) is not None for size in sizes)


def cost(nodes: Sequence[Any], origins: Sequence[Any]) -> Cost:
    """The cost of a kernel of these scheduler nodes. `origins`: the FX nodes behind a library call."""
    sizes = _SizeNumbers()
    read, written = _moved(nodes, sizes)
    return Cost(read, written, _computed(nodes, origins, sizes), sizes.estimated)


def _moved(nodes: Sequence[Any], sizes: _SizeNumbers) -> tuple[int | None, int | None]:
    if not nodes:
        return None, None
    inside = set(nodes)
    written = _largest(node.get_read_write_buffer_accesses(include_reads=False, include_writes=True) for node in nodes)
    read = _largest(node.get_read_write_buffer_accesses(include_reads=True, include_writes=False) for node in nodes)
    produced = {dep.name for node in nodes for dep in node.read_writes.writes}
    buffers = nodes[0].scheduler.name_to_buf
    written = {name: size for name, size in written.items() if _used_outside(buffers.get(name), inside)}
    read = {name: size for name, size in read.items() if name not in produced}
    for node in nodes:
        for dep in node.read_writes.reads:
            if dep.name in t.V.graph.constants and dep.name not in read:
                read[dep.name] = t.V.graph.constants[dep.name].nbytes
    if any(not _all_known(name, sizes) for name in (*read, *written)):
        return None, None
    return sum(read.values()), sum(written.values())


def _largest(accesses: Iterable[dict[str, int]]) -> dict[str, int]:
    largest: dict[str, int] = {}
    for sizes in accesses:
        for name, size in sizes.items():
            largest[name] = max(size, largest.get(name, 0))
    return largest


def _used_outside(buffer: Any, inside: set[Any]) -> bool:
    users = [user.node for user in getattr(buffer, "users", ())]
    return not users or any(user not in inside for user in users)


def _all_known(name: str, sizes: _SizeNumbers) -> bool:
    buffer = t.V.graph.name_to_buffer.get(name) or t.V.graph.graph_inputs.get(name)
    size = getattr(getattr(buffer, "layout", None), "size", None)
    return size is None or sizes.known(size)


def _computed(nodes: Sequence[Any], origins: Sequence[Any], sizes: _SizeNumbers) -> int | None:
    total = 0
    loops = [node for node in nodes if getattr(node, "_body", None) is not None]
    for node in loops:
        elements = sizes.product(size for sizes_of in node.get_ranges() for size in sizes_of)
        if elements is None:
            return None
        total += elements * _operations(node._body)
    if len(loops) == len(nodes) and nodes:
        return total
    library = _of_library(origins, sizes)
    return None if library is None else total + library


def _operations(body: Any) -> int:
    """The number of arithmetic operations of a loop body per element."""
    nodes = [node for block in (body.root_block, *body.subblocks.values()) for node in block.graph.nodes]
    computing = [node for node in nodes if node.op == "call_method" and node.target not in _NO_ARITHMETIC]
    reductions = [node for node in computing if node.target == "reduction"]
    welford = sum(any("welford" in str(arg) for arg in node.args) for node in reductions)
    return len(computing) + (_WELFORD - 1) * welford


def _of_library(origins: Sequence[Any], sizes: _SizeNumbers) -> int | None:
    """The operations of a library call, by the shapes of its node: the last origin with a formula; earlier ones are its
    inputs."""
    counted = [(node, formula) for node in origins if (formula := _formula(str(node.target))) is not None]
    if not counted:
        return None
    node, formula = max(counted, key=lambda pair: pair[0])
    out, used = _shapes([node.meta.get("val")], sizes), _shapes(_inputs(node), sizes)
    return None if out is None or used is None else formula(out, used)


def _formula(target: str) -> Callable[..., int | None] | None:
    parts = target.split(".")
    alias = _LIBRARY.get(parts[1]) if len(parts) > 1 else None
    return FORMULAS[alias] if alias else formula_of(target)


def _inputs(node: Any) -> list[Any]:
    values: list[Any] = []
    map_arg((node.args, node.kwargs), lambda operand: values.append(operand.meta.get("val")))
    return values


def _shapes(values: Iterable[Any], sizes: _SizeNumbers) -> list[list[int]] | None:
    shapes: list[list[int]] = []
    for value in values:
        for tensor in value if isinstance(value, (tuple, list)) else (value,):
            if not isinstance(tensor, torch.Tensor):
                continue
            shape = [sizes.number(size) for size in tensor.shape]
            if any(size is None for size in shape):
                return None
            shapes.append([size for size in shape if size is not None])
    return shapes


Hearer = Callable[[KernelRow, list[Any], Any], None]
"""Called with a kernel's row, its nodes, and the lowering."""


def kernels_heard(tell: Hearer) -> AbstractContextManager[None]:
    """Wraps any compile: calls `tell(row, nodes, lowering)` for each kernel whose call is written."""
    return _hooks.inside(tell)


def _listening(kind: str, usual: Function) -> Function:
    def listen(node_schedule: Any, kernel_name: str, is_extern: bool = False) -> Any:
        if _hooks.here is not None:
            _hooks.here(*_row(node_schedule, str(kernel_name), "extern" if is_extern else kind), t.V.graph)
        return usual(node_schedule, kernel_name, is_extern)

    return listen


_PLACES = (("cpp_tells_kernel", "C++"), ("triton_tells_kernel", "Triton"), ("debug_tells_kernel", ""))
_hooks = Hooks(lambda: [(*t.home(place), partial(_listening, kind)) for place, kind in _PLACES])


def numbered(rows: Iterable[KernelRow]) -> list[KernelRow]:
    """Numbers the calls of each kernel: Inductor gives kernels with equal source one name."""
    seen: Counter[str] = Counter()
    for row in (listed := list(rows)):
        row.call = seen[row.name]
        seen[row.name] += 1
    return listed


def both_ways(rows: Sequence[KernelRow]) -> dict[str, list[str]]:
    """Node -> labels of the kernels that compute it; several where it is recomputed."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        for node in row.nodes:
            labels.setdefault(node, []).append(row.label)
    return labels


def intensity(flops: int | None, read: int | None, written: int | None) -> float | None:
    """FLOPs per byte moved; None where one of them is unknown or no byte is moved."""
    if flops is None or read is None or written is None or read + written == 0:
        return None
    return flops / (read + written)


def line_of(node: Any) -> str:
    """The user's line of a node, "model.py:41"; empty where there is none."""
    return user_frame(node.stack_trace or "")[0]


def names_of(gm: Any, path: str = "") -> dict[Any, str]:
    """Name -> node, for a graph and the graphs inside it: `relu`, `true_graph_0.relu`."""
    names = {node: f"{path}{node.name}" for node in gm.graph.nodes}
    for name, body in gm.named_children():
        if hasattr(body, "graph"):
            names |= names_of(body, f"{path}{name}.")
    return names


def _row(schedule: Any, name: str, kind: str) -> tuple[KernelRow, list[Any]]:
    """The row of a kernel, and the nodes that it is made of: those of the graph being lowered, where it has any."""
    if kind == "extern":
        nodes, ir_nodes = _scheduled(schedule), [schedule]
        user_made = isinstance(schedule, t.optional("UserDefinedTritonKernel", ()))
        kind = "Triton" if user_made else kind
    else:
        nodes = [node for item in schedule if hasattr(item, "get_nodes") for node in item.get_nodes()]
        ir_nodes = [node.node for node in nodes if node.node is not None]
        kind = kind or _language(nodes)
    origin = getattr(schedule, "origin_node", None) if kind == "extern" else None
    candidates = (node for ir_node in ir_nodes for node in ir_node.get_origins() if node.op != "placeholder")
    # the other origins of a library call belong to views of its inputs
    origins = _of_one_graph([origin] if origin is not None else list(dict.fromkeys(candidates)))
    row = KernelRow(name, kind, [node.name for node in origins])
    row.bytes_read, row.bytes_written, row.flops, row.estimated = cost(nodes, origins)
    row.intensity = intensity(row.flops, row.bytes_read, row.bytes_written)
    return row, origins


def _of_one_graph(origins: list[Any]) -> list[Any]:
    """Keeps the nodes of the graph being lowered: for a kernel inside a body Inductor also names nodes of the outer
    graph, such as the call of the body and its arguments."""
    here = getattr(getattr(t.V.graph, "module", None), "graph", None)
    own = [node for node in origins if node.graph is here]
    return own or origins


def _scheduled(kernel: Any) -> list[Any]:
    """The scheduler node of a library call, in a list; empty where the call is created only while the wrapper is
    written."""
    scheduler = getattr(t.V.graph, "scheduler", None)
    known = getattr(scheduler, "name_to_node", {})
    node = known.get(kernel.get_operation_name())
    return [] if node is None else [node]


def _language(nodes: Sequence[Any]) -> str:
    device = nodes[0].get_device() if nodes else None
    return f"generated ({device.type})" if device is not None else "generated"
