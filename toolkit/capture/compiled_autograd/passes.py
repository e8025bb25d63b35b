# pyright: basic
"""The passes over a captured backward, in torch's order, each one visible: how many nodes it moved or removed, and its
time.

A capture has its hooks and gradient accumulations at the end, where the tracer put them; the passes bring them to where
the eager engine has them. `accumulate_grad` and `cpu_scalars_to_gpu` are written here, the others are torch's own
methods. Each can be left out by name. None changes what a node computes.

>>> [name for name, _ in PASSES]
['cpu_scalars_to_gpu', 'unpack_hooks_when_needed', ...]
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from torch import fx

from ... import torch_private as t

PASSES = (
    ("cpu_scalars_to_gpu", "move_graph_nodes_to_cuda"),
    ("unpack_hooks_when_needed", "delay_unpack_hook_nodes"),
    ("tensor_pre_hooks_early", "reorder_tensor_pre_hook_nodes"),
    ("pre_hooks_early", "reorder_pre_hook_nodes_to_schedule_asap"),
    ("accumulate_grad_in_eager_order", "reorder_accumulate_grad_nodes"),
    ("pre_hooks_in_eager_order", "reorder_pre_hook_nodes_to_mimic_eager"),
    ("post_accumulate_grad_hooks_in_eager_order", "reorder_post_acc_grad_hook_nodes"),
    ("post_hooks_in_eager_order", "reorder_post_hook_nodes"),
    ("dead_code", "dce"),
)
"""Name of a pass -> the method of AutogradCompilerInstance that torch calls for it."""


@dataclass
class TapePassReport:
    """What one pass did: `nodes` before, how many it `moved`, `removed` or `changed`, and its time in seconds."""

    name: str
    nodes: int
    moved: int
    removed: int
    seconds: float
    skipped: bool = False


def observed(name: str, run: Callable[..., Any], graph: fx.Graph, reports: list[TapePassReport], *, skip: bool) -> Any:
    """Runs a pass (or, with `skip`, does not) and appends its report."""
    before = list(graph.nodes)
    start = time.perf_counter()
    result = None if skip else run()
    seconds = time.perf_counter() - start
    after = list(graph.nodes)
    kept = set(after)
    moved = len(result) if isinstance(result, list) else _moved([node for node in before if node in kept], after)
    reports.append(TapePassReport(name, len(before), moved, len(before) - len(after), seconds, skip))
    return result


def _moved(before: list[fx.Node], after: list[fx.Node]) -> int:
    """The smallest number of nodes that must move to turn one order into the other (a longest increasing subsequence
    stays)."""
    import bisect

    place = {node: index for index, node in enumerate(after)}
    tails: list[int] = []
    for index in (place[node] for node in before):
        at = bisect.bisect_left(tails, index)
        tails[at : at + 1] = [index]
    return len(before) - len(tails)


def accumulate_grad_in_eager_order(graph: fx.Graph) -> None:
    """Puts each `accumulate_grad_` right behind the last value that it needs, as the eager engine does.

    The tracer leaves them at the end of the graph: every gradient would stay alive until then, and hooks that read
    `p.grad` would run too late.
    """
    for node in graph.find_nodes(op="call_function", target=t.call_accumulate_grad):
        parts = [arg for arg in node.args if isinstance(arg, fx.Node) and _is_item(arg) and not _is_input(arg)]
        needed = [_whole(arg) for arg in node.args if isinstance(arg, fx.Node)]
        last = max(needed, default=None)  # fx orders nodes by their place in the graph
        if last is None or _is_input(last) or last is node.prev:
            continue
        last.append(node)
        for part in parts:
            if part.args[0] is last:
                last.append(part)


def cpu_scalars_to_gpu(graph: fx.Graph) -> list[int]:
    """The places of inputs that are numbers on the CPU, used by torch's own arithmetic alone, in a backward on a GPU.

    One tensor on the CPU keeps the whole graph out of a CUDA graph. Scalars that hooks or custom Functions see stay
    where they are. The values of those nodes are moved; the caller moves the inputs at run time.
    """
    items = [node for node in next(iter(graph.nodes)).users if _is_item(node)]
    values = [node.meta.get("val") for node in items]
    if not any(getattr(value, "is_cuda", False) for value in values):
        return []
    places: list[int] = []
    for node, value in zip(items, values, strict=True):
        number = value is not None and value.device.type == "cpu" and value.dim() == 0
        if value is not None and number and all(_is_plain_op(user.target) for user in node.users):
            node.meta["val"] = value.cuda()
            places.append(node.args[1])
    return places


OURS: dict[str, Callable[[fx.Graph], Any]] = {
    "accumulate_grad_in_eager_order": accumulate_grad_in_eager_order,
    "cpu_scalars_to_gpu": cpu_scalars_to_gpu,
}


def _is_item(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def _whole(node: fx.Node) -> fx.Node:
    """The node that a getitem takes its item from; an item of a placeholder stands for itself."""
    return node.args[0] if _is_item(node) and not _is_input(node) else node  # pyright: ignore[reportReturnType]


def _is_input(node: fx.Node) -> bool:
    return node.op == "placeholder" or (_is_item(node) and node.args[0].op == "placeholder")  # pyright: ignore


def _is_plain_op(target: Any) -> bool:
    """Whether a call in a captured graph is torch's own arithmetic: an ATen operator, or the C++ backward of one."""
    if isinstance(target, t.OpOverload):
        return target.namespace in ("aten", "prims")
    return isinstance(target, t.compiled_autograd.Op) and not target.is_custom_function


