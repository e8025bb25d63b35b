# pyright: basic
"""Hears of each kernel whose call Inductor writes: which nodes it is made of, what it moves and computes.

Inductor tells its provenance function of every kernel as its call is written, whether or not provenance is on (that
would put comments and handles into the code). The function is listened to at each place that calls it; the code stays
what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ...dumps.walk import user_frame
from .. import torch_private as t
from ..torch_private.replacing import Function, Hooks
from .cost import cost
from .records import KernelRow

Hearer = Callable[[KernelRow, list[Any], Any], None]
"""Is told of a kernel, the nodes that it is made of, and the lowering."""


def kernels_heard(tell: Hearer) -> AbstractContextManager[None]:
    """Around any compile: `tell(row, nodes, lowering)` hears of each kernel whose call is written."""
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
    """The rows with the calls of one kernel counted: Inductor gives equal source one name."""
    seen: Counter[str] = Counter()
    for row in (made := list(rows)):
        row.call = seen[row.name]
        seen[row.name] += 1
    return made


def both_ways(rows: Sequence[KernelRow]) -> dict[str, list[str]]:
    """Node -> labels of the kernels that compute it, more than one where it is computed again."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for node in row.nodes:
            found.setdefault(node, []).append(row.label)
    return found


def intensity(flops: int | None, read: int | None, written: int | None) -> float | None:
    """FLOPs for each byte moved; None where one of them is not known or no byte is moved."""
    if flops is None or read is None or written is None or read + written == 0:
        return None
    return flops / (read + written)


def line_of(node: Any) -> str:
    """The user's line of a node, "model.py:41"; empty where there is none."""
    return user_frame(node.stack_trace or "")[0]


def names_of(gm: Any, path: str = "") -> dict[Any, str]:
    """Every node of a graph and of the graphs inside it by its name there: `relu`, `true_graph_0.relu`."""
    found = {node: f"{path}{node.name}" for node in gm.graph.nodes}
    for name, body in gm.named_children():
        if hasattr(body, "graph"):
            found |= names_of(body, f"{path}{name}.")
    return found


def _row(schedule: Any, name: str, kind: str) -> tuple[KernelRow, list[Any]]:
    """The row, and the nodes that the kernel is made of: those of one graph, the innermost whose nodes it has."""
    if kind == "extern":
        nodes, made = _scheduled(schedule), [schedule]
        user_made = isinstance(schedule, t.optional("UserDefinedTritonKernel", ()))
        kind = "Triton" if user_made else kind
    else:
        nodes = [one for item in schedule if hasattr(item, "get_nodes") for one in item.get_nodes()]
        made = [one.node for one in nodes if one.node is not None]
        kind = kind or _language(nodes)
    origins = list(dict.fromkeys(node for one in made for node in one.get_origins() if node.op != "placeholder"))
    origin = getattr(schedule, "origin_node", None) if kind == "extern" else None
    if origin is not None:
        origins = [origin]  # the others are what its inputs are views of
    origins = _of_one_graph(origins)
    found = cost(nodes, origins)
    row = KernelRow(name, kind, [node.name for node in origins])
    row.bytes_read, row.bytes_written, row.flops, row.estimated = found
    row.intensity = intensity(row.flops, row.bytes_read, row.bytes_written)
    return row, origins


def _of_one_graph(origins: list[Any]) -> list[Any]:
    """Of a kernel inside a body, Inductor names nodes of the outer graph as well, the call of the body and its
    arguments."""
    here = getattr(getattr(t.V.graph, "module", None), "graph", None)
    own = [node for node in origins if node.graph is here]
    return own or origins


def _scheduled(kernel: Any) -> list[Any]:
    """The scheduler's node of a library call; none where it is made while the wrapper is written."""
    scheduler = getattr(t.V.graph, "scheduler", None)
    known = getattr(scheduler, "name_to_node", {})
    node = known.get(kernel.get_operation_name())
    return [] if node is None else [node]


def _language(nodes: Sequence[Any]) -> str:
    device = nodes[0].get_device() if nodes else None
    return f"generated ({device.type})" if device is not None else "generated"
