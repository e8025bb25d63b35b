"""Backwards that the program's own compiled autograd captured, of which Dynamo makes graphs:
`ca<K>_<frame>_<recompile>/dynamo`.

Torch's capture of each is kept: which autograd node and which hook each of its lines is, and why it was captured again
(torch's verbose log says the same). Dynamo's graph is saved with the steps of autograd spelt out, so that it can be
loaded. Switches no log on.

For example:

    spelt_out(flight, gm, scope).meta["custom"]["compiled_autograd"]["hooks"]
    # [{'hook': '__main__.clip (train.py:9)', 'kind': 'tensor_pre_hook', 'node': 'torch::autograd::AccumulateGrad
    # (NodeCall 8)'}]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import torch_private as t
from . import why_hooks
from .session import Function, Session, hook

if TYPE_CHECKING:
    from .flight import Flight

CODE = "compiled_autograd.txt"
"""Torch's own graph of a backward, beside the graph that was made of it."""
_ORIGIN = re.compile(r"in set_node_origin\n\s*(\S.*? \(NodeCall \d+\))")
_PART = re.compile(r"aot\d+_")
_LINE = re.compile(r'File "(<eval_with_key>[^"]*)", line \d+, in \w+\n\s*(\w+)(?:\s*:[^=]*)? = ')


class Capture:
    """One capture: `origins` are the autograd nodes of its nodes by name; `hooks` (index, kind) those of its calls of
    hooks."""

    def __init__(self, gm: Any) -> None:
        self.module = gm
        self.origins: dict[str, str] = {}
        self.calls: dict[str, tuple[int, str]] = {}
        self.named: dict[int, str] = {}
        self.inputs: dict[Any, str] = {}
        parts: dict[str, str] = {}
        for node in gm.graph.nodes:
            if node.op != "call_function" or _is_size(node):  # a size has the stack of the input before it
                continue
            part = _PART.match(node.name)
            origin = _origin(node) or parts.get(
                part[0] if part else "", ""
            )  # the operators of a compiled part have no stack
            if origin:
                self.origins[node.name] = origin
                parts.update({part[0]: origin} if part else {})
                if getattr(node.args[0] if node.args else None, "name", "") == "inputs":
                    self.inputs[node.args[1]] = origin
            kind = node.kwargs.get("hook_type") if node.op == "call_function" else None
            if kind and (index := _index(node.args[0])) is not None:
                self.calls[node.name] = index, str(kind)

    def place(self, name: str) -> dict[str, str]:
        """The autograd node and the hook of a node of the capture."""
        place = {"autograd_node": self.origins[name]} if name in self.origins else {}
        index, _ = self.calls.get(name, (None, ""))
        return {**place, "hook": self.named[index]} if index in self.named else place


class _Silent:
    """A log that hears nothing: torch says why it captures again only where there is one."""

    @staticmethod
    def debug(*_: Any) -> None:
        """Ignores what torch's C++ writes."""


_silent = _Silent()
"""Torch keeps no reference to its log."""
_reasons: dict[int, list[str]] = {}
_sizes: dict[int, dict[str, str]] = {}
_SIZE = re.compile(r"sizes\[\d+\]")


@hook
def enable(session: Session, original: Function, *args: Any, **kwargs: Any) -> Any:
    """Torch's own context that switches compiled autograd on, after a silent verbose logger is set."""
    with session.guarded("compiled autograd"):
        t.set_verbose_logger(_silent)
    return original(*args, **kwargs)


@hook
def begin_capture(session: Session, original: Function, self: Any, *args: Any) -> Any:
    """begin_capture(inputs, sizes, scalars, origins, ...); `origins` names the autograd node of each."""
    captured = original(self, *args)
    with session.guarded("compiled autograd"):
        _sizes[self.id] = {f"sizes[{index}]": f"{name} (NodeCall {at})" for index, (at, name) in enumerate(args[3][1])}
    return captured


@hook
def log_compile_reasons(session: Session, original: Function, self: Any, compile_reasons: list[str]) -> Any:
    """Records the reasons of a capture, which come after it began."""
    with session.guarded("compiled autograd"):
        own = f"!{self.id}: "  # torch may repeat those of captures before
        _reasons[self.id] = [str(reason).removeprefix(own) for reason in compile_reasons if str(reason).startswith(own)]
    return original(self, compile_reasons)