class CaptureRecord:
    """What a capture reports: torch's number for it, autograd nodes by number (in the order of their calls), reasons
    for compiling again, the reports of the passes, and the places of inputs that are moved to the GPU."""

    def __init__(self) -> None:
        self.number = -1
        self.nodes: dict[int, str] = {}
        self.reasons: list[str] = []
        self.passes: list[TapePassReport] = []
        self.moved_inputs: list[int] = []


def watched(begun: Callable[[CaptureRecord], None], skip: Collection[str] = ()) -> type:
    """A class for `enable(instance=)` that calls `begun` when a capture begins, and leaves out the passes in `skip`.

    Torch's C++ engine calls its methods, which differ between versions; only those are overridden that come after the
    capture, and those that report something. An error in one of the others would leave the autograd graph unusable, so
    the overrides only record.
    """

    class Watched(t.AutogradCompilerInstance):
        record: CaptureRecord

        def begin_capture(self, *args: Any) -> Any:
            self.record = CaptureRecord()
            begun(self.record)
            captured = super().begin_capture(*args)
            self.record.number = self.id
            return captured

        def wrap_fake(self, x: Any, source: Any) -> Any:
            """Keeps sizes as numbers: symbols, which torch would make, take most of the time of a capture that is not
            run."""
            return self.fake_tensor_mode.from_tensor(x, source=source, static_shapes=True)

        def log_compile_reasons(self, compile_reasons: list[str]) -> None:
            self.record.reasons.extend(compile_reasons)
            super().log_compile_reasons(compile_reasons)

        def set_node_origin(self, node_name: str, nodecall_index: int, pyobj: Any) -> None:
            self.record.nodes[nodecall_index] = node_name
            super().set_node_origin(node_name, nodecall_index, pyobj)

    for name, method in PASSES:
        if hasattr(t.AutogradCompilerInstance, method):
            setattr(Watched, method, _seen(name, method, skip))
    return Watched


def _seen(name: str, method: str, skip: Collection[str]) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        graph = self.fx_tracer.graph
        ours = OURS.get(name)
        stock = getattr(t.AutogradCompilerInstance, method)
        own = (lambda: ours(graph)) if ours else (lambda: stock(self, *args))
        returned = observed(name, own, graph, self.record.passes, skip=name in skip)
        if name == "cpu_scalars_to_gpu":
            self.record.moved_inputs = returned or []
            return self.record.moved_inputs
        return returned

    return run
