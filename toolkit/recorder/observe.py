"""The first real run of a compiled graph: what its inputs were, that it ran, or how it failed.

Inputs are looked at before the call, so before any mutation. After the first run the compiled graph is as torch made it:
Inductor's result gets its own callable back (no cost per step), others keep a closure that costs one branch. Holds no tensor.

>>> watch_inductor(session, graph, compiled_fx_graph)
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...dumps.schema import GraphBody, GraphRecord
from ._torch import is_capturing, is_fake, undisturbed
from .ambient import ambient
from .flight import Graph, told

if TYPE_CHECKING:
    from .session import Session

WHOLE = ("first", "all")


class FirstRun:
    """Watches one execution. `graphs` share it: an inference graph and its form after the joint passes run as one."""

    def __init__(self, session: Session, graphs: Sequence[Graph]) -> None:
        self.session = session
        self.graphs = [(graph.id, graph.stage, _inputs_only(graph.record)) for graph in graphs if graph.record is not None]
        self._lock = threading.Lock()
        self._begun = False
        for graph in graphs:
            graph.watched = True
            graph.record = None

    def begin(self, inputs: Sequence[Any]) -> bool:
        """Whether this call is the one to watch; a call with fake tensors or inside a CUDA graph capture is let pass."""
        if any(map(is_fake, inputs)) or is_capturing():
            return False
        with self._lock:
            first, self._begun = not self._begun, True
        return first

    def call(self, function: Callable[..., Any], inputs: Sequence[Any], arguments: tuple[Any, ...]) -> Any:
        """Calls `function(*arguments)`, journalling `running` and the inputs before it, and `ran` or `failed` after it."""
        session = self.session
        for local, _, record in self.graphs:
            with session.guarded(f"inputs of {local}"):
                self._observe(local, record, inputs)
            session.event("running", local)
        del inputs
        start = time.perf_counter()
        try:
            result = function(*arguments)
        except BaseException as error:
            for local, stage, _ in self.graphs:
                session.event("failed", local, at="run", **told(error, stage))
            raise
        finally:
            del arguments
        for local, _, _ in self.graphs:
            session.event("ran", local, run_seconds=round(time.perf_counter() - start, 6))
        return result

    def _observe(self, local: str, record: GraphRecord, inputs: Sequence[Any]) -> None:
        policy = self.session.options.inputs
        if policy == "none":
            return
        from ...dumps import live

        writer = self.session.writer()
        state = ambient(rng=policy in WHOLE)
        with undisturbed():
            seen = live.observe(record, list(inputs), "first" if policy == "all" else policy, writer.tensors)
        seen.ambient = state
        writer.save_inputs(local, seen, writer.tensors)


def watch_inductor(session: Session, graphs: Sequence[Graph], compiled: Any) -> Any:
    """Watches the first run of what the inner compiler returned; returns what is to be returned instead of it."""
    graphs = [graph for graph in graphs if not graph.watched]
    if not graphs:
        return compiled
    if getattr(compiled, "current_callable", None) is None:
        return watch_callable(session, graphs, compiled)
    first = FirstRun(session, graphs)
    original = compiled.current_callable
    weak = weakref.ref(compiled)

    def current_callable(inputs: list[Any]) -> Any:
        if not first.begin(inputs):
            return original(inputs)
        owner = weak()
        if owner is not None and owner.current_callable is current_callable:
            owner.current_callable = original
        return first.call(original, inputs, (inputs,))

    compiled.current_callable = current_callable
    return compiled


def watch_callable(session: Session, graphs: Sequence[Graph], compiled: Any) -> Any:
    """Watches the first run of any callable, boxed (one list) or not; later calls cost one branch."""
    graphs = [graph for graph in graphs if not graph.watched]
    if not graphs or not callable(compiled):
        return compiled
    first: FirstRun | None = FirstRun(session, graphs)

    def run(*arguments: Any, **keywords: Any) -> Any:
        nonlocal first
        watching = first
        if watching is None or keywords:
            return compiled(*arguments, **keywords)
        inputs = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list) else arguments
        if not watching.begin(inputs):
            return compiled(*arguments)
        first = None
        return watching.call(compiled, inputs, arguments)

    functools.update_wrapper(run, compiled, updated=("__dict__",) if hasattr(compiled, "__code__") else ())
    for name in [name for name in vars(run) if name.startswith("_torchdynamo")]:
        delattr(run, name)  # they say that `run` is a wrapper of Dynamo's own, which older versions would take off
    if getattr(compiled, "_boxed_call", False):
        run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _inputs_only(record: GraphRecord) -> GraphRecord:
    placeholders = [node for node in record.graph.nodes if node.op == "placeholder"]
    graph = GraphBody(nodes=placeholders)
    return msgspec.structs.replace(record, graph=graph, guards=[], strings=[], config={}, compile_kwargs={})
