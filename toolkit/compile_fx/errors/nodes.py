"""Which nodes of the graph an error is about: the one being run when it was raised, or those that a kernel was made of.

>>> [at(node) for node in running(frames)]
[NodeAt(node='relu', op='aten.relu.default', line='model.py:12', code='y = torch.relu(x)')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

from ..work import Work
from .explained import NodeAt

_LOCALS = (
    "n",
    "node",
    "snode",
    "scheduler_node",
    "template_node",
    "current_node",
    "fx_node",
    "match",
    "m",
    "node_schedule",
)
_GRAPH_LINE = re.compile(r"^#\s+%(\w+) : .*?= (call_\w+|PlaceHolder)(?:\[target=([\w.]+)\])?", re.MULTILINE)
_BUFFER = re.compile(r"\b(buf\d+)\b")


def at(node: Any) -> NodeAt:
    """A node of torch.fx as it is told."""
    from ....dumps.sidecar import user_frame

    target = node.target
    own = (
        isinstance(target, str) or type(target).__module__ == "torch._ops"
    )  # such an operator prints as aten.add.Tensor
    op = str(target) if own else str(getattr(target, "__name__", target))
    line, code = user_frame(node.meta.get("stack_trace") or getattr(node, "stack_trace", None) or "")
    return NodeAt(node.name, node.op if node.op in ("placeholder", "output") else op, line, code)


def running(frames: Sequence[FrameType]) -> list[Any]:
    """The node of torch.fx that was run, lowered, scheduled or matched in these frames; nodes that enclose it come behind it.

    Interpreters first, then locals of frames that are nodes or made from nodes.
    """
    ran = [node for frame in reversed(frames) if (node := _interpreted(frame)) is not None]
    if ran:
        return list(dict.fromkeys(ran))
    for frame in reversed(frames):
        if frame.f_code.co_filename.endswith(("compile_fx/pipeline.py", "compile_fx/inner.py")):
            break
        for name in _LOCALS:
            if found := _origins(frame.f_locals.get(name)):
                return found
        if found := _origins_of_ir(frame.f_locals.get("self")):
            return found
    return []


def interpreter(frames: Sequence[FrameType]) -> Any:
    """The innermost interpreter of a graph that was running, which has the values of nodes in `env`; None where none was."""
    for frame in reversed(frames):
        if _interpreted(frame) is not None:
            return frame.f_locals.get("self")
    return None


def of_kernel(work: Work | None, kernel: str) -> list[NodeAt]:
    """The nodes that a kernel was made of, by Inductor's comment above it, else by the buffers that it writes."""
    text = generated(work)
    if work is None or not kernel or not text:
        return []
    comment = _comment_above(text, kernel)
    graph_nodes = {node.name: node for node in work.gm.graph.nodes} if hasattr(work.gm, "graph") else {}
    named = [(found[1], found[3] or "") for found in _GRAPH_LINE.finditer(comment) if found[2] != "PlaceHolder"]
    if named:
        return [
            at(graph_nodes[name]) if name in graph_nodes else NodeAt(name, op.removeprefix("torch.ops."))
            for name, op in named
        ]
    return [at(node) for node in _writing(work, text, kernel)]


def generated(work: Work | None) -> str:
    """The text of the generated wrapper with its kernels, "" before there is one."""
    code = work.wrapper_code if work is not None else None
    value = getattr(code, "value", None)
    kernels = getattr(work.kernel_code, "value", None) if work is not None else None
    return "\n".join(text for text in (value, kernels) if isinstance(text, str))


def _interpreted(frame: FrameType) -> Any:
    """The node of a frame of `Interpreter.run_node` and those that override it."""
    if frame.f_code.co_name != "run_node":
        return None
    found = frame.f_locals.get("n", frame.f_locals.get("node"))
    return found if _is_node(found) else None


def _is_node(value: Any) -> bool:
    from torch import fx

    return isinstance(value, fx.Node)


def _origins(value: Any) -> list[Any]:
    """Nodes of torch.fx behind a value: a node, a match of a pattern, a node of the scheduler, an IR node."""
    if value is None or isinstance(value, (str, int)):
        return []
    if _is_node(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return list(dict.fromkeys(node for one in value[:64] for node in _origins(one)))  # pyright: ignore[reportUnknownArgumentType]
    if type(value).__name__ == "Match":
        return [node for node in getattr(value, "nodes", ()) if _is_node(node)]
    inside = getattr(value, "get_nodes", None)
    if callable(inside) and hasattr(value, "scheduler"):
        parts: list[Any] = list(inside())  # pyright: ignore[reportArgumentType]
        return list(dict.fromkeys(node for one in parts for node in _origins_of_ir(getattr(one, "node", None))))
    return _origins_of_ir(value)


def _origins_of_ir(value: Any) -> list[Any]:
    origins = value.__dict__.get("origins") if hasattr(value, "__dict__") else None
    if origins is None or isinstance(origins, str):
        return []
    return [node for node in origins if _is_node(node)]


def _comment_above(text: str, kernel: str) -> str:
    """Inductor's comment lines right above the definition of a kernel."""
    found = re.search(rf"^((?:#.*\n)+){re.escape(kernel)} = ", text, re.MULTILINE)
    return found[1] if found else ""


def _writing(work: Work, text: str, kernel: str) -> list[Any]:
    """Nodes behind the buffers that calls of a kernel name first: whatever is named by an earlier call was made there."""
    seen: set[str] = set()
    mine: set[str] = set()
    calls = re.compile(
        rf"^\s*(?:{re.escape(kernel)}\b|extern_kernels\.|torch\.ops\.|\w*_fused_\w+\().*\(.*$|^\s*\w+ = torch\.ops\..*$"
    )
    for line in text.splitlines():
        if not calls.match(line) or " = async_compile" in line:
            continue
        named = set(_BUFFER.findall(line))
        if re.match(rf"\s*{re.escape(kernel)}\b", line):
            mine |= named - seen
        seen |= named
    found: set[Any] = set()
    for group in getattr(getattr(work.lowering, "scheduler", None), "nodes", ()):
        parts = [part for part in group.get_nodes() if not part.is_extern()]  # calls of libraries are no kernel of ours
        made = {output.get_name() for part in parts for output in part.get_outputs()}
        if made & mine:
            found.update(node for part in parts for node in _origins_of_ir(getattr(part, "node", None)))
    return in_order(work, found)


def in_order(work: Work, nodes: Iterable[Any]) -> list[Any]:
    """Nodes in the order of the graph; those of other graphs last."""
    place = {node: index for index, node in enumerate(work.gm.graph.nodes)}
    return sorted(nodes, key=lambda node: place.get(node, len(place)))