@hook
def create_graph_module(session: Session, original: Function, self: Any, id: str) -> Any:
    """Records the capture as a module, when its passes ran."""
    gm = original(self, id)
    with session.guarded("compiled autograd"):
        if not id.endswith("PreReordering") and not hasattr(
            self, "record"
        ):  # a capture of ours, which is looked at only
            session.captures[gm.forward.__code__.co_filename] = Capture(gm)
            reasons, sizes = _reasons.pop(self.id, []), _sizes.pop(self.id, {})
            named = {name: sizes[name] for reason in reasons for name in _SIZE.findall(reason) if name in sizes}
            why_hooks.journal(session, "capture", compile=f"ca{self.id}", reasons=reasons, sizes=named or None)
    return gm


def spelt_out(flight: Flight, gm: Any, scope: Mapping[str, Any] | None = None) -> Any:
    """Dynamo's graph of a captured backward in the form in which it is saved; any other graph unchanged. `scope`: the
    variables of the frame."""
    session = flight.session
    if not session.captures or not str(flight.compile_id).startswith("!"):
        return gm
    with session.guarded("compiled autograd"):
        from ..capture.compiled_autograd.steps import spelt_out as spelt

        capture = _called(session, scope or {})
        shown = spelt(gm, lambda node: _place(session, capture, node))
        if shown is not gm:
            shown.meta = {**gm.meta, "custom": {"compiled_autograd": _facts(capture)}} if capture else dict(gm.meta)
        return shown
    return gm


def save_code(session: Session, graph: str, scope: Mapping[str, Any]) -> None:
    """Keeps torch's graph of the backward, where it is what Dynamo compiles, beside the graph."""
    capture = _called(session, scope) if session.captures else None
    if capture is not None:
        with session.guarded(graph):
            session.writer().save_code(graph, {CODE: capture.module.print_readable(print_output=False)})


def _called(session: Session, scope: Mapping[str, Any]) -> Capture | None:
    """The capture whose frame is being compiled, with the hooks that it was called with."""
    module = scope.get("self")
    capture = next((candidate for candidate in session.captures.values() if candidate.module is module), None)
    if capture is not None:
        for index, function in enumerate(scope.get("hooks") or ()):
            capture.named[index] = _name(function)
    return capture


def _place(session: Session, capture: Capture | None, node: Any) -> dict[str, str]:
    """The place of a Dynamo node in the backward."""
    whole = node.args[0] if node.op == "call_function" and node.args else None
    if getattr(whole, "name", "") == "l_inputs_" and capture is not None:
        return {"autograd_node": capture.inputs[node.args[1]]} if node.args[1] in capture.inputs else {}
    trace = node.meta.get("stack_trace") or ""
    line = _LINE.search(trace)
    if line and line[1] in session.captures:
        return session.captures[line[1]].place(line[2])
    return {"autograd_node": origin} if node.op != "placeholder" and (origin := _origin(node)) else {}


def _facts(capture: Capture) -> dict[str, Any]:
    return {
        "autograd_nodes": len(set(capture.origins.values())),
        "hooks": [
            {"hook": capture.named.get(index, f"hook {index}"), "kind": kind, "node": capture.origins.get(name, "")}
            for name, (index, kind) in capture.calls.items()
        ],
    }


def _origin(node: Any) -> str:
    match = _ORIGIN.search(node.meta.get("stack_trace") or "")
    return match[1] if match else ""


def _is_size(node: Any) -> bool:
    """Whether a node of a capture takes a size out, or unwraps it."""
    whole = node.args[0] if node.args else None
    taken = getattr(whole, "op", "") == "placeholder" and getattr(whole, "name", "") == "sizes"
    return taken or node.target is t.unwrap_maybe_dynamic_int


def _index(node: Any) -> int | None:
    index = node.args[1] if len(getattr(node, "args", ())) == 2 else None
    return index if isinstance(index, int) else None


def _name(function: Any) -> str:
    """A hook by its function, file and line, as far as they are known."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    module = getattr(function, "__module__", None) or type(function).__module__
    name = f"{module}.{getattr(function, '__qualname__', None) or type(function).__qualname__}"
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else name
